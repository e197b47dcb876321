"""Weights: how barriers of many lanes and partitions become one. The one place that adds them up. Pure.

Every input of a stage stands for ``key_groups`` shares (see :mod:`spark_ckpt.protocol.events`). Whoever splits an input
gives each part some of them; whoever waits for it adds up what has arrived, in any order. What an input that ended had
left counts for every checkpoint from its label on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spark_ckpt.protocol.events import (
    Barrier,
    Cancel,
    Decline,
    Event,
    Finished,
    Flushed,
    OperatorAck,
    SourceAck,
)
from spark_ckpt.protocol.records import BatchRecord, Figures
from spark_ckpt.protocol.reports import Reports
from spark_ckpt.types import Committable


def split(weight: int, parts: int) -> list[int]:
    """What each of ``parts`` stands for; together they are ``weight``."""
    return [weight // parts + (i < weight % parts) for i in range(parts)]


class Arrivals:
    """The barriers, cancel markers and ended inputs of one batch, whoever brought them."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.barriers: dict[int, Barrier] = {}
        self.cancels: set[int] = set()
        self.finished: dict[int, int] = {}
        """Weight by the label from which on it counts."""
        for event in events:
            self.add(event)

    def add(self, event: Event) -> bool:
        """Whether ``event`` is one of these; others change nothing."""
        if isinstance(event, Barrier):
            old = self.barriers.get(event.checkpoint)
            self.barriers[event.checkpoint] = event if old is None else _together(old, event)
        elif isinstance(event, Finished):
            self.finished[event.epoch] = self.finished.get(event.epoch, 0) + event.weight
        elif isinstance(event, Cancel):
            self.cancels.add(event.checkpoint)
        else:
            return False
        return True

    def events(self) -> list[Event]:
        """They as one of each, always in the same order."""
        found: list[Event] = [b for _, b in sorted(self.barriers.items())]
        found += [Cancel(k) for k in sorted(self.cancels)]
        found += [Finished(weight, label) for label, weight in sorted(self.finished.items())]
        return found


def _together(a: Barrier, b: Barrier) -> Barrier:
    return Barrier(a.checkpoint, a.weight + b.weight, max(a.triggered_ms, b.triggered_ms), a.drain or b.drain)


def ended_before(checkpoint: int, finished: Iterable[tuple[int, int]]) -> int:
    """Of ``finished``, pairs of a label and a weight, what counts as arrived for ``checkpoint``."""
    return sum(weight for label, weight in finished if label <= checkpoint)


def batch_record(
    origin: int,
    batch: int,
    generation: int,
    staged: Sequence[Committable],
    events: Sequence[Event],
    written: int | None = None,
) -> BatchRecord:
    """What the tasks of a batch staged and reported, folded. ``events``: of all tasks, in any order; ``written``: rows
    that each sink was given, if that is known."""
    arrived, reports = Arrivals(events), Reports(events)
    kept = tuple(e for e in events if isinstance(e, SourceAck | OperatorAck | Flushed | Decline | Cancel))
    barriers: Mapping[int, int] = {k: b.weight for k, b in arrived.barriers.items()}
    read, times = dict(sorted(reports.rows.items())), reports.seen()
    late = {seen.uid: seen.late for seen in times if seen.late}
    return BatchRecord(
        origin,
        batch,
        generation,
        tuple(staged),
        kept,
        barriers,
        arrived.finished,
        {batch: read},
        {batch: times},
        written={} if written is None else {batch: written},
        figures=Figures(
            {s: n for s, n in read.items() if n},
            late,
            written or 0,
            dict(sorted(reports.behind.items())),
            dict(sorted(reports.asked.items())),
        ),
    )
