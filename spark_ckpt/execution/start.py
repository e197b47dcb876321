"""Starting a query on Spark: what is asked for becomes a job's plan, the job begins, Spark gets the query. Driver."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from spark_ckpt.config import JobConfig
from spark_ckpt.execution._memory_table import make_table, with_folder
from spark_ckpt.execution._source_starts import check_starting_from, find_ends, find_offset, open_reader
from spark_ckpt.execution._spark_location import (
    as_spark_writes,
    event_time_rule,
    files_at,
    own_location,
    spark_location,
)
from spark_ckpt.execution.batch_functions import (
    BatchFunction,
    as_sinks,
    deliverer_of,
    error_of,
    thread_of,
    with_functions_last,
)
from spark_ckpt.execution.build import (
    BuildContext,
    name_operators,
    name_sources,
    name_streams,
    query_topology,
    sink_input,
    source_specs,
)
from spark_ckpt.execution.job_graph import JobGraph
from spark_ckpt.execution.lineage import Lineage, OperatorNode, SourceNode, SparkStreamNode
from spark_ckpt.execution.rewriting import StateFunctions, write_rows
from spark_ckpt.execution.session_confs import SessionConfs, no_data_batches, spark_path
from spark_ckpt.execution.spark_errors import ConfigRefusedAsInSparkError, already_active
from spark_ckpt.execution.spark_stream_rows import in_order
from spark_ckpt.jobs.batch_reports import remember_run
from spark_ckpt.jobs.delivering import Deliverer
from spark_ckpt.jobs.ending import watch_end
from spark_ckpt.jobs.heartbeat import FirstBeats
from spark_ckpt.jobs.log_lines import log_as
from spark_ckpt.jobs.spark_folder import SparkFolder, one_spelling
from spark_ckpt.jobs.spec import RunSpec, SinkSpec, job_url, with_absolute_dir, with_job_storage
from spark_ckpt.jobs.start import JobPlan, begin, checked_sinks, dry_run
from spark_ckpt.names import name_of_location
from spark_ckpt.protocol.migration import Migration
from spark_ckpt.protocol.records import Edge, Topology
from spark_ckpt.protocol.restore_plan import RestorePlan
from spark_ckpt.protocol.rewriting import with_rewrites
from spark_ckpt.runtime.datasource import sink_class_of
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.sources.base import InnerReader, finds_within_s
from spark_ckpt.spark_versions import spark_version
from spark_ckpt.state.lsm.written_rows import WrittenRows

_log = logging.getLogger("spark_ckpt")


@dataclass(frozen=True)
class StartRequest:
    """What ``writeStream...start()`` was asked for."""

    df: Any
    sinks: list[tuple[Any, dict[str, str]]]
    job_options: dict[str, str]
    query_name: str | None
    location: str | None
    trigger: dict[str, Any]
    output_mode: str = "append"


@dataclass(frozen=True)
class Running:
    """Spark's query, what runs, what it writes to, and what calls functions of this process."""

    query: Any
    run: RunSpec
    sinks: tuple[SinkSpec, ...]
    deliverer: Deliverer | None
    open_reader: Callable[[str], InnerReader]
    """A reader of the source of this uid, beside the query's."""
    finds_within_s: float = 0.0
    """What is there now is found by all sources after so long at most."""


@dataclass(frozen=True)
class _Asked:
    """What is asked for, with names for all that takes part."""

    spark: Any
    config: JobConfig
    job: str
    lineage: Lineage
    sources: dict[SourceNode, str]
    streams: dict[SparkStreamNode, str]
    uids: dict[OperatorNode, str]
    sinks: tuple[SinkSpec, ...]
    functions_last: list[tuple[Any, dict[str, str]]]
    location: str
    """Spark's own, as it was given."""
    output_mode: str
    migrations: tuple[Migration, ...]
    functions: StateFunctions
    """What writes state anew."""
    edges: tuple[Edge, ...]

    @classmethod
    def of(cls, request: StartRequest) -> _Asked:
        spark, lineage = request.df._session.spark, request.df._lineage.in_mode(request.output_mode)
        config, job = _job_config(request)
        requests = with_functions_last(request.sinks)
        asked = with_folder(as_sinks(requests, config, job, request.df.schema), job_url(config, job))
        checked = checked_sinks(asked, replacing=request.output_mode == "complete")
        sources = name_sources(lineage)
        check_starting_from(sources, config)
        uids = name_operators(lineage, sources, config.require_uid)
        return cls(
            spark,
            config,
            job,
            lineage,
            sources,
            name_streams(lineage),
            uids,
            tuple(with_job_storage(sink, config) for sink in checked),
            requests,
            spark_location(spark, request.location, config, job),
            request.output_mode,
            request.df._session.migrations.steps(),
            request.df._session.migrations.functions,
            JobGraph(request.df._last, sources, uids).edges(checked),
        )

    def spelled(self, location: str) -> str:
        """``location``, as records have it, as Spark is to get it."""
        given = location == one_spelling(self.location)
        return self.location if given else as_spark_writes(self.spark, location, self.config, self.job)

    def topology(self) -> Topology:
        key_groups, asked = self.config.max_parallelism, self.config.starting_from
        made = query_topology(self.lineage, self.sources, self.sinks, key_groups, self.uids, self.output_mode, asked)
        return with_rewrites(made, self.migrations)

    def forms(self) -> dict[str, WrittenRows]:
        """State table -> the form of its rows."""
        groups = self.config.max_parallelism
        return {t: form for node, uid in self.uids.items() for t, form in _forms(node, uid, groups).items()}

    def plan(self, output: pa.Schema) -> JobPlan:
        can_move = all(stream.takes_position for stream in self.streams)
        tables = {t: layout.table_schema for node, uid in self.uids.items() for t, layout in node.tables(uid).items()}
        return JobPlan(
            self.job,
            self.config,
            one_spelling(self.location),
            self.topology(),
            self.sinks,
            output,
            tables,
            int(self.spark.conf.get("spark.sql.shuffle.partitions")),
            files_at=lambda at: files_at(self.spark, self.spelled(at)),
            own_location=partial(own_location, self.spark, self.location, self.config, self.job) if can_move else None,
            migrations=self.migrations,
            find_offset=partial(find_offset, self.sources, self.config, self.job),
            write_rows=partial(write_rows, self.spark, self.forms(), self.functions),
            edges=self.edges,
        )


@dataclass(frozen=True)
class QueryState:
    """What the checkpoints of a query consist of: ``nodes`` are its keyed operators, ``tables`` the state tables of
    each with the form of their rows, ``sources`` its own, by uid."""

    config: JobConfig
    topology: Topology
    nodes: dict[str, OperatorNode]
    tables: dict[str, dict[str, WrittenRows]]
    sources: dict[str, SourceNode]
    watermarks: dict[str, tuple[str, ...]]
    """The streams that have one, of each operator."""


def query_state(request: StartRequest) -> QueryState:
    """What a start of the query would keep, without a start: for whoever writes state. Raises as a start does ahead of
    everything."""
    asked = _Asked.of(request)
    tables = {uid: _forms(node, uid, asked.config.max_parallelism) for node, uid in asked.uids.items()}
    nodes = {uid: node for node, uid in asked.uids.items()}
    sources = {uid: node for node, uid in asked.sources.items()}
    # As a build names them, which meets them in the order of the plan.
    watermarks = {uid: tuple(_streams(asked.lineage, node)) for uid, node in nodes.items()}
    return QueryState(asked.config, replace(asked.topology(), begins={}), nodes, tables, sources, watermarks)


def _streams(lineage: Lineage, node: OperatorNode) -> Iterator[str]:
    """The streams with a watermark that reach ``node``. Copies of one ``withWatermark`` are one stream."""
    for number, one in enumerate(dict.fromkeys(w.one for w in lineage.watermarks), 1):
        copies = [w for w in lineage.watermarks if w.one is one]
        if any(set(w.sources) & set(node.upstream) for w in copies):
            yield f"{copies[0].column}#{number}"


def _forms(node: OperatorNode, uid: str, key_groups: int) -> dict[str, WrittenRows]:
    own = len(node.layout.key_schema)
    return {t: WrittenRows(la, key_groups, None if t == uid else own) for t, la in node.tables(uid).items()}


def plan_restore(request: StartRequest, with_sinks: bool = True, samples: int = 0) -> RestorePlan:
    """What a start would make of the job. Writes nothing; raises as a start does ahead of its claim. ``with_sinks``:
    those of the request are meant; else the job keeps its own. ``samples``: rows of each state table that changes."""
    return dry_run(_Asked.of(request).plan(request.df._arrow_schema()), with_sinks, samples)


def start_query(request: StartRequest) -> Running:
    """Start the streaming query of a translated DataFrame."""
    asked = _Asked.of(request)
    log_as(asked.config, asked.job)
    bounded = "availableNow" in request.trigger
    plan = replace(asked.plan(request.df._arrow_schema()), bounded=bounded)
    _tell_uids(asked.job, asked.uids)
    ends = find_ends(asked.sources, asked.config, asked.job, bounded)
    _make_way(asked.spark, request.query_name, asked.job)
    with FirstBeats() as beats:
        run = replace(begin(plan, beats.on_claim), ends=ends, bounded=bounded and spark_version() < (4, 2))
        log_as(run.config, run.job, generation=run.generation)
        _tell_restored(run, plan.location)
        format_name = f"ckpt_{''.join(c if c.isalnum() else '_' for c in asked.job)}_{run.generation}"
        df, operations = _rows(asked, request, run, plan.spark_folder(run.location), format_name)
        sink = sink_class_of(format_name, run, asked.sinks, request.df._arrow_schema(), operations)
        asked.spark.dataSource.register(sink)
        name = request.query_name or asked.job
        writer = df.writeStream.format(format_name).outputMode("append").queryName(name)
        writer = writer.option("checkpointLocation", spark_path(asked.spelled(run.location)))
        if request.trigger and not run.bounded:
            writer = writer.trigger(**request.trigger)
        remember_run(name, run)
        deliverer = deliverer_of(asked.spark, format_name, run, asked.functions_last, asked.sinks)
        with SessionConfs(asked.spark, run.location):
            query = writer.start()
        beats.hand_over(lambda: bool(query.isActive))
    remember_run(name, run, str(query.runId))
    if deliverer is not None:
        deliverer.start(query, thread_of(asked.spark))
    watch_end(query, run, lambda: error_of(query, deliverer))
    make_table(asked.spark, name, asked.sinks[0], request.df.schema)
    within_s = max((finds_within_s(source.inner, source.options) for source in asked.sources), default=0.0)
    reader = partial(open_reader, asked.sources, asked.config, asked.job)
    return Running(query, run, asked.sinks, deliverer, reader, within_s)


def _rows(
    asked: _Asked, request: StartRequest, run: RunSpec, folder: SparkFolder, format_name: str
) -> tuple[Any, tuple[Operation, ...]]:
    """What the sink's writer gets from Spark, and the operations it does first."""
    spark, lineage, root = asked.spark, asked.lineage, request.df._recipe
    time, uids = event_time_rule(spark.conf, folder), asked.uids

    def build(names: tuple[str, ...]) -> tuple[Any, tuple[Operation, ...]]:
        specs = source_specs(run, lineage, asked.sources, uids, no_data_batches(spark.conf), run.location, names)
        told, mode = lineage.told_watermarks, request.output_mode
        ctx = BuildContext(spark, format_name, run, specs, root, mode, uids, told, asked.streams, run.location, time)
        return sink_input(ctx, root)

    return in_order(build, tuple(asked.streams.values()))


def _job_config(request: StartRequest) -> tuple[JobConfig, str]:
    """The job's configuration, all decided, and its name."""
    session = request.df._session
    config = session.config(request.job_options)
    job = config.job or request.query_name or _name_of_nameless(request)
    lanes = config.lanes or _default_lanes(session.spark)
    return replace(with_absolute_dir(config), job=job, lanes=lanes), job


def _make_way(spark: Any, query_name: str | None, job: str) -> None:
    """Of a query that runs in this session, as Spark does: it goes on where the new one has the name it was given, and
    is stopped where the location alone names both. Before the new start claims the job, as that would end it.

    Raises as Spark does.
    """
    running = next((query for query in spark.streams.active if query.name == (query_name or job)), None)
    if running is None:
        return
    if query_name or spark.conf.get("spark.sql.streaming.stopActiveRunOnRestart") != "true":
        raise already_active(query_name or job)
    _log.warning("Job %s: the query that runs is stopped, as a new one is started at its checkpointLocation.", job)
    running.stop()


def _name_of_nameless(request: StartRequest) -> str:
    """In Spark the location is what a query goes on from; what goes to functions, or nowhere, may have none.

    Raises ``ConfigError`` for other sinks without one.
    """
    if request.location:
        job = name_of_location(one_spelling(request.location))
        _log.info("The query has no name: it is job %s, by its checkpointLocation.", job)
        return job
    if all(isinstance(sink, BatchFunction) or str(sink).strip().lower() == "noop" for sink, _ in request.sinks):
        job = f"unnamed-{uuid.uuid4().hex[:12]}"
        _log.warning(
            "The query has neither a name nor a checkpointLocation: it is job %s, and no later start goes on with it. "
            "Its folder below spark.ckpt.dir stays.", job,
        )  # fmt: skip
        return job
    raise ConfigRefusedAsInSparkError(
        "a job needs a name: set queryName(...) or spark.ckpt.job, or option checkpointLocation, which names it too",
        "_LEGACY_ERROR_TEMP_1298",
        {"config": "spark.sql.streaming.checkpointLocation"},
    )


def _tell_uids(job: str, uids: dict[OperatorNode, str]) -> None:
    """A line of all keyed operators; a warning if a uid is derived, as then the program's text is what keeps it."""
    names = ", ".join(uid if node.uid else f"{uid} (derived)" for node, uid in uids.items())
    if any(node.uid is None for node in uids):
        _log.warning(
            "Job %s: the keyed operators are %s. A derived uid is the operator's kind and place in the query; call "
            'uid("...") behind an operator where state is to survive changes of the query.', job, names,
        )  # fmt: skip
    elif uids:
        _log.info("Job %s: the keyed operators are %s.", job, names)


def _tell_restored(run: RunSpec, given: str) -> None:
    """Who has ``given`` an empty location, as one does in Spark to begin anew, is told that the job goes on."""
    begins = run.restored_from is not None and run.origin == run.generation and run.config.restore == "auto"
    if begins and run.location == given:
        _log.warning(
            "Job %s: the Spark location is empty, so the job goes on from its checkpoint %d, and what that has read is "
            'not read again. To begin anew: .option("restore", "none"), or another name.', run.job, run.restored_from,
        )  # fmt: skip


def _default_lanes(spark: Any) -> int:
    """As many lanes as the cluster has cores; Spark Connect does not tell, so the local number stands in."""
    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except Exception:  # noqa: BLE001 - Spark Connect raises its own errors for what it has not
        return max(1, os.cpu_count() or 1)
