"""One checkpoint as bars over time: where it went, by operator and subtask. Pure.

A subtask's barrier comes ``start_delay_ms`` behind the trigger; then it aligns, merges and encodes (flush), and writes.
Flush and write are sums of all work since the last barrier, so they are shown behind the alignment, where most of it
is. The driver commits state tables, then sinks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spark_ckpt.storage.history import HistoryRow

DRIVER = "driver"
SUBTASK_PHASES = ("start_delay_ms", "alignment_ms", "flush_ms", "write_ms")
DRIVER_PHASES = ("commit_state_ms", "commit_sinks_ms")
WORDS = {
    "start_delay_ms": "start delay",
    "alignment_ms": "alignment",
    "flush_ms": "flush",
    "write_ms": "write",
    "commit_state_ms": "state committed",
    "commit_sinks_ms": "sinks committed",
}


@dataclass(frozen=True)
class Bar:
    """``phase`` of :data:`WORDS`, from ``from_ms`` to ``to_ms`` behind the trigger."""

    phase: str
    from_ms: int
    to_ms: int


@dataclass(frozen=True)
class Lane:
    """``who``: a subtask of ``uid``, or the driver. ``slowest``: it ends behind all others of its operator."""

    uid: str
    subtask: str
    bars: tuple[Bar, ...]
    slowest: bool = False

    @property
    def who(self) -> str:
        return f"{self.uid} {self.subtask}".rstrip()

    @property
    def end_ms(self) -> int:
        return self.bars[-1].to_ms if self.bars else 0


@dataclass(frozen=True)
class Timeline:
    """Lanes of operators, the slowest subtask of each marked, and that of the driver last. ``duration_ms``: of all."""

    checkpoint: int
    duration_ms: int
    acknowledged_ms: int
    lanes: tuple[Lane, ...]


def timeline_of(row: HistoryRow) -> Timeline | None:
    """None for a checkpoint that did not complete, or whose phases are not known."""
    if row.completed_ms is None or not row.phases:
        return None
    acknowledged_ms = max(0, row.phases["acknowledged_ms"] - row.triggered_ms)
    lanes = [lane for uid, parts in sorted(row.phases["operators"].items()) for lane in _lanes(uid, parts)]
    committed = tuple(_bars(row.phases[DRIVER], DRIVER_PHASES, acknowledged_ms))
    lanes.append(Lane(DRIVER, "", committed))
    duration_ms = max(row.completed_ms - row.triggered_ms, *(lane.end_ms for lane in lanes), 1)
    return Timeline(row.id, duration_ms, acknowledged_ms, tuple(lanes))


def _lanes(uid: str, parts: Mapping[str, Mapping[str, int]]) -> list[Lane]:
    found = [
        Lane(uid, subtask, tuple(_bars(parts[subtask], SUBTASK_PHASES, 0)))
        for subtask in sorted(parts, key=lambda n: (len(n), n))
    ]
    *_, before, last = 0, *sorted(lane.end_ms for lane in found)
    return [Lane(lane.uid, lane.subtask, lane.bars, len(found) > 1 and lane.end_ms == last > before) for lane in found]


def _bars(times: Mapping[str, int], phases: tuple[str, ...], at_ms: int) -> Iterator[Bar]:
    for phase in phases:
        if times.get(phase):
            yield Bar(phase, at_ms, at_ms + times[phase])
            at_ms += times[phase]
