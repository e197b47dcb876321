"""Keys: their hash as Spark has it, grouping, and looking them up."""

from __future__ import annotations
