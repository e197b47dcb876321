"""The log-structured tree that keeps the state of a range of key groups."""

from __future__ import annotations
