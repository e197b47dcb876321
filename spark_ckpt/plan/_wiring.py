"""Turns a keyed operator into stages: hash, pack (before the shuffle), operate, snapshot (with what follows)."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.jobs.spark_folder import SparkFolder
from spark_ckpt.plan.chain import Chain, in_python
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.lineage import Lineage, OperatorNode
from spark_ckpt.runtime.operator.operator import KeyedOperator
from spark_ckpt.runtime.operator.pack import PACKED, PackStage
from spark_ckpt.runtime.operator.snapshot import SnapshotStage
from spark_ckpt.runtime.operator.spec import EventTime, OperatorSpec, WatermarkSpec
from spark_ckpt.runtime.stateless import arrow_schema, spark_schema, with_control
from spark_ckpt.state.aggregates.windowed import WindowedAggregate
from spark_ckpt.state.functions.base import StateFunction
from spark_ckpt.types import CTL, EVENT_TIME, KEY_HASH, TAG

_log = logging.getLogger("spark_ckpt")

_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
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


def event_time(conf: Any, location: SparkFolder) -> EventTime:
    """As the session has it when the query starts; which of several watermarks counts, as when it first did: Spark
    keeps that at its ``location``."""
    return EventTime(
        (location.kept_conf(_POLICY) or conf.get(_POLICY, "min")).lower(),
        conf.get("spark.sql.streaming.statefulOperator.allowMultiple", "true") == "true",
    )


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


def normalised(column: Column, kind: T.DataType) -> Column:
    """Spark's groupBy takes -0.0 and 0.0 for one key, and all NaNs; so must the hash."""
    if not isinstance(kind, T.FloatType | T.DoubleType):
        return column
    nan = F.lit(float("nan")).cast(kind)
    return F.when(F.isnan(column), nan).otherwise(column + F.lit(0.0).cast(kind))
