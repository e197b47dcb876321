"""What the job of these tests must produce, computed plainly.

Numbers 0, 1, ... (a second source's are shifted, keys too); those divisible by 3 are dropped; running count and sum of
each ``k`` (operator ``totals``); then the rows of each ``g`` are numbered and the sums added up (operator
``numbered``), beginning anew after ``RESET`` rows, so that keyed state is removed and made again.
"""

from __future__ import annotations

from typing import NamedTuple

N_ROWS = 180
ROWS_PER_BATCH = 30
KEYS, GROUPS = 23, 5
RESET = 9
SHIFT = 1000
TOTALS, NUMBERED = "totals", "numbered"


class Row(NamedTuple):
    value: int
    k: int
    n: int
    s: int
    g: int
    seq: int
    total: int


class Expected(NamedTuple):
    """Everything that rows below an offset make: sink rows in order, and both operators' state by key."""

    rows: list[Row]
    totals: dict[int, tuple[int, int]]
    numbered: dict[int, tuple[int, int]]

    @property
    def latest(self) -> list[Row]:
        """What a sink that merges by ``g`` holds."""
        return sorted({row.g: row for row in self.rows}.values())


def expected(*upto: int) -> Expected:
    """The result of the numbers below ``upto``, of each source."""
    made = Expected([], {}, {})
    for source, end in enumerate(upto):
        for number in range(end):
            if number % 3:
                _add(made, source * SHIFT + number, source * SHIFT + number % KEYS, source * SHIFT + number % GROUPS)
    return made


def _add(made: Expected, value: int, k: int, g: int) -> None:
    n, s = made.totals.get(k, (0, 0))
    made.totals[k] = n, s = n + 1, s + value
    seq, total = made.numbered.pop(g, (0, 0))
    seq, total = seq + 1, total + s
    made.rows.append(Row(value, k, n, s, g, seq, total))
    if seq < RESET:
        made.numbered[g] = (seq, total)
