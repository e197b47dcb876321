"""Joins of two streams, vectorised."""

from __future__ import annotations
