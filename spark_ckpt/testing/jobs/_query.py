"""One start of a job under test: the loop that Spark runs for a query, around production's start, readers and commit.

Offsets are logged before a batch runs and the commit log is written behind the sink's commit, so a start repeats the
last batch that was planned with the same offsets, on the state of the batch before it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from spark_ckpt.config import JobConfig
from spark_ckpt.execution.build import name_operators, name_sources, query_topology, source_specs
from spark_ckpt.execution.event_time import without_notes
from spark_ckpt.execution.lineage import SourceNode
from spark_ckpt.jobs.committer import Committer
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.start import JobPlan, begin, checked_sinks
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.runtime.sink.writer import CkptStreamWriter, _gather
from spark_ckpt.runtime.source.reader import CkptStreamReader
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.spark_versions.read_limits import ReadMaxRows
from spark_ckpt.testing.jobs._frames import Frame
from spark_ckpt.testing.jobs._rows import Pickled
from spark_ckpt.testing.jobs._wiring import Batch, Stage, Wiring, last_stage
from spark_ckpt.testing.jobs._world import World
from spark_ckpt.testing.simulation.durable import Location, url

JOB = "job"
_LIMIT = ReadMaxRows(2**31 - 1)


class _Reader(CkptStreamReader):
    """Without what it does for a process of its own: the end of one here is a crash."""

    def _say_that_it_lives(self, records: JobRecords) -> None:
        pass


@dataclass(frozen=True)
class Wanted:
    """What is to run. ``frame`` is what the sink gets, ``sink`` its class, or name, and options."""

    frame: Frame
    sink: tuple[Any, dict[str, str]]
    config: JobConfig
    tasks: int
    mode: str

    @property
    def output(self) -> pa.Schema:
        return arrow_schema(without_notes(self.frame.schema))


class Query:
    """Driver of one start."""

    def __init__(
        self, world: World, location: Location, wanted: Wanted, rng: random.Random, task_failures: float = 0.0
    ) -> None:
        self.world, self.location, self.wanted = world, location, wanted
        self._rng, self._task_failures = rng, task_failures
        rows = wanted.frame._rows
        self._lineage = rows.lineage.in_mode(wanted.mode)
        self._sources = name_sources(self._lineage)
        self._uids = name_operators(self._lineage, self._sources)
        self._sinks = checked_sinks([wanted.sink], replacing=wanted.mode == "complete")
        self.run = begin(self._plan())
        self._by_clock = any(o.timeout == "ProcessingTimeTimeout" for o in self._lineage.operators)
        self._committer = Committer(self.run, self._sinks)
        self._specs = source_specs(self.run, self._lineage, self._sources, self._uids)
        self.readers = {spec.id: _Reader(self.run, spec) for spec in self._specs.values()}
        self._stage, operations = self._built()
        self._writer = Pickled(CkptStreamWriter(self.run, self._sinks, wanted.output, operations))
        self._initial = {name: r.initialOffset() for name, r in self.readers.items()}
        if location.planned > location.committed:
            self._batch(location.planned)

    def available_now(self) -> None:
        for reader in self.readers.values():
            reader.prepareForTriggerAvailableNow()

    def poll(self) -> bool:
        """Look for something new, and run a batch if there is; whether there was."""
        number = self.location.planned + 1
        start = self._start(number)
        end = {name: r.latestOffset(start[name], _LIMIT) for name, r in self.readers.items()}
        if end == start and not (self._by_clock and self._is_due()):
            return False
        self.world.reached("before Spark logs the batch")
        self.location.plan(number, end)
        self.world.reached("after Spark logged the batch")
        if number:
            for name, r in self.readers.items():
                r.commit(start[name])
        self._batch(number)
        return True

    def stop(self) -> None:
        for r in self.readers.values():
            r.stop()

    def _is_due(self) -> bool:
        state = self.location.state(self.location.committed)
        return any(s.is_due(self.world.now_ms) for s in state.values())

    def _start(self, number: int) -> dict[str, Any]:
        return self.location.offsets(number - 1, self.readers) or self._initial

    def _plan(self) -> JobPlan:
        wanted = self.wanted
        groups = wanted.config.max_parallelism
        tables = {t: la.table_schema for node, uid in self._uids.items() for t, la in node.tables(uid).items()}
        return JobPlan(
            JOB,
            wanted.config,
            url(self.location.path),
            query_topology(self._lineage, self._sources, self._sinks, groups, self._uids, wanted.mode),
            self._sinks,
            wanted.output,
            tables,
            wanted.tasks,
            own_location=lambda generation: url(f"spark-of-{generation}"),
        )

    def _built(self) -> tuple[Stage, tuple[Operation, ...]]:
        rows = self.wanted.frame._rows
        mode = self.wanted.mode
        told = self._lineage.told_watermarks
        wiring = Wiring(None, JOB, self.run, self._specs, rows.recipe, mode, self._uids, told)
        wiring.readers = self.readers
        return last_stage(wiring, rows.recipe)

    def _batch(self, number: int) -> None:
        start, end = self._start(number), self.location.offsets(number, self.readers)
        offsets = {name: (start[name], end[name]) for name in start}
        before = self.location.state(number - 1)
        batch = Batch(self.world, number, self._rng, self._task_failures, offsets, before)
        messages = [batch.task("sink", i, task) for i, task in enumerate(self._writes(batch))]
        staged, events = _gather(messages)
        self.world.reached("before Spark's state store is written")
        self.location.store(number, {**before, **batch.after})
        self._committer.commit(number, staged, events)
        self.world.reached("before Spark commits the batch")
        self.location.commit(number)
        self.world.reached("after Spark committed the batch")

    def _writes(self, batch: Batch) -> Iterator[Callable[[], Any]]:
        for rows in self._stage.run(batch):
            yield partial(self._written, rows)

    def _written(self, rows: list[pa.RecordBatch]) -> Any:
        writer: CkptStreamWriter = self._writer.copy()
        return writer.write(iter(rows))


def source_node(name: str, cls: Any, schema: Any) -> SourceNode:
    return SourceNode(cls, {}, schema, name, None)
