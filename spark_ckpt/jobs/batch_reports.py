"""What the batches of a start reported, for its progress; and which starts this process made. Driver."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from spark_ckpt.errors import CkptError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.jobs.statistics import newest_phases
from spark_ckpt.protocol.events import TimeSeen
from spark_ckpt.protocol.records import BatchRecord, Figures
from spark_ckpt.storage.job_paths import batch_of

_log = logging.getLogger("spark_ckpt")
_MAX_RUNS = 256
_BATCHES_TOLD = 100
"""As many as Spark's ``recentProgress`` has, if nobody asked for more."""
_T = TypeVar("_T")
_runs: OrderedDict[str, tuple[RunSpec, str | None]] = OrderedDict()
"""The newest starts of this process by the query's name, with Spark's id of the run once that is known."""


@dataclass(frozen=True)
class Reported:
    """Of the newest batches: the rows that each source read, what each operator with a watermark went by, and the rows
    that each sink was given. ``phases_ms``: how long the phases of a checkpoint took that completed in a batch."""

    rows: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    times: Mapping[int, tuple[TimeSeen, ...]] = field(default_factory=dict)
    written: Mapping[int, int] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)
    phases_ms: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    def watermark_us(self, batch: int) -> int | None:
        """The query's in that batch, as Spark has it: that of all streams. None if no operator told of one so far."""
        newest = max((b for b, seen in self.times.items() if b <= batch and seen), default=None)
        known = [] if newest is None else [t.watermark_us for t in self.times[newest] if t.watermark_us is not None]
        return min(known, default=None)

    def late(self, batch: int) -> dict[str, int]:
        """Rows that operators left out in that batch, by uid."""
        return {seen.uid: seen.late for seen in self.times.get(batch, ())}


def with_reports_before(record: BatchRecord, before: BatchRecord | None, newest: Figures) -> BatchRecord:
    """``record`` with what the batches ``before`` it reported, whose records may be dropped at any time; ``newest``:
    what the newest checkpoint that is complete was like. Commit process, once a batch."""
    figures = replace(
        record.figures, keys=newest.keys, state_bytes=newest.state_bytes, checkpoint_ms=newest.checkpoint_ms
    )
    if before is None:
        return replace(record, figures=figures)
    first, past = record.batch - _BATCHES_TOLD + 1, before.figures
    if before.batch == record.batch:  # the same batch, once more: its rows are among the sums
        figures = replace(figures, read={}, late={}, written=0)
    return replace(
        record,
        rows={**_of(before.rows, first, record.batch), **record.rows},
        times={**_of(before.times, first, record.batch), **record.times},
        at={**_of(before.at, first, record.batch), **record.at},
        written={**_of(before.written, first, record.batch), **record.written},
        figures=replace(
            figures,
            read=_sums(past.read, figures.read),
            late=_sums(past.late, figures.late),
            written=past.written + figures.written,
            behind={**past.behind, **figures.behind},
            asked=_sums(past.asked, figures.asked),
        ),
    )


def _of(told: Mapping[int, _T], first: int, end: int) -> dict[int, _T]:
    return {batch: value for batch, value in told.items() if first <= batch < end}


def _sums(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(a) + Counter(b))


def remember_run(name: str, run: RunSpec, run_id: str | None = None) -> None:
    """For listeners. Once before the query starts, so that they know it from the first event on, and once after."""
    _runs[name] = run, run_id
    while len(_runs) > _MAX_RUNS:
        _runs.popitem(last=False)


def reported(run: RunSpec) -> Reported:
    """By the newest batches of this start. Empty, with a line in the log, if it fails."""
    records = JobRecords(run.url, run.config)
    try:
        for _ in range(3):  # the record may be dropped meanwhile, behind a newer one
            names = records.store.names("batches")
            own = [n for n in names if batch_of(n)[0] == run.origin and batch_of(n)[2] == run.generation]
            newest = records.batch(max(own, key=batch_of)) if own else None
            if newest is not None or not own:
                return _reported(records, newest)
    except (CkptError, OSError) as error:
        _log.warning("Job %s: how many rows it read cannot be told; progress has Spark's numbers: %s", run.job, error)
    return Reported()


def _reported(records: JobRecords, newest: BatchRecord | None) -> Reported:
    if newest is None:
        return Reported()
    # Of a checkpoint that completed in this very batch, its record, which is older, cannot tell.
    phases = {**newest.figures.checkpoint_ms, **(newest_phases(records) if newest.barriers else {})}
    return Reported(newest.rows, newest.times, newest.written, newest.figures, phases)


def run_of(name: str, run_id: str) -> RunSpec | None:
    """The newest start under the query's name, if this process made it and Spark's id is not of another one."""
    run, known = _runs.get(name, (None, None))
    return run if known in (None, run_id) else None
