"""Keeps the statistics of a job's checkpoints, and tells them. Driver, commit process and whoever asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.jobs.records import JobRecords, report
from spark_ckpt.protocol.pending import merge_stats
from spark_ckpt.protocol.records import CompletionRecord, GenerationRecord
from spark_ckpt.protocol.steps import AppendHistory
from spark_ckpt.storage.distribution import Metrics
from spark_ckpt.storage.history import HistoryRow
from spark_ckpt.storage.manifest import StateManifest
from spark_ckpt.storage.statistics import Restored, Sample, Statistics, read_statistics, write_statistics

_NAMES = {"held_bytes": "held_back_bytes", "rows": "written_rows", "size_bytes": "written_bytes"}
"""What acknowledgements call differently from the history."""

PHASES = (
    "start_delay_ms", "alignment_ms", "flush_ms", "write_ms", "acknowledge_ms", "commit_state_ms", "commit_sinks_ms"
)  # fmt: skip
"""In order: from the trigger until the first barrier reaches an operator; until the last one does; merging and encoding
what changed; writing it; from the trigger until everybody has acknowledged; the driver's commit of state tables; and
of the sinks, a savepoint included. Those of a task that was measured in front of a shuffle are not known: what is
shuffled must be the same in every attempt."""


class StatisticsKeeper:
    """One job's statistics in the process that commits. Reads the record once, and writes it after every checkpoint."""

    def __init__(self, records: JobRecords) -> None:
        self._records = records
        self._statistics: Statistics | None = None

    def completed(self, step: AppendHistory, row: HistoryRow, left: Sequence[StateManifest]) -> None:
        self._add(step.checkpoint, step.outcome, sample(step, row, left), row.triggered_ms)

    def aborted(self, step: AppendHistory) -> None:
        self._add(step.checkpoint, step.outcome, None, step.triggered_ms or step.ended_ms)

    def restored(self, start: GenerationRecord, now_ms: int) -> None:
        """The first batch of a Spark location that began from a checkpoint is committed."""
        assert start.restored_from is not None
        statistics = self._loaded(start.started_ms)
        took_ms = max(0, now_ms - start.started_ms)
        if statistics.add_restored(Restored(start.generation, start.restored_from, start.started_ms, took_ms)):
            write_statistics(self._records.store, statistics)

    def newest_phases(self) -> dict[int, dict[str, int]]:
        """As :func:`newest_phases`, of what this process knows."""
        return _phases_of(self._statistics)

    def _add(self, checkpoint: int, outcome: str, found: Sample | None, since_ms: int) -> None:
        statistics = self._loaded(since_ms)
        if statistics.add(checkpoint, outcome, found):
            write_statistics(self._records.store, statistics)

    def _loaded(self, since_ms: int) -> Statistics:
        if self._statistics is None:
            self._statistics = _read(self._records) or Statistics(since_ms)
            # Given up by a source whose process ended before anybody counted it.
            _count_missing(self._records, self._statistics)
        return self._statistics


def sample(step: AppendHistory, row: HistoryRow, left: Sequence[StateManifest]) -> Sample:
    """What a completed checkpoint was like. ``left``: the state it left, the full size."""
    operators = {uid: _named(values) for uid, values in step.stats.items()}
    for manifest in left:
        operators.setdefault(manifest.uid, {})["full_bytes"] = manifest.size_bytes
    job = {"duration_ms": row.duration_ms or 0, "acknowledge_ms": max(0, step.ended_ms - row.triggered_ms)}
    job |= row.phases["driver"]
    for values in operators.values():
        job = merge_stats(job, values)
    subtasks = {uid: {n: _named(v) for n, v in parts.items()} for uid, parts in step.subtasks.items()}
    return Sample(job, operators, subtasks, row.batch)


def _named(values: Mapping[str, int]) -> dict[str, int]:
    return {_NAMES.get(name, name): value for name, value in values.items()}


def _read(records: JobRecords) -> Statistics | None:
    try:
        return read_statistics(records.store)
    except (CorruptStorageError, KeyError, TypeError, ValueError) as damage:
        report(damage if isinstance(damage, CorruptStorageError) else CorruptStorageError("statistics.json is damaged"))
        return None  # they begin anew


def _count_missing(records: JobRecords, statistics: Statistics) -> None:
    for k in filter(statistics.lacks, records.ids("aborted")):
        found = records.aborted(k)
        if found is not None:
            statistics.add(k, found.cause)


def newest_phases(records: JobRecords) -> dict[int, dict[str, int]]:
    """How long the phases of the newest completed checkpoint took, by the batch in which it completed. Raises
    ``StorageUnavailableError``."""
    return _phases_of(_read(records))


def _phases_of(statistics: Statistics | None) -> dict[int, dict[str, int]]:
    if statistics is None or statistics.newest is None:
        return {}
    batch, sample = statistics.newest
    return {batch: {name: sample[name] for name in ("duration_ms", *PHASES) if name in sample}}


def tell(records: JobRecords) -> dict[str, Any]:
    """The statistics as plain values, those of the last moment included."""
    statistics = _read(records) or Statistics()
    _count_missing(records, statistics)
    for k in filter(statistics.lacks, records.ids("checkpoints")):
        if isinstance(records.readable_checkpoint(k), CompletionRecord):
            statistics.add(k, "completed")
    pending = _pending(records)
    counts = {"completed": 0, **statistics.outcomes, "pending": len(pending), "restored": statistics.restores}
    return {
        "since_ms": statistics.since_ms or None,
        "counts": counts,
        "checkpoints": _told(statistics.job),
        "operators": {
            uid: {"all": _told(o.metrics), "subtasks": {n: _told(m) for n, m in sorted(o.subtasks.items())}}
            for uid, o in sorted(statistics.operators.items())
        },
        "restored": [_restored(r, records.ids("generations")) for r in statistics.restored],
        "pending": pending,
    }


def _pending(records: JobRecords) -> list[dict[str, Any]]:
    """Of the newest start: what an earlier one triggered and did not complete is over."""
    newest = max(records.ids("generations"), default=0)
    return [
        {"id": t.checkpoint, "kind": t.kind, "triggered_ms": t.time_ms}
        for t in records.open_triggers()
        if t.generation == newest
    ]


def _restored(restored: Restored, generations: Iterable[int]) -> dict[str, Any]:
    starts = {g: n for n, g in enumerate(sorted(generations), 1)}
    return {
        "start": starts.get(restored.generation),
        "generation": restored.generation,
        "checkpoint": restored.checkpoint,
        "started_ms": restored.started_ms,
        "took_ms": restored.took_ms,
    }


def _told(metrics: Metrics) -> dict[str, Any]:
    return {name: d.summary() for name, d in metrics.items()}
