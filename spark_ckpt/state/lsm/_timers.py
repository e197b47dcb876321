"""Time-outs: which keys are due, without reading runs in which nothing is.

A run's ``due_ms`` is a lower bound of its live rows' time-outs (None: it has none). Once a run was searched, the
bound is raised to the earliest live time-out left, so that the run is not searched again before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_ckpt.state.functions.base import NO_TIMEOUT
from spark_ckpt.state.ipc import Rows, int64_view
from spark_ckpt.state.lsm._levels import MEMTABLE, Hit, Levels
from spark_ckpt.state.lsm._scan import current
from spark_ckpt.state.lsm.ranges import RangeRun
from spark_ckpt.types import TIMEOUT_MS

_FIRST_LOOK = 256


@dataclass(frozen=True)
class Searched:
    """A run that was searched: ``fired`` rows were due. Once they are all overridden, its bound is ``next_due_ms``."""

    fired: Rows
    next_due_ms: int | None


def find_due(levels: Levels, now_ms: int) -> tuple[list[Hit], dict[RangeRun, Searched]]:
    """Every live key whose time-out is before ``now_ms``, in no order, and the runs that were searched."""
    rows = _due_in_memtable(levels, now_ms)
    hits, keys, searched = [Hit(MEMTABLE, np.arange(len(rows)), rows)], len(rows), {}
    for i, run in enumerate(levels.runs):
        if run.tombstones or run.due_ms is None or run.due_ms >= now_ms:
            continue
        searched[run] = _search(levels, i, run.due_ms, now_ms)
        rows = searched[run].fired
        hits.append(Hit(i, np.arange(keys, keys + len(rows)), rows))
        keys += len(rows)
    return [hit for hit in hits if len(hit.at)], searched


def next_due_ms(levels: Levels) -> int | None:
    """A lower bound of the live keys' time-outs, without reading a run."""
    timeouts = int64_view(levels.memtable.rows.column(TIMEOUT_MS))
    bounds = [earliest(timeouts[~levels.memtable.removed]), *(run.due_ms for run in levels.runs)]
    return min((b for b in bounds if b is not None), default=None)


def earliest(timeouts: npt.NDArray[np.int64]) -> int | None:
    """The smallest time-out, or None."""
    timeouts = timeouts[timeouts != NO_TIMEOUT]
    return int(timeouts.min()) if len(timeouts) else None


def _due_in_memtable(levels: Levels, now_ms: int) -> Rows:
    timeouts = int64_view(levels.memtable.rows.column(TIMEOUT_MS))
    return np.flatnonzero((timeouts != NO_TIMEOUT) & (timeouts < now_ms) & ~levels.memtable.removed)


def _search(levels: Levels, index: int, due_ms: int, now_ms: int) -> Searched:
    """Rows below the bound are dead and need no look."""
    timeouts = int64_view(levels.rows_of(levels.runs[index]).column(TIMEOUT_MS))
    candidates = np.flatnonzero((timeouts >= due_ms) & (timeouts < now_ms) & (timeouts != NO_TIMEOUT))
    fired = candidates[current(levels, index, candidates)]
    later = np.flatnonzero((timeouts >= now_ms) & (timeouts != NO_TIMEOUT))
    return Searched(fired, _earliest_live(levels, index, timeouts, later))


def _earliest_live(levels: Levels, index: int, timeouts: npt.NDArray[np.int64], rows: Rows) -> int | None:
    """Looks at the earliest few first: whether a row is live costs a search, and the earliest often is."""
    look = _FIRST_LOOK
    while len(rows):
        if look < len(rows):
            rows = rows[np.argpartition(timeouts[rows], look)]
        head, rows = rows[:look], rows[look:]
        head = np.sort(head)
        alive = timeouts[head[current(levels, index, head)]]
        if len(alive):
            return int(alive.min())
        look *= 4
    return None
