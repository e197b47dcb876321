"""``withWatermark`` of a checkpointed stream. Driver only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import TimestampType

from spark_ckpt.api._ahead import OneAhead
from spark_ckpt.api._keeps_columns import keeps_columns
from spark_ckpt.api._left_out import behind_row_by_row
from spark_ckpt.api._read_by_spark import behind
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.attributes import same
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.columns import aliased, is_case_sensitive
from spark_ckpt.plan.durations import delay_ms, simple_ms
from spark_ckpt.plan.event_time import mark_stream, with_event_time
from spark_ckpt.plan.key_columns import column_named
from spark_ckpt.plan.known_as import known_as
from spark_ckpt.plan.lineage import WatermarkNode
from spark_ckpt.plan.spark_errors import check_watermark
from spark_ckpt.runtime.stateless import MarkStream

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

SparkDF = Any


class EventTime:
    """The method of a DataFrame that says which of its columns is the event time."""

    @keeps_columns("eventTime")
    def withWatermark(self: Any, eventTime: str, delayThreshold: str) -> CkptDataFrame:
        """Spark's watermark: the largest ``eventTime`` seen minus ``delayThreshold``, the smallest over all streams.

        ``eventTime`` names a timestamp column, ``delayThreshold`` is a duration, ``"10 minutes"``. The watermark is
        that of the rows that come by here, and travels in-band; behind an expression of Spark, of those that reach the
        next keyed operator, or a join with a table that leaves some out. As in Spark, a filter behind it that does not
        look at the event time counts as if it were in front. Raises as Spark does if either is something else,
        ``InvalidInputError`` for a field of a struct.
        """
        return _timed(self, eventTime, delayThreshold)


def _timed(df: CkptDataFrame, event_time: str, delay: str, again: WatermarkNode | None = None) -> CkptDataFrame:
    """``again``: the watermark that this is a copy of."""
    if not isinstance(event_time, str) or simple_ms(delay) is None:
        check_watermark(df._session.spark, df.schema, event_time, delay)
    sensitive = is_case_sensitive(df._session.spark)
    column = column_named(df.columns, event_time, sensitive)
    found = {f.name: f.dataType for f in df.schema.fields}.get(column or event_time)
    if column is None or not isinstance(found, TimestampType):
        check_watermark(df._session.spark, df.schema, event_time, delay)
        there = f"the columns are {df.columns}" if found is None else f"{event_time!r} is {found.simpleString()}"
        raise InvalidInputError(
            f"withWatermark needs a timestamp column; found {event_time!r}, and {there}. What is in a struct, or of "
            "another type, gets a column of its own first, by select or withColumn"
        )
    delay_us = delay_ms(df._session.spark, delay) * 1000
    node = WatermarkNode(column, delay_us, df._lineage.sources)
    node = node if again is None else replace(node, one=again.one)
    lineage, parent = df._lineage.with_watermark(node), df._recipe

    def make(ctx: Any) -> Chain:
        chain, number = ctx.chain(parent), ctx.stream_number(node)
        marked = MarkStream(number, ctx.stream_name(node), node.column, node.delay_us)
        if node in ctx.told:
            return chain.then(marked, chain.schema, df._known_as(preview))
        return chain.either(marked, lambda rows: mark_stream(rows, number), chain.schema, df._known_as(preview))

    preview = timed_preview(df, column, node.delay_us // 1000)
    made = df._made(Recipe(make, (parent,)), lineage, preview)
    made._with(same(df._attributes, range(len(df.columns)), df.columns))
    made._ahead = lambda: OneAhead(df, column, lambda rows, column: _timed(rows, column, delay, node))
    made._reread = behind(df, made, lambda rows, _: rows.withWatermark(event_time, delay))
    made._wider = behind_row_by_row(df, lambda rows: _timed(rows, column, delay, node))
    return made


def timed_preview(df: CkptDataFrame, column: str, delay_ms: int) -> SparkDF:
    """The preview, in which Spark then tells where the event time goes; its columns are known as before."""
    preview = with_event_time(df._preview, column, delay_ms)
    if df._stream_side is not None:
        return known_as(preview, df._preview)
    return preview if df._alias is None else aliased(preview, df._alias)
