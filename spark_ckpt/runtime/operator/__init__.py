"""Keyed operators: packed rows in, state, snapshots."""

from __future__ import annotations
