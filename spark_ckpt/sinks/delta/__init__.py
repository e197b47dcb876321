"""The sink ``delta``."""

from __future__ import annotations
