"""The ``sql`` source."""

from __future__ import annotations
