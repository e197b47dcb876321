"""The state of an operator of rows that its sources would have read: the query's own plan in front of it, in batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt import clock
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.build import BuildContext, source_specs
from spark_ckpt.execution.chain import Chain, Recipe, in_python
from spark_ckpt.execution.columns import quoted
from spark_ckpt.execution.lineage import OperatorNode, SourceNode
from spark_ckpt.execution.start import QueryState, StartRequest
from spark_ckpt.execution.state_writing import Written, written_table
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.protocol import events as ev
from spark_ckpt.runtime.operator.bootstrap import BootstrapState, RowsByKey
from spark_ckpt.runtime.operator.pack import LatestTimes
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.runtime.state_writing import REPORT, ROUTE, WrittenTable
from spark_ckpt.runtime.stateless import nullable, spark_schema
from spark_ckpt.types import CTL, KEY_HASH, TAG, make_tag


@dataclass(frozen=True)
class Bootstrap:
    """``rows``: by source, batch DataFrames with its columns. ``order``: columns by which a key's rows are sorted."""

    request: StartRequest
    query: QueryState
    uid: str
    rows: Mapping[str, Any]
    order: Sequence[str] = ()

    def checked(self) -> Bootstrap:
        """Raises ``InvalidInputError`` for what can be known without reading rows."""
        node = self._node
        if node.behind:
            raise InvalidInputError(
                f"bootstrap({self.uid!r}): its rows come from other operators that keep state, so they are not known "
                "from the sources; give its state by with_operator"
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

    def write(self, tables: Mapping[str, WrittenTable]) -> tuple[dict[str, Written], dict[str, int]]:
        """Compute the state, and write the ``tables`` of the operator; returns them, and the watermarks of the rows."""
        spec, rows, hashes = self._reached()
        combined = not self.order
        by_key = RowsByKey(spec, hashes, combined)
        seen = _watermarks(spec, rows)
        now_us = min((seen.get(stream, 0) for stream in spec.watermarks), default=None)
        names = ["", *self._node.families]
        task = BootstrapState(by_key, dict(zip(names, tables.values(), strict=True)), now_us, clock.now_ms())
        reports = _sorted(rows, by_key, self._order(spec), spec).mapInArrow(task, REPORT).collect()
        written = {name: written_table(table, reports) for name, table in tables.items()}
        if now_us is not None:  # rows that are older come late, as their windows and time-outs are over
            seen[ev.NO_STREAM] = max(0, now_us // 1000 * 1000)
        return written, seen

    def _order(self, spec: OperatorSpec) -> list[int]:
        names = spec.rows_schema.names
        unknown = [name for name in self.order if name not in names]
        if unknown:
            raise InvalidInputError(
                f"bootstrap({self.uid!r}): orderBy {unknown}: expected columns that the operator gets, of {names}"
            )
        return [names.index(name) for name in self.order]

    def _reached(self) -> tuple[OperatorSpec, Any, bool]:
        context = _BatchContext(self)
        recipe = next(r for r in _recipes(self.request.df._recipe) if self._node in r.operators)
        context.chain(recipe)
        if context.reached is None:
            raise InvalidInputError(
                f"bootstrap({self.uid!r}): expected an operator over rows of one stream, such as an aggregation, "
                "dropDuplicates or a function with state; give the state of others by with_operator"
            )
        return context.reached


class _BatchContext(BuildContext):
    """A build in which batch DataFrames stand in for sources, up to the rows for one operator."""

    def __init__(self, of: Bootstrap) -> None:
        request, query = of.request, of.query
        spark, lineage = request.df._session.spark, request.df._lineage.in_mode(request.output_mode)
        uids = {node: uid for uid, node in query.nodes.items()}
        named = {node: uid for uid, node in query.sources.items()}
        partitions = int(spark.conf.get("spark.sql.shuffle.partitions"))
        run = RunSpec(query.config.job or "", query.config, 0, 0, 1, None, None, query.topology, partitions)
        specs = source_specs(run, lineage, named, uids)
        root, told = request.df._recipe, lineage.told_watermarks
        super().__init__(spark, "ckpt_bootstrap", run, specs, root, request.output_mode, uids, told)
        self._of, self._frames = of, {query.sources[uid]: rows for uid, rows in of.rows.items()}
        self.reached: tuple[OperatorSpec, Any, bool] | None = None

    def wants_rows(self, node: OperatorNode) -> bool:
        return node is self._of.query.nodes[self._of.uid]

    def rows_for(self, spec: OperatorSpec, rows: Any, hashes: bool) -> Chain:
        self.reached = spec, rows, hashes
        return Chain(rows, rows.schema)

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
    """Of each stream, behind the last row of all."""
    if not spec.watermarks:
        return {}
    told = in_python(rows, (LatestTimes(spec),), T.StructType.fromDDL(LatestTimes.SCHEMA))
    found = {row.stream: row.latest for row in told.groupBy("stream").agg(F.max("micros").alias("latest")).collect()}
    return {stream: found[stream] for stream in spec.watermarks if stream in found}


def _sorted(rows: Any, by_key: RowsByKey, order: list[int], spec: OperatorSpec) -> Any:
    schema = spark_schema(by_key.schema)
    fields = [T.StructField(f"c{at}", f.dataType) for at, f in enumerate(nullable(schema))]
    made = in_python(rows, (by_key,), T.StructType([*fields, T.StructField(ROUTE, T.IntegerType())]))
    by_hash = f"c{by_key.schema.names.index(KEY_HASH)}"
    routed = made.repartition(spec.run.subtasks.partitions, ROUTE)
    return routed.sortWithinPartitions(by_hash, *(f"c{at}" for at in order))
