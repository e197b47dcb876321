"""The source ``delta``."""

from __future__ import annotations
