"""What a job's checkpoints were like since it began: counts and distributions, in one small record.

A report: recovery never reads it, and what is wrong with it costs nothing but figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.storage.distribution import Metrics, add_all, metrics_from_json, metrics_to_json
from spark_ckpt.storage.job_paths import STATISTICS_RECORD
from spark_ckpt.storage.record_store import RecordStore

_KIND = "statistics"

_REMEMBERED = 512
_DURATIONS = 60
_RESTORES = 20


@dataclass
class OperatorStatistics:
    """Of one operator: all of it, and each of its subtasks."""

    metrics: Metrics = field(default_factory=dict)
    subtasks: dict[int, Metrics] = field(default_factory=dict)


@dataclass(frozen=True)
class Restored:
    """The start of ``generation`` went on from ``checkpoint``, in ``took_ms`` from its beginning to the end of its
    first batch."""

    generation: int
    checkpoint: int
    started_ms: int
    took_ms: int


@dataclass(frozen=True)
class Sample:
    """What one completed checkpoint was like: in all, by operator, and by operator and subtask. ``batch``: in which it
    completed."""

    job: Mapping[str, int]
    operators: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    subtasks: Mapping[str, Mapping[int, Mapping[str, int]]] = field(default_factory=dict)
    batch: int = -1


@dataclass
class Statistics:
    """``outcomes`` counts checkpoints by how they ended. Each is counted once: ``counted`` are the newest ids that
    were, and all up to ``floor`` are taken for it. ``newest``: the batch in which the newest one completed, and what it
    was like in all. ``durations_ms``: of the newest completed ones, oldest first."""

    since_ms: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    job: Metrics = field(default_factory=dict)
    operators: dict[str, OperatorStatistics] = field(default_factory=dict)
    restores: int = 0
    restored: list[Restored] = field(default_factory=list)
    counted: set[int] = field(default_factory=set)
    floor: int = 0
    newest: tuple[int, Mapping[str, int]] | None = None
    durations_ms: list[int] = field(default_factory=list)

    def lacks(self, checkpoint: int) -> bool:
        """Whether ``checkpoint`` was not counted yet."""
        return checkpoint > self.floor and checkpoint not in self.counted

    def add(self, checkpoint: int, outcome: str, sample: Sample | None = None) -> bool:
        """Count ``checkpoint`` unless it was counted before; returns whether it was not."""
        if not self.lacks(checkpoint):
            return False
        self.counted.add(checkpoint)
        if len(self.counted) > _REMEMBERED:
            self.floor = min(self.counted)
            self.counted.discard(self.floor)
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if sample is not None:
            self._add(sample)
        return True

    def _add(self, sample: Sample) -> None:
        self.newest = sample.batch, sample.job
        self.durations_ms = [*self.durations_ms, sample.job["duration_ms"]][-_DURATIONS:]
        add_all(self.job, sample.job)
        for uid, values in sample.operators.items():
            add_all(self.operators.setdefault(uid, OperatorStatistics()).metrics, values)
        for uid, parts in sample.subtasks.items():
            known = self.operators.setdefault(uid, OperatorStatistics()).subtasks
            for subtask, values in parts.items():
                add_all(known.setdefault(subtask, {}), values)

    def add_restored(self, restored: Restored) -> bool:
        """Count a restore, once a generation; only the newest ones are kept one by one."""
        if any(r.generation >= restored.generation for r in self.restored):
            return False
        self.restores += 1
        self.restored = [*self.restored, restored][-_RESTORES:]
        return True

    def to_json(self) -> dict[str, Any]:
        return {
            "since_ms": self.since_ms,
            "outcomes": self.outcomes,
            "job": metrics_to_json(self.job),
            "operators": {uid: _operator_to_json(o) for uid, o in self.operators.items()},
            "restores": self.restores,
            "restored": [asdict(r) for r in self.restored],
            "counted": sorted(self.counted),
            "floor": self.floor,
            "newest": self.newest,
            "durations_ms": self.durations_ms,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Statistics:
        return cls(
            value["since_ms"],
            dict(value["outcomes"]),
            metrics_from_json(value["job"]),
            {uid: _operator_from_json(o) for uid, o in value["operators"].items()},
            value["restores"],
            [Restored(**r) for r in value["restored"]],
            set(value["counted"]),
            value["floor"],
            _newest(value.get("newest")),
            _durations_ms(value),
        )


def _newest(value: Any) -> tuple[int, Mapping[str, int]] | None:
    if value is None:  # of an older release, or of none
        return None
    batch, sample = value
    return int(batch), dict(sample)


def _durations_ms(value: Mapping[str, Any]) -> list[int]:
    return list(map(int, value.get("durations_ms", ())))  # none in those of an older release


def read_durations_ms(store: RecordStore) -> list[int]:
    """How long the newest completed checkpoints took, oldest first. Raises ``CorruptStorageError``."""
    try:
        return _durations_ms(store.read(STATISTICS_RECORD, _KIND) or {})
    except (TypeError, ValueError):
        raise CorruptStorageError(f"{STATISTICS_RECORD} is damaged: expected durations, found something else") from None


def read_statistics(store: RecordStore) -> Statistics | None:
    """The job's statistics; None if there are none. Raises ``CorruptStorageError``."""
    body = store.read(STATISTICS_RECORD, _KIND)
    return None if body is None else Statistics.from_json(body)


def write_statistics(store: RecordStore, statistics: Statistics) -> None:
    """Replace the record. Not synced: a power loss may cost the newest figures."""
    store.replace(STATISTICS_RECORD, _KIND, statistics.to_json(), durable=False)


def _operator_to_json(operator: OperatorStatistics) -> dict[str, Any]:
    subtasks = {str(n): metrics_to_json(m) for n, m in sorted(operator.subtasks.items())}
    return {"metrics": metrics_to_json(operator.metrics), "subtasks": subtasks}


def _operator_from_json(value: Mapping[str, Any]) -> OperatorStatistics:
    subtasks = {int(n): metrics_from_json(m) for n, m in value["subtasks"].items()}
    return OperatorStatistics(metrics_from_json(value["metrics"]), subtasks)
