"""The users' functions, unchanged between plain Spark and ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

COUNT_OUT, COUNT_STATE = "k long, n long, total long", "n long, total long"
SESSION_OUT, SESSION_STATE = "k long, n long, length long", "n long, first long, last long"


def count_and_sum(key: tuple[int], batches: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Keyed count and sum, as one writes it for ``applyInPandasWithState``."""
    n, total = state.get if state.exists else (0, 0)
    for rows in batches:
        n += len(rows)
        total += int(rows["v"].sum())
    state.update((n, total))
    yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total]})


def sessions(key: tuple[int], batches: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Sessions that a log-out (about every tenth row) ends: comes out then, with its rows and its length."""
    n, first, last = state.get if state.exists else (0, 0, 0)
    for rows in batches:
        for at in sorted(rows["v"].tolist()):
            n, first, last = n + 1, at if n == 0 else first, at
            if (at * 40503 >> 8) % 10 == 0:
                yield pd.DataFrame({"k": [key[0]], "n": [n], "length": [last - first]})
                n = 0
    if n:
        state.update((n, first, last))
    else:
        state.remove()
