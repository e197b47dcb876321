"""Contiguous key groups: the range one operator task holds, and runs that cover some of it.

Rows sorted by key hash are sorted by key group, so a sorted file slice of many key groups is one run to look keys up
in. The protocol knows slices of single key groups only (:class:`spark_ckpt.protocol.events.Run`): they are cut out at
a barrier, from row offsets alone.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from spark_ckpt.protocol.events import Run
from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.keys.keys import Hashes


@dataclass(frozen=True)
class KeyRange:
    """Key groups ``first`` to ``end - 1`` of ``total``: what one operator task holds."""

    first: int
    end: int
    total: int

    def __len__(self) -> int:
        return self.end - self.first

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.end))

    @cached_property
    def bounds(self) -> Hashes:
        """The smallest hash of each key group, and of the one behind the last. Behind the very last key group there
        is no hash: the bound is the largest hash, which still belongs to it."""
        upper = [-(-group * (1 << 32) // self.total) - (1 << 31) for group in range(self.first, self.end + 1)]
        return np.array([min(u << 32, 2**63 - 1) for u in upper], np.int64)

    def cuts(self, hashes: Hashes) -> Rows:
        """Where each key group begins among ascending ``hashes`` of this range, and their number at the end."""
        cuts = np.empty(len(self) + 1, np.int64)
        cuts[0], cuts[-1] = 0, len(hashes)
        cuts[1:-1] = np.searchsorted(hashes, self.bounds[1:-1])
        return cuts

    def count(self, hashes: Hashes) -> Rows:
        """How many of the ascending ``hashes`` fall into each key group."""
        return np.diff(self.cuts(hashes))

    def holds(self, hashes: Hashes) -> bool:
        """Whether all of the ascending ``hashes`` belong to this range."""
        return not len(hashes) or (
            bool(hashes[0] >= self.bounds[0]) and (self.end == self.total or bool(hashes[-1] < self.bounds[-1]))
        )


@dataclass(eq=False)
class RangeRun:
    """A sorted range of rows of one state file that belongs to key groups ``first`` to ``end - 1``.

    Row ``start + cuts[i]`` of the file is the first of key group ``first + i``. ``tombstones`` and ``due_ms`` are as
    in :class:`spark_ckpt.protocol.events.Run`; ``due_ms`` is raised when a search finds nothing earlier.
    """

    file: str
    start: int
    first: int
    cuts: Rows
    epoch: int
    tombstones: bool = False
    due_ms: int | None = None

    def __post_init__(self) -> None:
        self.count = int(self.cuts[-1])
        self.end = self.first + len(self.cuts) - 1

    @property
    def run(self) -> Run:
        """All its rows as one run, for whoever reads them."""
        return Run(self.file, self.start, self.count, self.epoch, self.tombstones, self.due_ms)

    def part(self, first: int, end: int) -> RangeRun | None:
        """What lies in key groups ``first`` to ``end - 1``; None if that has no row."""
        first, end = max(first, self.first), min(end, self.end)
        if (first, end) == (self.first, self.end):
            return self
        if first >= end:
            return None
        cuts = self.cuts[first - self.first : end - self.first + 1]
        start = int(cuts[0])
        if start == cuts[-1]:
            return None
        return RangeRun(self.file, self.start + start, first, cuts - start, self.epoch, self.tombstones, self.due_ms)

    def add_counts(self, rows: Rows, groups: KeyRange) -> None:
        """Add the rows in each key group to ``rows``, which has one number for each key group of ``groups``."""
        rows[self.first - groups.first : self.end - groups.first] += np.diff(self.cuts)

    def slices(self) -> Iterator[tuple[int, Run]]:
        """Each key group that has rows, and its run."""
        counts = np.diff(self.cuts)
        filled = np.flatnonzero(counts)
        starts = (self.start + self.cuts[filled]).tolist()
        for i, start, count in zip(filled.tolist(), starts, counts[filled].tolist(), strict=True):
            yield self.first + i, Run(self.file, start, count, self.epoch, self.tombstones, self.due_ms)

    def to_json(self) -> list[Any]:
        counts = numbers_to_json(np.diff(self.cuts))
        return [self.file, self.start, self.first, counts, self.epoch, int(self.tombstones), self.due_ms]

    @staticmethod
    def from_json(value: Sequence[Any]) -> RangeRun:
        file, start, first, counts, epoch, tombstones, due_ms = value
        due_ms = None if due_ms is None else int(due_ms)
        cuts = offsets(numbers_from_json(counts))
        return RangeRun(file, int(start), int(first), cuts, int(epoch), bool(tombstones), due_ms)


def offsets(counts: Rows) -> Rows:
    """Where each of so many rows begins, and their sum at the end."""
    cuts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=cuts[1:])
    return cuts


def numbers_to_json(numbers: Rows) -> str:
    """One number a key group, as text that costs nothing to parse however many there are."""
    return base64.b64encode(numbers.astype("<u4").tobytes()).decode()


def numbers_from_json(value: str) -> Rows:
    return np.frombuffer(base64.b64decode(value), "<u4").astype(np.int64)


def blocks(rows: Rows, first: int, limit: int) -> Iterator[tuple[int, int]]:
    """Contiguous key groups of at most ``limit`` rows together, at least one. ``rows[i]``: those of ``first + i``."""
    total = offsets(rows)
    start = 0
    while start < len(rows):
        stop = int(np.searchsorted(total, total[start] + limit, side="right")) - 1
        stop = min(max(stop, start + 1), len(rows))
        yield first + start, first + stop
        start = stop
