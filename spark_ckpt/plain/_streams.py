"""Reader and writer of ``format("ckpt")``: each finds the job's start by the job's folder, as neither knows the other.

The reader's driver process claims the generation when the query asks it for its first offset; it does not know the
sinks. So what an earlier generation completed and did not commit is committed by the writer, before its first batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError
from spark_ckpt.jobs.committer import Committer
from spark_ckpt.jobs.compared_sinks import compare_sinks
from spark_ckpt.jobs.heartbeat import FirstBeats
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.sink_records import end_open, record_sinks
from spark_ckpt.jobs.spark_folder import SparkFolder
from spark_ckpt.jobs.spec import RunSpec, SinkSpec, SourceSpec, sink_place
from spark_ckpt.jobs.start import JobPlan, begin, validate_sinks
from spark_ckpt.protocol.records import GenerationRecord, Topology
from spark_ckpt.runtime.sink.writer import CkptStreamWriter, StagedMessage, require_control_columns
from spark_ckpt.runtime.source.reader import CkptStreamReader, LanePartition, Offset
from spark_ckpt.runtime.source.trigger_coordinator import TriggerCoordinator
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.types import CONTROL_COLUMNS

_READ_BY = b"\0generation:"
_checked: set[tuple[str, int]] = set()
"""Starts, by folder and generation, whose sinks this process has validated."""
_joined: set[tuple[str, int]] = set()
"""Starts whose sinks this process has recorded, and whose query it has seen to run where the reader said."""


class RefusedReader(DataSourceStreamReader):
    """Raises what is wrong when it is first asked.

    What ``streamReader`` itself raises is hidden behind an error of Spark's own, which stops a reader it has not got.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> Offset:
        raise self._error

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:
        """Spark before 4.2 says neither."""
        raise self._error

    def partitions(self, start: Offset, end: Offset) -> Any:
        raise self._error

    def read(self, partition: Any) -> Any:
        raise self._error


class PlainReader(CkptStreamReader):
    """Claims the generation on the driver, when it is first asked for an offset."""

    def __init__(self, config: JobConfig, location: str, source: SourceSpec) -> None:
        topology = Topology(config.max_parallelism, config.max_parallelism, (source.id,), {}, ())
        lanes = config.lanes or source.lanes
        run = RunSpec(str(config.job), config, 0, 0, 1, None, None, topology, 1)
        super().__init__(run, replace(source, lanes=lanes))
        self._location = location

    def _coordinator(self) -> TriggerCoordinator:
        if self._triggers is None:
            run = self.run
            plan = JobPlan(run.job, run.config, self._location, run.topology, (), pa.schema([]), sinks_known=False)
            with FirstBeats() as beats:
                self.run = begin(plan, beats.on_claim)
            beats.stop()
        return super()._coordinator()

    def partitions(self, start: Offset, end: Offset) -> Any:
        """The rows of a batch say in a control row of their own whose they are; the writer keeps it to itself."""
        self._coordinator()
        parts = super().partitions(start, end)
        if parts:
            assert isinstance(parts[0], LanePartition)
            parts[0].events = (*parts[0].events, _READ_BY + str(self.run.generation).encode())
        return parts


@dataclass
class PlainMessage(StagedMessage):
    """``query``: Spark's id of the query, which only a task can tell. ``generations``: those of the rows' readers."""

    query: str | None
    generations: tuple[int, ...]


class PlainWriter(CkptStreamWriter):
    """Finds on the driver the generation that the reader claimed.

    Made anew for each batch, behind the reader's claim: to plan the batch, and again to commit it.
    """

    def __init__(self, config: JobConfig, location: str, sinks: tuple[SinkSpec, ...], schema: StructType) -> None:
        require_control_columns(schema)
        data_schema = pa.schema([f for f in arrow_schema(schema) if f.name not in CONTROL_COLUMNS])
        topology = Topology(config.max_parallelism, config.max_parallelism, (), {}, ())
        run = RunSpec(str(config.job), config, 0, 0, 1, None, None, topology, 1)
        newest = _newest(run)
        if newest is None or newest.spark_location != location:
            raise ConfigError(
                f"the reader of job {run.job!r} expects the Spark checkpoint location "
                f"{newest.spark_location if newest else '(none: no ckpt reader of this job)'}, the query runs at "
                f"{location}; give reader and writer the same dir, job and checkpointLocation options"
            )
        super().__init__(_of_generation(run, newest), sinks, data_schema)
        self._location = location
        if self._start not in _checked:
            validate_sinks(sinks, sink_place(config, str(config.job)), data_schema)
            compare_sinks(self.run, sinks)
            _checked.add(self._start)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        done, task = super().write(iterator), TaskContext.get()
        said = [e for e in done.events if e.startswith(_READ_BY)]
        events = tuple(e for e in done.events if e not in said)
        query = task and task.getLocalProperty("sql.streaming.queryId")
        found = tuple(int(e[len(_READ_BY) :]) for e in said)
        return PlainMessage(done.staged, events, query, found, rows=done.rows)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        told = [m for m in messages if isinstance(m, PlainMessage)]
        self._refuse_others({g for m in told for g in m.generations})
        if self._start not in _joined:
            self._join({m.query for m in told if m.query})
        super().commit(messages, batchId)

    def _refuse_others(self, generations: set[int]) -> None:
        """Each reader claims a generation of its own, and the writer found the newest one's."""
        if generations - {self.run.generation}:
            raise ConfigError(
                f"job {self.run.job!r}: the newest start is {self.run.generation}, and rows came from the readers of "
                f"{sorted(generations)}. If a newer start of the job has taken over, this query has to end. If the "
                "query has several ckpt readers: a plain stream has one; read both by ckpt.readStream, with "
                "ckpt = spark_ckpt.enable(spark)"
            )

    @property
    def _start(self) -> tuple[str, int]:
        return self.run.url, self.run.generation

    def _join(self, queries: set[str]) -> None:
        """Take part in the reader's generation: record the sinks, commit what is complete and was not confirmed."""
        known = SparkFolder(self._location, self.run.config).query_id()
        if queries and known not in queries:
            raise ConfigError(
                f"job {self.run.job!r}: the query does not run at the Spark checkpoint location {self._location}, "
                "where its reader looked for what ran before. Give reader and writer the location by option "
                "checkpointLocation; or, where spark.sql.streaming.checkpointLocation says it, the query the job's name"
            )
        records = JobRecords(self.run.url, self.run.config)
        record_sinks(records, self.sinks)
        completions = records.completions()
        committed = records.confirmed(c.checkpoint for c in completions)
        open_ = [c for c in completions if c.checkpoint not in committed]
        if open_:
            Committer(self.run, self.sinks).publish(open_)
        end_open(records, self.run.config, self.run.job, self.sinks, self.run.generation)
        # Stopped anywhere before: the next process, or the next start, does it again, which changes nothing.
        _joined.add(self._start)


def _newest(run: RunSpec) -> GenerationRecord | None:
    records = JobRecords(run.url, run.config)
    known = records.ids("generations")
    return records.generation(max(known)) if known else None


def _of_generation(run: RunSpec, newest: GenerationRecord) -> RunSpec:
    return replace(
        run,
        generation=newest.generation,
        origin=newest.origin,
        start_epoch=(newest.restored_from or 0) + 1,
        restored_from=newest.restored_from,
        topology=newest.topology,
        life=newest.life,
    )
