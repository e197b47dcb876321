"""The ``iceberg`` source."""

from __future__ import annotations
