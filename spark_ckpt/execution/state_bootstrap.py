"""The state of an operator of rows that its sources would have read: the query's own plan in front of it, in batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt import clock
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution._job_descriptions import described
from spark_ckpt.execution._spark_location import event_time_rule
from spark_ckpt.execution.build import BuildContext, source_specs
from spark_ckpt.execution.chain import Chain, Recipe, in_python
from spark_ckpt.execution.columns import quoted
from spark_ckpt.execution.lineage import OperatorNode, SourceNode
from spark_ckpt.execution.start import QueryState, StartRequest
from spark_ckpt.execution.state_writing import Written, written_table
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.protocol import events as ev
from spark_ckpt.runtime.operator.bootstrap import BootstrapOutput, BootstrapState, History, RowsByKey
from spark_ckpt.runtime.operator.pack import LatestTimes
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.runtime.state_writing import REPORT, ROUTE, WrittenTable
from spark_ckpt.runtime.stateless import nullable, spark_schema, with_control
from spark_ckpt.state.aggregates.sessions import SessionAggregate
from spark_ckpt.state.aggregates.windowed import WindowedAggregate
from spark_ckpt.state.functions.base import StateFunction
from spark_ckpt.state.functions.distinct_rows import DistinctRows
from spark_ckpt.state.joins.function import StreamJoin
from spark_ckpt.types import CTL, EVENT_TIME, KEY_HASH, TAG, make_tag


@dataclass(frozen=True)
class Bootstrap:
    """``rows``: by source, batch DataFrames with its columns. ``order``: columns by which a key's rows are sorted.
    ``every_ms``: how much event time is a batch, of functions that go by it."""

    request: StartRequest
    query: QueryState
    uid: str
    rows: Mapping[str, Any]
    order: Sequence[str] = ()
    every_ms: int = 1

    def checked(self) -> Bootstrap:
        """Raises ``InvalidInputError`` for what can be known without reading rows."""
        node = self._node
        unknown = sorted(self._uid_of(front) for front in node.behind if not self._result_known(front.function))
        if unknown:
            raise InvalidInputError(
                f"bootstrap({self.uid!r}): its rows come from {', '.join(map(repr, unknown))}; what comes out of that "
                "depends on how rows are cut into batches, so it is not known from the sources. Give the state of "
                f"{self.uid!r} by with_operator"
            )
        needed = {uid: source for uid, source in self.query.sources.items() if source in node.upstream}
        if set(self.rows) != set(needed):
            raise InvalidInputError(
                f"bootstrap({self.uid!r}): expected rows of its sources {sorted(needed)}, found {sorted(self.rows)}"
            )
        for uid, source in needed.items():
            _check_rows(self.uid, uid, source.schema, self.rows[uid])
        return self

    @property
    def _node(self) -> OperatorNode:
        return self.query.nodes[self.uid]

    def _uid_of(self, node: OperatorNode) -> str:
        return next(uid for uid, known in self.query.nodes.items() if known is node)

    def _result_known(self, function: StateFunction) -> bool:
        """Whether any batches of rows that are not late give the same."""
        if isinstance(function, WindowedAggregate | SessionAggregate):
            return self.request.output_mode == "append"
        return isinstance(function, DistinctRows | StreamJoin)

    def write(self, tables: Mapping[str, WrittenTable]) -> tuple[dict[str, Written], dict[str, int]]:
        """Compute the state, and write the ``tables`` of the operator; returns them, and the watermarks of the rows."""
        context = self._reached()
        assert context.reached is not None
        spec, rows, hashes = context.reached
        order = self._order(spec)
        by_key = RowsByKey(spec, hashes, combined=not order)
        history, seen = self.history(spec, rows, context.passed_on)
        names = ["", *self._node.families]
        task = BootstrapState(by_key, dict(zip(names, tables.values(), strict=True)), history)
        with described(rows.sparkSession, f"{self.uid}: state of a savepoint is computed of rows"):
            reports = _sorted(rows, by_key, order).mapInArrow(task, REPORT).collect()
        return {name: written_table(table, reports) for name, table in tables.items()}, seen

    def history(self, spec: OperatorSpec, rows: Any, front: Mapping[str, int]) -> tuple[History, dict[str, int]]:
        """The time of the rows, and what an operator that is restored has seen of it. ``front``: the watermarks that
        operators in front of it pass on."""
        if not spec.watermarks:
            return History(None, 0, self.every_ms, clock.now_ms()), {}
        told = _watermarks(spec, rows)
        latest = told.pop(ev.NO_STREAM, 0)
        seen = {stream: max(w[stream] for w in (told, front) if stream in w) for stream in {**told, **front}}
        choose = max if spec.time.policy == "max" else min
        now_us = max(0, choose(seen.get(stream, 0) for stream in spec.watermarks) // 1000 * 1000)
        # Rows that are older come late, as their windows and time-outs are over.
        seen = {**{stream: seen[stream] for stream in spec.watermarks if stream in seen}, ev.NO_STREAM: now_us}
        return History(now_us, max(0, latest - now_us), self.every_ms, clock.now_ms()), seen

    def put_out(self, spec: OperatorSpec, rows: Any, hashes: bool, history: History) -> Any:
        """What an operator in front puts out."""
        order = self._by_time(spec)
        by_key = RowsByKey(spec, hashes, combined=not order)
        schema = with_control(spark_schema(spec.function.output_schema))
        named = T.StructType([T.StructField(f"c{at}", f.dataType) for at, f in enumerate(schema)])
        made = _sorted(rows, by_key, order).mapInArrow(BootstrapOutput(by_key, history), named)
        return made.toDF(*schema.fieldNames())

    def _by_time(self, spec: OperatorSpec) -> list[int]:
        if not spec.function.ends_between_rows:
            return []
        if EVENT_TIME not in spec.rows_schema.names:
            raise InvalidInputError(
                f"bootstrap({self.uid!r}): the state of {spec.uid!r} ends by the event time, so its rows have to come "
                "in that order: expected the column of withWatermark among those that reach it; keep it up to there"
            )
        return [spec.rows_schema.names.index(EVENT_TIME)]

    def _order(self, spec: OperatorSpec) -> list[int]:
        names = spec.rows_schema.names
        unknown = [name for name in self.order if name not in names]
        if unknown:
            raise InvalidInputError(
                f"bootstrap({self.uid!r}): orderBy {unknown}: expected columns that the operator gets, of {names}"
            )
        if isinstance(spec.function, WindowedAggregate) and spec.function.slide_us is not None:
            return []  # windows that are added up of slices do not mind the order
        return [*self._by_time(spec), *map(names.index, self.order)]

    def _reached(self) -> _BatchContext:
        context = _BatchContext(self)
        recipe = next(r for r in _recipes(self.request.df._recipe) if self._node in r.operators)
        context.chain(recipe)
        if context.reached is None:
            raise InvalidInputError(
                f"bootstrap({self.uid!r}): expected an aggregation, a join, dropDuplicates or a function with state; "
                "give the state of others by with_operator"
            )
        return context


class _BatchContext(BuildContext):
    """A build in which batch DataFrames stand in for sources, up to the rows for one operator. Of operators in front
    of it comes what they put out, and ``passed_on`` are the watermarks that they tell."""

    def __init__(self, of: Bootstrap) -> None:
        request, query = of.request, of.query
        spark, lineage = request.df._session.spark, request.df._lineage.in_mode(request.output_mode)
        uids = {node: uid for uid, node in query.nodes.items()}
        named = {node: uid for uid, node in query.sources.items()}
        partitions = int(spark.conf.get("spark.sql.shuffle.partitions"))
        run = RunSpec(query.config.job or "", query.config, 0, 0, 1, None, None, query.topology, partitions)
        specs = source_specs(run, lineage, named, uids)
        root, told = request.df._recipe, lineage.told_watermarks
        time = event_time_rule(spark.conf)
        super().__init__(spark, "ckpt_bootstrap", run, specs, root, request.output_mode, uids, told, event_time=time)
        for watermark in lineage.watermarks:  # as the build of a start meets them
            self.stream_number(watermark)
        self._of, self._frames = of, {query.sources[uid]: rows for uid, rows in of.rows.items()}
        self.reached: tuple[OperatorSpec, Any, bool] | None = None
        self.passed_on: dict[str, int] = {}

    def wants_rows(self, _node: OperatorNode) -> bool:
        return True

    def rows_for(self, spec: OperatorSpec, rows: Any, hashes: bool) -> Chain:
        if spec.uid == self._of.uid:
            self.reached = spec, rows, hashes
            return Chain(rows, rows.schema)
        history, seen = self._of.history(spec, rows, self.passed_on)
        delay_us = 1000 * spec.function.output_delay_ms
        self.passed_on |= {stream: micros - delay_us for stream, micros in seen.items() if stream != ev.NO_STREAM}
        made = self._of.put_out(spec, rows, hashes, history)
        return Chain(made, made.schema)

    def _load(self, chain: Chain) -> Any:
        head: SourceNode = chain.head
        names = [F.col(quoted(name)) for name in head.schema.fieldNames()]
        control = F.lit(make_tag(1)).cast("bigint").alias(TAG), F.lit(None).cast("binary").alias(CTL)
        rows = self._frames[head].select(*names, *control)
        return in_python(rows, chain.operations, chain.schema) if chain.operations else rows


def _recipes(root: Recipe) -> list[Recipe]:
    return [root, *root.consumers()]


def _check_rows(operator: str, source: str, expected: T.StructType, rows: Any) -> None:
    if getattr(rows, "isStreaming", True):
        raise InvalidInputError(f"bootstrap({operator!r}): expected a batch DataFrame of rows of {source!r}")
    found = {f.name: f.dataType.simpleString() for f in rows.schema}
    wrong = [f.name for f in expected if found.get(f.name) != f.dataType.simpleString()]
    if wrong:
        told = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in expected)
        raise InvalidInputError(
            f"bootstrap({operator!r}): expected the columns of source {source!r}, {told}; missing, or of another type: "
            f"{', '.join(wrong)}"
        )


def _watermarks(spec: OperatorSpec, rows: Any) -> dict[str, int]:
    """Of each stream, behind the last row of all; of no stream, the event time of the last row."""
    told = in_python(rows, (LatestTimes(spec),), T.StructType.fromDDL(LatestTimes.SCHEMA))
    return {row.stream: row.latest for row in told.groupBy("stream").agg(F.max("micros").alias("latest")).collect()}


def _sorted(rows: Any, by_key: RowsByKey, order: list[int]) -> Any:
    schema = spark_schema(by_key.schema)
    fields = [T.StructField(f"c{at}", f.dataType) for at, f in enumerate(nullable(schema))]
    made = in_python(rows, (by_key,), T.StructType([*fields, T.StructField(ROUTE, T.IntegerType())]))
    by_hash = f"c{by_key.schema.names.index(KEY_HASH)}"
    routed = made.repartition(by_key.spec.run.subtasks.partitions, ROUTE)
    return routed.sortWithinPartitions(by_hash, *(f"c{at}" for at in order))
