"""A translated job on tasks in this process: in place of Spark, its four kinds of stages and the shuffle between them.

The build context, the stages and what runs in them are those of production.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import TaskContext

from spark_ckpt.execution.build import BuildContext
from spark_ckpt.execution.chain import Chain, Recipe
from spark_ckpt.execution.lineage import SourceNode
from spark_ckpt.runtime.operations import Operation, Operations
from spark_ckpt.runtime.operator.operator import KeyedOperator
from spark_ckpt.runtime.source.reader import CkptStreamReader
from spark_ckpt.testing.jobs._rows import Pickled
from spark_ckpt.testing.jobs._world import World, in_no_task

Batches = list[pa.RecordBatch]
"""What one task of a stage gives."""


class Stage:
    """Of a plan: it stands where Spark's DataFrame does."""

    def groupBy(self, _route: str) -> _Routed:
        return _Routed(self)

    def union(self, other: Stage) -> Stage:
        return Union([self, other])

    def run(self, batch: Batch) -> list[Batches]:
        """What each task of it gives in a batch; once, whoever asks."""
        if self not in batch.made:
            batch.made[self] = self._run(batch)
        return batch.made[self]

    def _run(self, batch: Batch) -> list[Batches]:
        raise NotImplementedError


@dataclass
class Batch:
    """One batch of the query. ``offsets``: source -> where it begins and ends. ``state``: what the operators' tasks
    left in Spark's state store, and ``after`` what they leave now."""

    world: World
    number: int
    rng: random.Random
    task_failures: float
    offsets: dict[str, tuple[Any, Any]]
    state: dict[Any, Any]
    after: dict[Any, Any] = field(default_factory=dict)
    made: dict[Stage, list[Batches]] = field(default_factory=dict)

    def task(self, stage: str, partition: int, work: Any) -> Any:
        """``work`` as a task. Spark may run one twice, and drops what the first attempt gave."""
        with _as_task(partition, self.number):
            if self.task_failures and self.rng.random() < self.task_failures:
                work()
                self.world.reached(f"a task of {stage} failed at its end")
            return work()


@contextmanager
def _as_task(partition: int, batch: int) -> Iterator[None]:
    with in_no_task():
        task = TaskContext()
        task._partitionId, task._localProperties = partition, {"streaming.sql.batchId": str(batch)}
        task._attemptNumber = 0
        yield


@dataclass(eq=False)
class Read(Stage):
    """A source's tasks, with the operations behind it."""

    reader: CkptStreamReader
    operations: Pickled

    def _run(self, batch: Batch) -> list[Batches]:
        start, end = batch.offsets[self.reader.source.id]
        parts = list(self.reader.partitions(start, end))

        def work(part: Any) -> Any:
            return lambda: list(Operations(self.operations.copy())(self.reader.read(part)))

        return [batch.task(f"source {self.reader.source.id}", i, work(part)) for i, part in enumerate(parts)]


@dataclass(eq=False)
class Mapped(Stage):
    """Operations in the tasks of another stage."""

    behind: Stage
    operations: Pickled

    def _run(self, batch: Batch) -> list[Batches]:
        def work(rows: Batches) -> Any:
            return lambda: list(Operations(self.operations.copy())(iter(rows)))

        return [batch.task("mapInArrow", i, work(rows)) for i, rows in enumerate(self.behind.run(batch))]


@dataclass(eq=False)
class Union(Stage):
    """All tasks of several stages."""

    parts: Sequence[Stage]

    def _run(self, batch: Batch) -> list[Batches]:
        return [rows for part in self.parts for rows in part.run(batch)]


@dataclass
class _Routed:
    """Envelopes by their subtask."""

    packed: Stage

    def applyInPandasWithState(self, operator: KeyedOperator, *_: Any) -> Keyed:
        return Keyed(self.packed, operator)


@dataclass(eq=False)
class Keyed(Stage):
    """A keyed operator's subtasks behind the shuffle, which brings their envelopes in any order."""

    packed: Stage
    operator: KeyedOperator

    def __post_init__(self) -> None:
        self._pickled = Pickled(self.operator)

    def _run(self, batch: Batch) -> list[Batches]:
        uid, subtasks = self.operator.spec.uid, self.operator.spec.run.subtasks
        envelopes: dict[int, list[dict[str, Any]]] = {}
        for rows in self.packed.run(batch):
            for envelope in pa.Table.from_batches(rows).to_pylist() if rows else ():
                envelopes.setdefault(envelope["route"], []).append(envelope)
        out: list[Batches] = []
        for subtask, route in enumerate(subtasks.routes):
            found = envelopes.get(route, [])
            stored = batch.state.get((uid, subtask))
            if not found and (stored is None or not stored.is_due(batch.world.now_ms)):
                if stored is not None:
                    batch.after[uid, subtask] = stored
                out.append([])
                continue
            batch.rng.shuffle(found)
            state, made = batch.task(f"operator {uid}", subtask, self._call(route, found, stored, batch))
            batch.after[uid, subtask] = state
            out.append(made)
        return out

    def _call(self, route: int, found: list[dict[str, Any]], stored: Any, batch: Batch) -> Any:
        def work() -> tuple[GroupState, Batches]:
            state = GroupState(stored.value if stored is not None else None, batch.world.now_ms)
            frames = iter([pd.DataFrame({name: [e[name] for e in found] for name in ("head", "body")}, dtype=object)])
            made = list(self._pickled.copy()((route,), frames, state))
            return state, [_produced(frame) for frame in made]

        return work


_PRODUCED = pa.schema([("kind", pa.int32()), ("epoch", pa.int64()), ("body", pa.binary())])


def _produced(frame: pd.DataFrame) -> pa.RecordBatch:
    return pa.record_batch([pa.array(frame[f.name].to_numpy(), f.type) for f in _PRODUCED], schema=_PRODUCED)


class GroupState:
    """What Spark's state store keeps of a subtask."""

    def __init__(self, value: tuple[Any, ...] | None, now_ms: int) -> None:
        self.value, self._now_ms, self._due_ms = value, now_ms, None

    _due_ms: int | None

    @property
    def getOption(self) -> tuple[Any, ...] | None:
        return self.value

    def getCurrentProcessingTimeMs(self) -> int:
        return self._now_ms

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = value

    def setTimeoutDuration(self, duration_ms: int) -> None:
        self._due_ms = self._now_ms + duration_ms

    def is_due(self, now_ms: int) -> bool:
        return self._due_ms is not None and now_ms > self._due_ms


class _Same:
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return iter(batches)


class Wiring(BuildContext):
    """The build of a start whose stages run here. ``readers``: of each source."""

    readers: Mapping[str, CkptStreamReader]

    def chain(self, recipe: Recipe) -> Chain:
        made = super().chain(recipe)
        return made if made.open else made.then(_Same(), made.schema)

    def for_spark(self, chain: Chain) -> Any:
        return self.place(chain)

    def place(self, chain: Chain) -> Any:
        if isinstance(chain.head, SourceNode):
            return Read(self.readers[self._specs[chain.head].id], Pickled(chain.operations))
        return Mapped(chain.head, Pickled(chain.operations)) if chain.operations else chain.head


def last_stage(wiring: Wiring, root: Recipe) -> tuple[Stage, tuple[Operation, ...]]:
    """What the sink's writer gets, and the operations that it does first."""
    chain = wiring.chain(root)
    if isinstance(chain.head, SourceNode):
        return wiring.place(chain), ()
    return chain.head, chain.operations
