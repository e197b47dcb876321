"""From recipes to a Spark plan, and its start. Driver."""

from __future__ import annotations
