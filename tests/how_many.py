"""How many examples a generated test tries: few in the test command, many with the soak tests (Makefile)."""

from __future__ import annotations

import os

EXAMPLES = float(os.environ.get("EXAMPLES", "1"))


def some(count: int) -> int:
    """``count`` of them in the test command, ``EXAMPLES`` times as many elsewhere."""
    return max(1, round(count * EXAMPLES))
