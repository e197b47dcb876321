"""Epochs for rows that have none: those of a static DataFrame beside a stream, and those that Spark's own sources read.
Driver, at start. What each batch's are, :mod:`spark_ckpt.runtime.batch_epochs` reads in Spark's log."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from spark_ckpt.plan._build import BuildContext
from spark_ckpt.plan.columns import quoted
from spark_ckpt.runtime.batch_epochs import LABELS, EpochOfSparkStreams, EpochsOfBatch
from spark_ckpt.runtime.stateless import spark_schema
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
