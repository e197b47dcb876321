"""What a job's folder says at one moment: read once, then looked at by functions without I/O. Any process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from spark_ckpt import clock
from spark_ckpt.errors import CkptError
from spark_ckpt.jobs.heartbeat import beats, heartbeats
from spark_ckpt.jobs.job import Job
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.report import left_by, sizes_of
from spark_ckpt.jobs.sink_records import SinkEntry, recorded_sinks
from spark_ckpt.jobs.unnamed import unnamed_files
from spark_ckpt.protocol.alive import Heartbeat
from spark_ckpt.protocol.records import (
    BatchRecord,
    CompletionRecord,
    EndedRecord,
    FailingSink,
    GenerationRecord,
    PausedRecord,
    TriggerRecord,
)
from spark_ckpt.storage.history import History, HistoryRow, UidSize
from spark_ckpt.storage.job_paths import batch_of
from spark_ckpt.storage.statistics import read_durations_ms

NEWEST = 100
"""So many checkpoints of the history are read by default."""
SAVEPOINTS = 20
"""So many savepoints are read, however old they are."""
BRIEF = 0
"""For who looks at many jobs: no history, no statistics, and batches only where a checkpoint is open."""
METERED = -1
"""For metrics: no history; statistics, and the newest batch."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Facts:
    """Of the job ``job``. ``starts``: oldest first, the newest is what the others are about.

    ``heard``: the heartbeat of a driver that runs it now; ``last_heard_ms``: of one that did. ``ended``: how the newest
    start ended. ``waits``: the newest start waits for an approval. ``batches``: of the newest start, the newest ones
    that are recorded. ``problems``: what could not be read, a sentence each; it is left out of the rest.
    """

    job: str
    now_ms: int
    starts: tuple[GenerationRecord, ...] = ()
    heard: Heartbeat | None = None
    last_heard_ms: int | None = None
    ended: EndedRecord | None = None
    waits: bool = False
    paused: PausedRecord | None = None
    """Somebody paused the job, which may run or not."""
    history: tuple[HistoryRow, ...] = ()
    savepoints: tuple[HistoryRow, ...] = ()
    """The newest that the job was asked for, those that are older than ``history`` too."""
    completions: tuple[CompletionRecord, ...] = ()
    committed: frozenset[int] = frozenset()
    abandoned: frozenset[tuple[int, str]] = frozenset()
    open_triggers: tuple[TriggerRecord, ...] = ()
    batches: tuple[BatchRecord, ...] = ()
    state: Mapping[str, UidSize] = field(default_factory=dict)
    """Of the newest complete checkpoint, by uid."""
    statistics: Mapping[str, Any] = field(default_factory=dict)
    durations_ms: tuple[int, ...] = ()
    """Of the newest completed checkpoints, oldest first."""
    sinks: tuple[SinkEntry, ...] = ()
    """As the newest start recorded them, without secrets."""
    failing: tuple[FailingSink, ...] = ()
    """Of the sinks of the newest start: how each failed last, if it ever did."""
    unnamed: Mapping[str, int] = field(default_factory=dict)
    """State files that nobody names, by uid; only where that was asked for."""
    problems: tuple[str, ...] = ()

    @property
    def newest(self) -> GenerationRecord | None:
        return self.starts[-1] if self.starts else None


class _Reader:
    """Passes over what cannot be read, and keeps why."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def __call__(self, what: str, read: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return read()
        except (CkptError, OSError) as error:
            self.problems.append(f"{what}: {error}")
            return otherwise


def facts_of(job: Job, newest: int = NEWEST, listing: bool = False) -> Facts:
    """Read ``job``'s folder; of its history the ``newest`` rows, or what is :data:`BRIEF` or :data:`METERED`.

    With ``listing`` also which state files nobody names: that lists all of them. Raises ``StorageUnavailableError`` for
    no answer at all, and nothing for what is damaged.
    """
    records, read = job.records, _Reader()
    starts = tuple(sorted(records.generations(), key=lambda g: g.generation))
    g = starts[-1].generation if starts else 0
    left = [b for b in read("heartbeats", lambda: heartbeats(records), list[Heartbeat]()) if b.generation == g]
    open_triggers = tuple(t for t in records.open_triggers() if t.generation == g)
    completions = tuple(records.completions())
    none: tuple[tuple[HistoryRow, ...], tuple[HistoryRow, ...]] = ((), ())
    no_sinks: tuple[SinkEntry, ...] = ()
    history, savepoints = read("history", lambda: _history(job, newest), none) if newest > 0 else none
    return Facts(
        job=job.name,
        now_ms=clock.now_ms(),
        starts=starts,
        heard=next(filter(beats, left), None),
        last_heard_ms=max((b.time_ms for b in left), default=None),
        ended=records.ended(g),
        waits=read("plan", lambda: records.plan(g) is not None and records.approved(g) is None, False),
        paused=job.paused(),
        history=history,
        savepoints=savepoints,
        completions=completions,
        committed=frozenset(records.ids("committed")),
        abandoned=read("abandoned", records.abandoned_pairs, frozenset()),
        open_triggers=open_triggers,
        batches=_batches(records, g, read, newest == METERED) if newest or open_triggers else (),
        state=_state(records, completions),
        statistics=job.statistics() if newest else {},
        durations_ms=tuple(read("statistics", lambda: read_durations_ms(records.store), list[int]())),
        sinks=read("sinks", lambda: recorded_sinks(records), no_sinks) if newest > 0 else (),
        failing=_failing(records, starts[-1]) if newest > 0 and starts else (),
        unnamed=read("state files", lambda: unnamed_files(records), dict[str, int]()) if listing else {},
        problems=tuple(dict.fromkeys(read.problems)),
    )


def _failing(records: JobRecords, start: GenerationRecord) -> tuple[FailingSink, ...]:
    found = (records.failing(sink) for sink in start.topology.sinks)
    return tuple(record for record in found if record is not None)


def history_row_of(job: Job, checkpoint: int) -> HistoryRow | None:
    """The row of ``checkpoint`` in the history, however old. Raises ``CorruptStorageError``."""
    return next(iter(_table(job).read(checkpoint=checkpoint)), None)


def _table(job: Job) -> History:
    return History(job.records.paths.history, job.config.storage_options())


def _history(job: Job, newest: int) -> tuple[tuple[HistoryRow, ...], tuple[HistoryRow, ...]]:
    """The newest rows, and those of savepoints."""
    table = _table(job)
    return tuple(table.read(newest)), tuple(table.read(SAVEPOINTS, savepoints=True))


def _state(records: JobRecords, completions: Sequence[CompletionRecord]) -> dict[str, UidSize]:
    return sizes_of(left_by(records, completions[-1])) if completions else {}


def _batches(records: JobRecords, generation: int, read: _Reader, newest: bool) -> tuple[BatchRecord, ...]:
    """Those that may have to do with checkpoints that are open; or the ``newest``, which has the figures of all."""
    names = sorted((n for n in records.store.names("batches") if batch_of(n)[2] == generation), key=batch_of)
    names = names[-1:] if newest else names
    found = [read("batches", lambda name=name: records.batch(name), None) for name in names]  # type: ignore[misc]
    return tuple(batch for batch in found if batch is not None)
