"""The numbers of the two sides of a join. Pure."""

from __future__ import annotations

LEFT, RIGHT = 0, 1
