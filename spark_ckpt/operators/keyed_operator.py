"""A keyed operator behind rows: its place in the lineage, its recipe and what comes out. Driver."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.chain import Chain, Recipe, StreamRows, in_python
from spark_ckpt.execution.columns import normalised, quoted
from spark_ckpt.execution.event_time import event_time_among, event_times, late_by_window, passed_on
from spark_ckpt.execution.lineage import Lineage, OperatorNode
from spark_ckpt.operators.key_columns import Keys
from spark_ckpt.runtime.operator.operator import KeyedOperator
from spark_ckpt.runtime.operator.pack import PACKED, PackStage
from spark_ckpt.runtime.operator.snapshot import SnapshotStage
from spark_ckpt.runtime.operator.spec import OperatorSpec, WatermarkSpec
from spark_ckpt.runtime.stateless import arrow_schema, spark_schema, with_control
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.aggregates.windowed import WindowedAggregate
from spark_ckpt.state.functions.base import StateFunction
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.storage.delta_schema import to_delta_schema
from spark_ckpt.types import CTL, EVENT_TIME, KEY_HASH, TAG


def keyed_rows(
    rows: StreamRows,
    uid: str | None,
    function: StateFunction,
    columns: list[str],
    keys: Keys,
    output_mode: str | None = None,
    whole_in_complete: bool = False,
    asked: Collection[str] | None = None,
    takes_updates: bool = False,
) -> StreamRows:
    """``function`` gets the keys and these ``columns``. Of several event times that among ``asked`` counts. Raises
    ``InvalidInputError`` for a column named as one of the operator's own."""
    _refuse_own_names(columns)
    node = replace(
        _node(rows.lineage, uid, function, output_mode, whole_in_complete),
        takes_updates=takes_updates,
        keyed_by=keys.texts,
    )
    before, time = rows.lineage, _event_time(rows, function, asked)
    late = time or late_by_window(rows.schema)
    lineage = (before if time is not None else before.with_watermarks_told()).through(node)
    out = _noted(function, keys, rows.schema)

    def make(ctx: Any) -> Chain:
        made = wire_operator(ctx, ctx.chain(rows.recipe), before, node, keys, function, columns, time, late)
        return replace(made, schema=with_control(out))

    return StreamRows(Recipe(make, (rows.recipe,), operators=(node,)), lineage, out)


def _noted(function: StateFunction, keys: Keys, before: T.StructType) -> T.StructType:
    """What comes out, with what is noted of its columns."""
    out = spark_schema(function.output_schema)
    if function.passes_rows:
        return passed_on(out, before)
    if isinstance(function, WindowedAggregate):
        return keys.noted(out)
    if isinstance(function, AggregateFunction):  # which goes by no event time
        return replace(keys, delays_ms=()).noted(out)
    return out


def _refuse_own_names(columns: Collection[str]) -> None:
    """Of what rows are given on their way to an operator."""
    if KEY_HASH in columns:
        raise InvalidInputError(f"a column is named '{KEY_HASH}', as what the operator adds: rename it in front of it")


def _node(
    lineage: Lineage, uid: str | None, function: StateFunction, output_mode: str | None, whole_in_complete: bool
) -> OperatorNode:
    return OperatorNode(
        uid,
        state_layout(function),
        lineage.sources,
        function.timeout,
        function.made_of,
        output_mode,
        function.listens,
        function.families,
        function.kind,
        addable(function),
        function.results,
        function.can_complete,
        lineage.operators,
        whole_in_complete,
        function.waits,
        follows_mode=function.late_by_key,
        function=function,
    )


def addable(function: StateFunction) -> dict[str, Collection[str] | None]:
    """By state table of ``function``, its own first: the columns that a query may add to it."""
    begins = {family: function.begins(family) for family in ("", *function.families)}
    return {family: None if known is None else frozenset(known) for family, known in begins.items()}


def uid_of_use(uses: Counter[tuple[str, Any]], uid: str, operator: Any) -> str:
    """What each use of one ``operator`` is called, counted in ``uses``: by its uid, the second one ``totals-2``."""
    uses[uid, operator] += 1
    number = uses[uid, operator]
    return uid if number == 1 else f"{uid}-{number}"


def no_operator(uid: str, found: str) -> InvalidInputError:
    """Of ``uid`` behind ``found``, which keeps no state."""
    return InvalidInputError(
        f"uid({uid!r}): expected a DataFrame that ends with an operator that keeps state, such as "
        f"groupBy(...).agg(...) or dropDuplicates(...), found one that ends with {found}; call uid right behind the "
        "operator"
    )


def _event_time(rows: StreamRows, function: StateFunction, asked: Collection[str] | None) -> str | None:
    """The column that watermarks are computed of here, and by which rows are late."""
    if function.timeout != "EventTimeTimeout" or function.late_by_key:
        return next((t.name for t in event_times(rows.schema)), None)
    if not rows.lineage.watermarks:
        raise InvalidInputError("EventTimeTimeout needs withWatermark(...) before groupBy, as in Spark")
    behind = asked is not None and not rows.lineage.open_watermarks
    found = event_time_among(rows.schema, function.kind, asked or (), behind)
    if found is None and rows.lineage.open_watermarks and late_by_window(rows.schema) is None:
        raise InvalidInputError(
            "Watermark must be specified in the query using '[Dataset/DataFrame].withWatermark()' for using event-time "
            f"timeout in {function.kind}: expected the event-time column among {rows.schema.names}, by any name "
            "but not computed anew; keep it up to groupBy, or call withWatermark behind the operation that changes it"
        )
    return None if found is None else found.name


def state_layout(function: StateFunction) -> StateLayout:
    layout = function.layout
    for stored in (layout, *(family.stored for family in function.families.values())):
        to_delta_schema(stored.table_schema)  # raises for what no state table can store, before anything starts
    return layout


_log = logging.getLogger("spark_ckpt")

PRODUCED = "kind int, epoch long, body binary"
STATE = "meta binary, memtable binary, held binary"


def wire_operator(
    ctx: Any,
    chain: Chain,
    lineage: Lineage,
    node: OperatorNode,
    keys: Any,
    function: StateFunction,
    columns: list[str],
    time: str | None,
    late: str | None,
) -> Chain:
    """The operator behind ``chain``. ``ctx`` is the build context of a start; ``time`` is the rows' event time,
    and they are late by ``late``, which may be a window of it.

    Rows that are in Python are hashed there, the others in the JVM; both hash alike.
    """
    function = function.in_mode(ctx.output_mode)
    if "waited" in ctx.run.topology.operators[ctx.uids[node]]:
        assert isinstance(function, WindowedAggregate)  # sessions have no mode update
        function = function.with_waiting()
    # Behind another operator, too: a join of streams may have kept rows for long.
    late = late if lineage.watermarks and function.drops_late and not function.late_by_key else None
    spec = OperatorSpec(
        run=ctx.run,
        uid=ctx.uids[node],
        inputs=lineage.inputs,
        function=function,
        rows_schema=rows_schema(chain.schema, keys, columns, late),
        watermarks=tuple(ctx.stream_name(w) for w in lineage.watermarks),
        open_watermarks=tuple(
            WatermarkSpec(ctx.stream_number(w), ctx.stream_name(w), time, w.delay_us)
            for w in lineage.open_watermarks
            if time is not None
        ),
        event_time=late,
        time=ctx.event_time,
        sources=ctx.source_ids(node.upstream),
        watermark_sources=tuple(ctx.source_ids(w.sources) for w in lineage.watermarks),
        behind_waiting=any(o.waits for o in lineage.operators),
        behind_others=bool(lineage.operators),
    )
    times = [c for c in (time if lineage.open_watermarks else None, late) if c is not None]
    if ctx.wants_rows(node):
        return ctx.rows_for(spec, hashed(ctx.for_spark(chain), keys, [*columns, *times]), _nested(keys))
    _tell_stays_open(spec, [ctx.uids[o] for o in lineage.operators if o.waits])
    schema = spark_schema(PACKED)
    if chain.open and keys.plain:
        packed = ctx.place(chain.then(PackStage(spec, hashes=True), schema))
    else:
        rows = hashed(ctx.for_spark(chain), keys, [*columns, *times])
        packed = in_python(rows, (PackStage(spec, hashes=_nested(keys)),), schema)
    return produced_by(packed, spec)


def _tell_stays_open(spec: OperatorSpec, waiting: list[str]) -> None:
    if spec.run.config.close_windows and spec.function.late_by_key and waiting:
        _log.warning(
            "Job %s: at the end of the input the windows of %r stay open, as rows wait in front of them in the outer "
            "join %s for a match, and would be late. stop(drain=True) lets both come out.",
            spec.run.job, spec.uid, ", ".join(map(repr, waiting)),
        )  # fmt: skip


def produced_by(packed: Any, spec: OperatorSpec) -> Chain:
    """The operator behind its packed rows."""
    timeout = "ProcessingTimeTimeout" if spec.function.timeout == "ProcessingTimeTimeout" else "NoTimeout"
    produced = packed.groupBy("route").applyInPandasWithState(KeyedOperator(spec), PRODUCED, STATE, "append", timeout)
    return Chain(produced, with_control(spark_schema(spec.function.output_schema)), (SnapshotStage(spec),))


def hashed(df: Any, keys: Any, columns: list[str]) -> Any:
    """Only what the operator needs: keys, these columns, the keys' hash unless one is nested, control columns.

    A column that is a key keeps the sign of a zero, as it may be an input as well. What is hashed and stored has none.
    """
    names = list(keys.expressions)
    key_columns = [
        (expression if field.name in keys.columns else normalised(expression, field.dataType)).alias(field.name)
        for expression, field in zip(keys.expressions.values(), keys.schema.fields, strict=True)
    ]
    others = [F.col(quoted(c)) for c in dict.fromkeys(columns) if c not in names]
    rows = df.select(*key_columns, *others, TAG, CTL)
    if _nested(keys):
        return rows
    key_hash = F.xxhash64(*[normalised(F.col(quoted(f.name)), f.dataType) for f in keys.schema.fields]).alias(KEY_HASH)
    return rows.select(*[F.col(quoted(n)) for n in names], *others, key_hash, TAG, CTL)


def _nested(keys: Any) -> bool:
    """Whether a key has others in it: those are hashed in Python only."""
    return any(isinstance(field.dataType, T.StructType | T.ArrayType) for field in keys.schema.fields)


def rows_schema(schema: T.StructType, keys: Any, columns: list[str], late: str | None) -> pa.Schema:
    """Key columns, input columns, ``KEY_HASH`` and ``EVENT_TIME`` where late rows are dropped."""
    types = {f.name: f.dataType for f in schema.fields}
    inputs = [T.StructField(c, types[c], True) for c in columns if c not in keys.expressions]
    fields = list(arrow_schema(T.StructType([*keys.schema.fields, *inputs])))
    fields.append(pa.field(KEY_HASH, pa.int64()))
    if late is not None:
        fields.append(pa.field(EVENT_TIME, pa.int64()))
    return pa.schema(fields)
