"""Keyed aggregates, vectorised."""

from __future__ import annotations
