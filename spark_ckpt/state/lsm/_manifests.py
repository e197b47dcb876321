"""Range runs out of single key groups' runs, and back.

Key groups come from operators with another number of tasks, so their lists of runs differ. Each key group's own order,
oldest first, must survive; runs of neighbours that lie side by side in one file become one run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from spark_ckpt.protocol.events import GroupManifest, Run
from spark_ckpt.state.lsm.ranges import KeyRange, RangeRun, offsets

_Place = tuple[str, int, bool, int]
"""Where a run would have to begin to go on behind another: file, row, and what else must be the same."""


class _Open:
    """A run that may go on in the next key groups."""

    def __init__(self, group: int, run: Run) -> None:
        self.head, self.first, self.counts, self.due_ms = run, group, [run.count], run.due_ms
        self.rows = run.count

    @property
    def behind(self) -> _Place:
        return (self.head.file, self.head.start + self.rows, self.head.tombstones, self.head.epoch)

    def add(self, group: int, run: Run) -> None:
        self.counts += [0] * (group - self.first - len(self.counts)) + [run.count]
        self.rows += run.count
        self.due_ms = min((d for d in (self.due_ms, run.due_ms) if d is not None), default=None)

    def closed(self) -> RangeRun:
        h = self.head
        return RangeRun(h.file, h.start, self.first, offsets(np.array(self.counts)), h.epoch, h.tombstones, self.due_ms)


def joined(manifests: Mapping[int, GroupManifest], most_rows: int) -> list[RangeRun]:
    """All runs of all key groups, joined up to ``most_rows``, such that every key group's runs stay in order.

    One order is kept for all: a key group's run joins one that comes behind its predecessor there, or is put right
    behind its predecessor. So whatever came before stays in order too.
    """
    order: list[_Open] = []
    ends: dict[_Place, _Open] = {}
    for group, manifest in sorted(manifests.items()):
        behind = 0
        for run in manifest.runs:
            if not run.count:
                continue
            found = ends.get((run.file, run.start, run.tombstones, run.epoch))
            if found is None or found.rows + run.count > most_rows or order.index(found) < behind:
                found = _Open(group, run)
                order.insert(behind, found)
            else:
                del ends[found.behind]
                found.add(group, run)
            ends[found.behind] = found
            behind = order.index(found) + 1
    return [r.closed() for r in order]


def layered(runs: Sequence[RangeRun], groups: KeyRange) -> list[list[RangeRun]]:
    """``runs``, oldest first, in as few layers as their order allows; those of one layer overlap only as a flush's
    rows and its tombstones do."""
    layers: list[list[RangeRun]] = []
    depth = np.zeros(len(groups), np.int64)
    for run in runs:
        covered = slice(run.first - groups.first, run.end - groups.first)
        layer = max(0, int(depth[covered].max()) - int(run.tombstones))
        if layer == len(layers):
            layers.append([])
        layers[layer].append(run)
        depth[covered] = layer + 1
    return layers


def sliced(runs: Sequence[RangeRun], groups: KeyRange) -> dict[int, tuple[Run, ...]]:
    """Each key group's runs, oldest first, without reading a file."""
    found: dict[int, list[Run]] = {group: [] for group in groups}
    for run in runs:
        for group, part in run.slices():
            found[group].append(part)
    return {group: tuple(parts) for group, parts in found.items()}
