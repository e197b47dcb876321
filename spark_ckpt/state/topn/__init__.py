"""The first rows of each key in an order, kept and told as changes."""

from __future__ import annotations
