"""The ``iceberg`` sink."""

from __future__ import annotations
