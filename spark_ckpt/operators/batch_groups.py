"""Epochs for rows that have none: those of a static DataFrame beside a stream, and those that Spark's own sources read.
Driver, at start. What each batch's are, :mod:`spark_ckpt.runtime.batch_epochs` reads in Spark's log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.execution.build import BuildContext
from spark_ckpt.execution.chain import Chain, Recipe, StreamRows
from spark_ckpt.execution.columns import quoted
from spark_ckpt.execution.event_time import kept_by_name
from spark_ckpt.execution.lineage import Leaves, Lineage, Place
from spark_ckpt.execution.session_confs import pandas_options
from spark_ckpt.operators.walks import Node, R, Walked
from spark_ckpt.runtime.batch_epochs import LABELS, EpochOfSparkStreams, EpochsOfBatch
from spark_ckpt.runtime.batch_groups import Form, Frames, Tables, around_both_sides, around_control_rows
from spark_ckpt.runtime.stateless import spark_schema, with_control
from spark_ckpt.spark_versions import eval_types
from spark_ckpt.spark_versions.arrow_schemas import to_arrow_schema
from spark_ckpt.storage.filesystem import Folder, normalize_url
from spark_ckpt.storage.object_options import scheme_of
from spark_ckpt.types import BEFORE_BARRIERS, CTL, STREAM_BITS, STREAM_MASK, TAG

SparkDF = Any
_LABEL = "__ckpt_label"


def with_epochs(ctx: BuildContext, static: SparkDF) -> SparkDF:
    """``static`` once for each epoch that the streams' rows may be of, with the control columns."""
    return static.crossJoin(F.broadcast(_labels(ctx, EpochsOfBatch)))


def with_true_epochs(ctx: BuildContext, rows: SparkDF) -> SparkDF:
    """``rows``, with the epoch of the control source in place of none."""
    label = _labels(ctx, EpochOfSparkStreams).select(F.col(TAG).alias(_LABEL))
    has_none = F.shiftright(TAG, STREAM_BITS) == F.lit(BEFORE_BARRIERS)
    own = F.col(TAG).bitwiseAND(F.lit(STREAM_MASK))
    tag = F.when(F.col(CTL).isNull() & has_none, F.col(_LABEL).bitwiseOR(own)).otherwise(F.col(TAG))
    columns = [tag.alias(TAG) if name == TAG else F.col(quoted(name)) for name in rows.columns]
    return rows.crossJoin(F.broadcast(label)).select(*columns)


def _labels(ctx: BuildContext, kind: type[EpochsOfBatch]) -> SparkDF:
    config = ctx.run.config
    own = scheme_of(ctx.location) == scheme_of(normalize_url(config.dir))
    storage = config.storage_options() if own else {}
    Folder(ctx.location, storage)  # refused now if executors could not read it
    made = kind(ctx.location, dict(storage), ctx.run.start_epoch, ctx.output_mode == "complete")
    return ctx.spark.range(0, 1, 1, 1).mapInArrow(made, spark_schema(LABELS))


STATIC_FIRST = (
    "cogroup of a static DataFrame's groups with those of a stream: call it of the stream, as in "
    'stream.groupBy("k").cogroup(static.groupBy("k")); its function gets the stream\'s rows first'
)
PORTIONS = (eval_types.SQL_GROUPED_MAP_PANDAS_ITER_UDF, eval_types.SQL_GROUPED_MAP_ARROW_ITER_UDF)
"""Functions that take an iterator of a group's rows."""
_LARGE = "spark.sql.execution.arrow.useLargeVarTypes"


@dataclass(frozen=True)
class StreamSide:
    """Rows of a stream to be grouped; ``keys`` are columns, hidden ones are computed."""

    rows: StreamRows
    keys: Sequence[str]

    def grouped(self, ctx: Any, meet: bool) -> Any:
        """``meet``: rows without epochs, as Spark's own sources read them, have to meet others."""
        frame = ctx.frame(self.rows.recipe)
        true = meet and any(source.by_spark for source in self.rows.lineage.sources)
        return _by(with_true_epochs(ctx, frame) if true else frame, self.keys)


@dataclass(frozen=True)
class TableSide:
    """Rows of a table to be grouped, which meet those of each epoch."""

    frame: SparkDF
    keys: Sequence[str]

    def grouped(self, ctx: Any, _meet: bool) -> Any:
        return _by(with_epochs(ctx, self.frame), self.keys)


@dataclass(frozen=True)
class UserFunction:
    """``function`` gets DataFrames of pandas, or tables; ``portions``: an iterator of a group's rows."""

    function: Any
    pandas: bool
    portions: bool = False
    large: bool = False

    def form(self, spark: Any, out: T.StructType) -> Form:
        """``large``: Spark's setting of large types in Arrow holds for the function."""
        if self.pandas:
            return Frames(out.fieldNames()[:-2], pandas_options(spark.conf)["assign_cols_by_name"])
        large = self.large and spark.conf.get(_LARGE) == "true"
        return Tables(to_arrow_schema(out, prefers_large_types=large))

    def of_each(self, groups: Any, called: Callable[..., Any], out: T.StructType) -> Chain:
        """The rows that ``called`` makes of each of ``groups``."""
        method = groups.applyInPandas if self.pandas else groups.applyInArrow
        return Chain(method(called, out), out)


def batch_groups(of: Walked[R], node: Node, side: StreamSide, user: UserFunction) -> R:
    """Where a barrier lies within a batch, the rows in front of it and those behind it are groups of their own."""
    rows, out = side.rows, with_control(kept_by_name(of.schema(node), side.rows.schema))
    meet = _have_to_meet(rows.lineage)
    called = around_control_rows(user.function, user.form(of.spark, out), user.portions)

    def make(ctx: Any) -> Chain:
        return user.of_each(side.grouped(ctx, meet), called, out)

    place = Place(of.kind(node), "in Spark: it looks at all rows of a group", Leaves.WHOLE)
    lineage = replace(rows.lineage, places=(*rows.lineage.places, place))
    return of.put_out(node, StreamRows(Recipe(make, (rows.recipe,)), lineage, T.StructType(out.fields[:-2])))


def batch_cogroups(of: Walked[R], node: Node, left: StreamSide, right: StreamSide | TableSide, user: UserFunction) -> R:
    """Rows of different epochs do not meet; those of a table meet those of each epoch. Event times end here."""
    schema, static = of.schema(node), isinstance(right, TableSide)
    out, streams = with_control(schema), [side.rows for side in (left, right) if isinstance(side, StreamSide)]
    first, *others = [rows.lineage.with_watermarks_told() for rows in streams]
    for other in others:
        first = first.union(other, "cogroup")
    meet = static or _have_to_meet(first)
    called = around_both_sides(user.function, user.form(of.spark, out), static)

    def make(ctx: Any) -> Chain:
        return user.of_each(left.grouped(ctx, meet).cogroup(right.grouped(ctx, meet)), called, out)

    lineage = replace(first, open_watermarks=(), marks_reads=first.marks_reads or static)
    return of.put_out(node, StreamRows(Recipe(make, tuple(rows.recipe for rows in streams)), lineage, schema))


def _have_to_meet(lineage: Lineage) -> bool:
    return len(lineage.sources) > 1 or bool(lineage.operators)


def _by(frame: SparkDF, keys: Sequence[str]) -> Any:
    epoch = F.col(TAG).bitwiseAND(F.lit(~STREAM_MASK))
    return frame.groupBy(*[F.col(quoted(key)) for key in keys], epoch, F.col(CTL))
