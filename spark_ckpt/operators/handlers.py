"""What becomes of single nodes, of either kind of plan: what they say comes as arguments. Driver."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.chain import Chain, Recipe, StreamRows, in_python
from spark_ckpt.execution.columns import quoted
from spark_ckpt.execution.event_time import kept_by_name, mark_stream
from spark_ckpt.execution.lineage import Leaves, Lineage, Place, Stays, WatermarkNode
from spark_ckpt.execution.refused_types import refuse_in_pandas
from spark_ckpt.execution.session_confs import pandas_options
from spark_ckpt.execution.spark_errors import SORTING, unsupported
from spark_ckpt.operators.distinct import DistinctBy
from spark_ckpt.operators.keyed_operator import keyed_rows
from spark_ckpt.operators.top_rows import first_rows, of_result
from spark_ckpt.operators.walks import Node, Over, R, Walked
from spark_ckpt.runtime.numbered import CarryControlRows, DropControlRowsOff
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.runtime.stateless import MapArrow, MapPandas, MarkStream, arrow_schema, with_control
from spark_ckpt.types import CONTROL_COLUMNS, CTL

_NUMBER = "__ckpt_index"


def with_watermark(of: Walked[R], node: Node, rows: R, known: WatermarkNode, schema: T.StructType) -> R:
    """``rows``, numbered with their watermark's stream. ``schema`` notes of one column that it is the event time."""
    full, parent = with_control(schema), rows.recipe

    def make(ctx: Any) -> Chain:
        chain, number = ctx.chain(parent), ctx.stream_number(known)
        marked = MarkStream(number, ctx.stream_name(known), known.column, known.delay_us)
        if known in ctx.told:
            return chain.then(marked, full)
        return chain.either(marked, lambda frame: mark_stream(frame, number), full)

    return of.handed_on(node, rows, StreamRows(Recipe(make, (parent,)), rows.lineage.with_watermark(known), schema))


def union(of: Walked[R], node: Node, sides: Sequence[Node], together: Callable[[list[R], list[Any]], Any]) -> R:
    """``together`` gives one frame of those of all sides."""
    if not all(map(of.reads_stream, sides)):
        raise unsupported(
            "Union between streaming and batch DataFrames/Datasets is not supported, in Spark neither: write the rows "
            "of a table beside those of the query, or read them as a stream"
        )
    rows = [of.rows(side) for side in sides]
    recipes, schema = tuple(r.recipe for r in rows), of.schema(node)

    def make(ctx: Any) -> Chain:
        return Chain(together(rows, [ctx.frame(recipe) for recipe in recipes]), with_control(schema))

    lineage = reduce(lambda one, other: one.union(other), (r.lineage for r in rows))
    return of.put_out(node, StreamRows(Recipe(make, recipes), lineage, schema))


def distinct(of: Walked[R], node: Node, rows: R, method: str, places: Collection[int]) -> R:
    """``rows``, told apart by the columns at ``places``; they come out as they are."""
    rows = of.with_own_names(rows)
    names = rows.schema.names
    wanted = [names[place] for place in sorted(places)]
    function, by = DistinctBy(method, rows.schema, wanted, bool(rows.lineage.open_watermarks)).function()
    return of.handed_on(node, rows, keyed_rows(rows, of.uid(node), function, names, by, asked=wanted))


def sort(of: Walked[R], node: Node, over: Over) -> R:
    """A stream has no order, but the whole result that output mode complete puts out has one: ``over`` brings its rows
    into one task, sorted by their epoch first."""
    rows = of.rows(of.child(node))
    if not rows.lineage.whole_result:
        raise unsupported(f"{SORTING}: behind groupBy(...).agg(...)")
    made = of.carried_step(node, rows, over, Stays(Leaves.WHOLE, "it looks at all rows of a result"))
    return replace(made, lineage=replace(made.lineage, is_sorted=True))


def limit(of: Walked[R], node: Node, n: int) -> R:
    """The first ``n`` rows over time, or of each whole result that is sorted."""
    rows = of.with_own_names(of.rows(of.child(node)))
    if not rows.lineage.is_sorted:
        return of.handed_on(node, rows, first_rows(rows, n, of.uid(node)))
    lineage, parent = replace(rows.lineage, is_limited=True), rows.recipe
    made = StreamRows(Recipe(lambda ctx: of_result(ctx, parent, n), (parent,)), lineage, rows.schema)
    return of.handed_on(node, rows, made)


def map_rows(of: Walked[R], node: Node, function: Any, is_arrow: bool, barrier: bool, profile: Any) -> R:
    """``mapInArrow`` and ``mapInPandas``: the function sees data rows only, once for each run of rows of the same
    epoch. A stage that is to run in a way of its own is not one with its neighbours."""
    rows = of.with_own_names(of.rows(of.child(node)))
    schema, parent = kept_by_name(of.schema(node), rows.schema), rows.recipe
    full = with_control(schema)
    operation = _mapped(of, function, is_arrow, rows, full)

    def make(ctx: Any) -> Chain:
        if barrier or profile is not None:
            return Chain(in_python(ctx.frame(parent), (operation,), full, barrier, profile), full)
        return ctx.chain(parent).then(operation, full)

    return of.put_out(node, StreamRows(Recipe(make, (parent,)), rows.lineage, schema))


def _mapped(of: Walked[R], function: Any, is_arrow: bool, rows: R, full: T.StructType) -> Operation:
    if is_arrow:
        return MapArrow(function, full)
    refuse_in_pandas([*rows.schema.fields, *full.fields])
    conf = of.spark.conf
    return MapPandas(function, full, conf.get("spark.sql.session.timeZone"), pandas_options(conf))


def numbered(rows: StreamRows, schema: T.StructType, place: int) -> StreamRows:
    """``zipWithIndex``: numbers from 0, in the order of the batch's tasks, in the column of ``schema`` at ``place``.

    Spark counts the rows of all tasks but the last first: what is in front of it, back to the last shuffle, may run
    twice in each batch, as in its own streams. A batch that is run again after a crash is numbered again, and may have
    other numbers.
    """
    full, parent = with_control(schema), rows.recipe

    def make(ctx: Any) -> Chain:
        chain = ctx.chain(parent)
        carried = ctx.place(chain.then(CarryControlRows(arrow_schema(chain.schema)), chain.schema))
        # As many rows of the tasks in front are no data rows.
        listed = [F.col(quoted(name)) for name in rows.schema.names]
        listed.insert(place, F.when(F.col(CTL).isNull(), F.col(_NUMBER) - F.spark_partition_id()))
        made = carried.zipWithIndex(_NUMBER).select(*listed, *CONTROL_COLUMNS).toDF(*full.names)
        return Chain(made, full, (DropControlRowsOff(),))

    counted = Place("AttachDistributedSequence", "in Spark: it counts the rows of a batch", Leaves.WHOLE)
    lineage = replace(rows.lineage, places=(*rows.lineage.places, counted))
    return StreamRows(Recipe(make, (parent,)), lineage, schema)


def static_join_refused(kind: str, left: bool) -> Exception:
    """Of a ``kind`` of join with a table whose stream is on the ``left``, that has rows which match nothing of it."""
    return unsupported(
        f"{kind} join with a streaming DataFrame/Dataset on the {'left' if left else 'right'} and a static "
        "DataFrame/DataSet on the other side not supported: that none of a stream's rows matches is known when it has "
        "ended"
    )


def lateral_join_refused() -> Exception:
    return unsupported(
        "LateralJoin: a left join with what a generator makes of the row, with a condition, is not supported: Spark "
        "makes an aggregation of the stream of it. Filter the elements in front of it, by filter(xs, x -> ...)"
    )


def refuse_pivoted_updates(pivoted: Lineage) -> None:
    """Raises as Spark does where the first aggregation of a pivot of two puts out updates."""
    if pivoted.operators[-1].behind[-1].output_mode is not None:
        raise unsupported(
            "Detected pattern of possible 'correctness' issue due to global watermark: a pivot of numbers or booleans "
            "aggregates twice, so one of its keys has to be a window, or the event time, with withWatermark in front, "
            "as in Spark. Without one, write one aggregate for each value: "
            'agg(F.sum(F.when(F.col("k") == "a", F.col("v"))).alias("a"), ...)'
        )


def sessions_of_sets_refused() -> InvalidInputError:
    return InvalidInputError(
        "cube, rollup and grouping sets of session windows are not there on a stream, on Spark's neither: a session "
        "that a set is without would never end. Write one groupBy(F.session_window(...), ...) for each set of keys"
    )


def drawn(with_replacement: bool, seed: int, least: float, most: float) -> Column:
    """Whether ``sample`` draws a row: anew with every batch, as all that is random is in Spark's streams."""
    if with_replacement:
        raise InvalidInputError(
            "sample(withReplacement=True) is not there on a checkpointed stream: it draws rows several times, "
            "control rows among them; use sample(fraction)"
        )
    # A row has one number: two conditions of rand() would count two.
    return F.exists(F.array(F.rand(seed)), lambda x: (x >= F.lit(least)) & (x < F.lit(most)))
