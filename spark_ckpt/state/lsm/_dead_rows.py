"""Which rows of run files died since the last flush: one roaring bitmap of absolute row positions a file."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Mapping

import numpy as np
from pyroaring import BitMap

from spark_ckpt.state.ipc import Rows, contiguous
from spark_ckpt.state.lsm.ranges import RangeRun


class DeadRows:
    """Grows until :meth:`take`. ``rows`` arguments count from the run's start."""

    def __init__(self) -> None:
        self._dead: dict[str, BitMap] = {}

    def __len__(self) -> int:
        return sum(map(len, self._dead.values()))

    def bury(self, run: RangeRun, rows: Rows) -> None:
        if contiguous(rows):
            first = run.start + int(rows[0])
            self._dead.setdefault(run.file, BitMap()).add_range(first, first + len(rows))
        elif len(rows):
            self._dead.setdefault(run.file, BitMap()).update(_positions(run, rows))

    def bury_run(self, run: RangeRun) -> None:
        self._dead.setdefault(run.file, BitMap()).add_range(run.start, run.start + run.count)

    def holds(self, run: RangeRun, rows: Rows) -> bool:
        return bool(BitMap(_positions(run, rows)) <= self._dead.get(run.file, BitMap()))

    def copy(self) -> DeadRows:
        dead_rows = DeadRows()
        dead_rows._dead = {file: rows.copy() for file, rows in self._dead.items()}
        return dead_rows

    def take(self) -> dict[str, BitMap]:
        taken, self._dead = self._dead, {}
        return taken

    def to_json(self) -> dict[str, str]:
        return {file: base64.b64encode(b.serialize()).decode() for file, b in self._dead.items()}

    @staticmethod
    def from_json(value: Mapping[str, str]) -> DeadRows:
        dead_rows = DeadRows()
        dead_rows._dead = {file: BitMap.deserialize(base64.b64decode(b)) for file, b in value.items()}
        return dead_rows


def _positions(run: RangeRun, rows: Rows) -> array[int]:
    """What roaring bitmaps take without a loop in Python."""
    return array("I", (rows + run.start).astype(np.uint32).tobytes())
