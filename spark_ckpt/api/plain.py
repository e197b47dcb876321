"""The plugin without the wrapper: ``readStream.format("ckpt")`` and ``writeStream.format("ckpt")``.

One ckpt source, the user's own stateless operations, one two-phase sink. The control columns are visible and must be
kept: no ``select`` may drop them and no filter may drop rows whose ``__ckpt_ctl`` is not null. Reader and writer only
see their own options, so both need ``dir``, ``job`` and ``checkpointLocation``.

The reader's driver process claims the generation when the query asks it for its first offset; it does not know the
sink. So what an earlier generation completed and did not commit is committed by the writer, before its first batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_ckpt.api.session import lane_count
from spark_ckpt.config import JobConfig, is_job_option
from spark_ckpt.errors import CkptError, ConfigError, ControlColumnsError
from spark_ckpt.jobs.committer import Committer
from spark_ckpt.jobs.heartbeat import FirstBeats
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.sink_records import record_sinks
from spark_ckpt.jobs.spec import RunSpec, SinkSpec, SourceSpec, job_url, with_absolute_dir
from spark_ckpt.jobs.start import JobPlan, absolute_options, begin
from spark_ckpt.names import checked_name
from spark_ckpt.protocol.records import GenerationRecord, Topology
from spark_ckpt.runtime.sink.writer import CkptStreamWriter, require_control_columns
from spark_ckpt.runtime.source.reader import CkptStreamReader, Offset
from spark_ckpt.runtime.source.trigger_coordinator import TriggerCoordinator
from spark_ckpt.runtime.stateless import arrow_schema, with_control
from spark_ckpt.sinks.registry import sink_class
from spark_ckpt.sources.base import open_source
from spark_ckpt.storage.filesystem import normalize_url
from spark_ckpt.storage.job_paths import JobPaths
from spark_ckpt.types import CONTROL_COLUMNS

_RESERVED = ("source", "sink", "uid", "checkpointlocation", "lanes")
_recorded: set[tuple[str, int]] = set()
"""Starts, by folder and generation, whose sink this process has recorded."""


class PlainDataSource(DataSource):
    """What Spark finds under the name ``ckpt``. Made from options only."""

    @classmethod
    def name(cls) -> str:
        return "ckpt"

    def schema(self) -> StructType:
        return with_control(self._opened(None).schema())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            _require_control(schema)
            inner = StructType([f for f in schema.fields if f.name not in CONTROL_COLUMNS])
            return PlainReader(*self._job(), self._source_spec(inner))
        except CkptError as e:
            return _RefusedReader(e)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        config, location = self._job()
        name = self.options.get("sink")
        if not name:
            raise ConfigError("writeStream.format('ckpt') needs option sink, such as delta, sql or files")
        own = {k: v for k, v in self.options.items() if not _is_ours(k)}
        uid, cls = checked_name("sink uid", self.options.get("uid", name)), sink_class(name)
        spec = SinkSpec(uid, cls, absolute_options(uid, cls, own))
        return PlainWriter(config, location, spec, schema)

    def _job(self) -> tuple[JobConfig, str]:
        given = {k: v for k, v in self.options.items() if is_job_option(k)}
        config = with_absolute_dir(JobConfig.from_options(given))
        if config.job is None:
            raise ConfigError("format('ckpt') needs option job, the job's name, on the reader and on the writer")
        location = self.options.get("checkpointlocation", JobPaths(job_url(config, config.job)).spark)
        return config, normalize_url(location)

    def _source_spec(self, schema: StructType | None) -> SourceSpec:
        inner = self.options.get("source")
        if not inner:
            raise ConfigError("readStream.format('ckpt') needs option source: files, rate or module:Class")
        own = {k: v for k, v in self.options.items() if not _is_ours(k)}
        lanes = lane_count(self.options.get("lanes")) or 2
        uid = checked_name("source uid", self.options.get("uid", f"{inner}-0"))
        return SourceSpec(uid, inner, own, schema, True, (), (), lanes)

    def _opened(self, schema: StructType | None) -> Any:
        config, _ = self._job()
        spec = self._source_spec(schema)
        url = JobPaths(job_url(config, str(config.job))).source(spec.id)
        return open_source(spec.inner, spec.options, schema, url, config.storage_options())


class _RefusedReader(DataSourceStreamReader):
    """Raises what is wrong when it is first asked.

    What ``streamReader`` itself raises is hidden behind an error of Spark's own, which stops a reader it has not got.
    """

    def __init__(self, error: CkptError) -> None:
        self._error = error

    def initialOffset(self) -> Offset:
        raise self._error

    def latestOffset(self, start: Offset, limit: Any) -> Offset:
        raise self._error

    def partitions(self, start: Offset, end: Offset) -> Any:
        raise self._error

    def read(self, partition: Any) -> Any:
        raise self._error


class PlainReader(CkptStreamReader):
    """Claims the generation on the driver, when it is first asked for an offset."""

    def __init__(self, config: JobConfig, location: str, source: SourceSpec) -> None:
        topology = Topology(config.max_parallelism, config.max_parallelism, (source.id,), {}, ())
        super().__init__(RunSpec(str(config.job), config, 0, 0, 1, None, None, topology, 1), source)
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
        self._coordinator()
        return super().partitions(start, end)


class PlainWriter(CkptStreamWriter):
    """Finds on the driver, with its first commit, the generation that the reader claimed."""

    def __init__(self, config: JobConfig, location: str, sink: SinkSpec, schema: StructType) -> None:
        require_control_columns(schema)
        topology = Topology(config.max_parallelism, config.max_parallelism, (), {}, ())
        data_schema = pa.schema([f for f in arrow_schema(schema) if f.name not in CONTROL_COLUMNS])
        super().__init__(RunSpec(str(config.job), config, 0, 0, 1, None, None, topology, 1), (sink,), data_schema)
        self._location = location
        # Made anew for each batch, on the driver, after the reader claimed its generation: tasks stage under its name.
        self._found = self._newest()
        if self._found is not None:
            self.run = replace(self.run, generation=self._found.generation, life=self._found.life)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._join()
        super().commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._join()
        super().abort(messages, batchId)

    def _join(self) -> None:
        """Take part in the reader's generation; the first time, commit what is complete and was not confirmed."""
        records = JobRecords(self.run.url, self.run.config)
        # As it was when the tasks began; a newer one, if there is one by now, fences the commit.
        newest = self._found or self._newest()
        if newest is None or newest.spark_location != self._location:
            raise ConfigError(
                f"the reader of job {self.run.job!r} expects the Spark checkpoint location "
                f"{newest.spark_location if newest else '(none: no ckpt reader of this job)'}, the query runs at "
                f"{self._location}; give reader and writer the same dir, job and checkpointLocation options"
            )
        self.run = replace(
            self.run,
            generation=newest.generation,
            origin=newest.origin,
            start_epoch=(newest.restored_from or 0) + 1,
            restored_from=newest.restored_from,
            topology=newest.topology,
            life=newest.life,
        )
        if (self.run.url, self.run.generation) not in _recorded:
            _recorded.add((self.run.url, self.run.generation))
            record_sinks(records, self.sinks)
        completions = records.completions()
        committed = records.confirmed(c.checkpoint for c in completions)
        open_ = [c for c in completions if c.checkpoint not in committed]
        if open_:
            committer = Committer(self.run, self.sinks)
            committer.publish(open_)

    def _newest(self) -> GenerationRecord | None:
        records = JobRecords(self.run.url, self.run.config)
        known = records.ids("generations")
        return records.generation(max(known)) if known else None


def _require_control(schema: StructType) -> None:
    missing = [c for c in CONTROL_COLUMNS if c not in schema.fieldNames()]
    if missing:
        raise ControlColumnsError(
            f"readStream.format('ckpt').schema(...) has no column(s) {missing}; expected the source's columns and "
            f"__ckpt_tag long, __ckpt_ctl binary behind them, found {schema.fieldNames()}. Add them, or leave "
            ".schema(...) out"
        )


def _is_ours(key: str) -> bool:
    return key.lower() in _RESERVED or is_job_option(key)
