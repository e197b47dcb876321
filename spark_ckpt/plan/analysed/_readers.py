"""What nodes say, for the handlers that both translations share. Driver; classic Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial, reduce
from typing import Any

from pyspark.broadcast import Broadcast
from pyspark.serializers import CPickleSerializer
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import StructType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.columns import refuse_reserved
from spark_ckpt.execution.java_classes import attribute_id, frame_of, java_class, seq_items, to_seq
from spark_ckpt.execution.spark_errors import unsupported
from spark_ckpt.operators import batch_groups as groups
from spark_ckpt.operators import functions_with_state as with_state
from spark_ckpt.operators import handlers
from spark_ckpt.operators.batch_groups import PORTIONS, STATIC_FIRST, StreamSide, TableSide, UserFunction
from spark_ckpt.operators.distinct import DROP_DUPLICATES, WITHIN
from spark_ckpt.operators.functions_with_state import Processor, StateFunction
from spark_ckpt.operators.walks import own_names
from spark_ckpt.plan.analysed._control_rows import ControlColumns
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    analysed,
    kind_of,
    named_as,
    output_of,
    plan_class,
    project,
    relation,
    schema_of,
)
from spark_ckpt.plan.analysed._row_by_row import step
from spark_ckpt.plan.analysed._rules import applied
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.runtime.batch_groups import BY
from spark_ckpt.spark_versions.processors import gets_frames, processor_behind
from spark_ckpt.types import TAG

JavaObject = Any


def union(of: Translation, node: JavaObject) -> Rows:
    """By position: Spark's analysis has put names in order and types in common in front of it."""
    return handlers.union(
        of, node, seq_items(node.children()), lambda _rows, frames: reduce(lambda one, other: one.union(other), frames)
    )


_RULES = {"Intersect": "ReplaceIntersectWithSemiJoin", "Except": "ReplaceExceptWithAntiJoin"}


def set_operation(of: Translation, node: JavaObject) -> Rows:
    """Nulls are equal, and each row comes once."""
    kind = kind_of(node)
    if node.isAll():
        raise unsupported(
            f"{kind} All: how often a row comes is known when both sides have ended: write {kind.upper()}, or join"
        )
    if node.right().isStreaming() and not node.left().isStreaming():
        raise unsupported(
            f"{kind} on a streaming DataFrame/Dataset on the right is not supported: that a row of the table is not in "
            "the stream is known when it has ended. An INTERSECT has the stream first"
        )
    return of.rows(applied(_RULES[kind], node))


def distinct(of: Translation, node: JavaObject) -> Rows:
    """What SQL calls DISTINCT is an aggregation without aggregates: in mode update, a row comes with each batch that
    has it. The method ``distinct()`` is a ``Deduplicate``."""
    return of.rows(applied("ReplaceDistinctWithAggregate", node))


_METHODS = {"Deduplicate": DROP_DUPLICATES, "DeduplicateWithinWatermark": WITHIN}


def deduplicate(of: Translation, node: JavaObject) -> Rows:
    """The rows come out as they are, under the ids that they had."""
    rows = of.rows(node.child())
    return handlers.distinct(of, node, rows, _METHODS[kind_of(node)], {rows.place(k) for k in seq_items(node.keys())})


def sort(of: Translation, node: JavaObject) -> Rows:
    return handlers.sort(of, node, partial(_sorted, of.spark, node, of.control))


def _sorted(spark: Any, node: JavaObject, columns: ControlColumns, child: JavaObject) -> JavaObject:
    frame = frame_of(child, spark)
    together = frame.repartition(1) if getattr(node, "global")() else frame
    (by_epoch,) = seq_items(analysed(together.sortWithinPartitions(F.col(TAG))).order())
    orders = [_of_data_rows(order, columns) for order in seq_items(node.order())]
    return plan_class("Sort")(to_seq([by_epoch, *orders]), False, analysed(together), node.hint())


def _of_data_rows(order: JavaObject, columns: ControlColumns) -> JavaObject:
    return order.withNewChildren(to_seq([columns.guarded(order.child()), *seq_items(order.sameOrderExpressions())]))


def limit(of: Translation, node: JavaObject) -> Rows:
    """``GlobalLimit`` over ``LocalLimit``: the number is that of the first."""
    if kind_of(node) == "LocalLimit":
        return of.rows(node.child())
    return handlers.limit(of, node, int(node.limitExpr().eval(None)))


def numbered(of: Translation, node: JavaObject) -> Rows:
    """The number is the first column."""
    found = schema_of(node)
    number, *columns = own_names(found.names)
    rows = of.with_names(of.rows(node.child()), columns)
    schema = StructType().add(number, found[0].dataType)
    return of.put_out(node, handlers.numbered(rows, StructType([*schema, *rows.schema]), 0))


def function_of(node: JavaObject) -> Any:
    """A copy of the function that PySpark pickled into ``node``. This process pickled it, so it may read it.

    Raises ``InvalidInputError`` for one so large that PySpark made a broadcast of it.
    """
    command = node.functionExpr().func().command()
    data = bytes(command.toArray(java_class("scala.reflect.ClassTag").Byte()))
    found = CPickleSerializer().loads(data)
    if isinstance(found, Broadcast):
        raise InvalidInputError(
            f"{kind_of(node)}: the function is larger than spark.broadcast.UDFCompressionThreshold; load what it holds "
            "when it is called, or broadcast that by spark.sparkContext.broadcast"
        )
    function, _return_type = found
    return function


def map_rows(of: Translation, node: JavaObject) -> Rows:
    profile = _profile(node.profile().get()) if node.profile().isDefined() else None
    return handlers.map_rows(
        of, node, function_of(node), kind_of(node) == "MapInArrow", bool(node.isBarrier()), profile
    )


def _profile(profile: JavaObject) -> Any:
    from pyspark.resource import ResourceProfile

    return ResourceProfile(_java_resource_profile=profile)


_TIME_MODES = {"NoTime": "None", "ProcessingTime": "ProcessingTime", "EventTime": "EventTime"}
"""Spark's objects -> what PySpark calls them."""


def function_with_state(of: Translation, node: JavaObject) -> Rows:
    """``applyInPandasWithState``."""
    rows = of.rows(node.child())
    state = T._parse_datatype_json_string(node.stateType().json())
    assert isinstance(state, T.StructType)
    asked = StateFunction(function_of(node), state, str(node.timeout().toString()))
    return with_state.function_with_state(
        of, node, rows, _places(rows, seq_items(node.groupingAttributes())), asked, _mode(node)
    )


def processor(of: Translation, node: JavaObject) -> Rows:
    """``transformWithState`` and ``transformWithStateInPandas``."""
    grouped, count = node.child(), int(node.groupingAttributesLen())
    rows = of.rows(grouped.child())  # Spark's projection has the keys once more in front
    initial = None
    if node.hasInitialState():
        initial = frame_of(node.initialState(), of.spark), int(node.initGroupingAttrsLen())
    asked = Processor(
        processor_behind(function_of(node)),
        gets_frames(node),
        _TIME_MODES[str(node.timeMode().toString())],
        next((str(a.name()) for a in output_of(node) if attribute_id(a) in of.output_times), None),
        initial,
    )
    return with_state.processor(of, node, rows, _places(rows, output_of(grouped)[:count]), asked, _mode(node))


def output_times(of: Translation, node: JavaObject) -> Rows:
    """``UpdateEventTimeWatermarkColumn``: which column of what a processor puts out is the event time behind it."""
    of.output_times.add(attribute_id(node.eventTime()))
    return replace(of.rows(node.child()), attributes=output_of(node), schema=schema_of(node))


def _places(rows: Rows, keys: Iterable[JavaObject]) -> list[int]:
    return [rows.place(key) for key in keys]


def _mode(node: JavaObject) -> str:
    return str(node.outputMode().toString()).lower()


def batch_groups(of: Translation, node: JavaObject) -> Rows:
    side = _stream_side(of, node.child(), len(seq_items(node.groupingAttributes())))
    portions = int(node.functionExpr().evalType()) in PORTIONS
    return groups.batch_groups(of, node, side, _function(node, portions, True))


def batch_cogroups(of: Translation, node: JavaObject) -> Rows:
    if not node.left().isStreaming():
        raise InvalidInputError(STATIC_FIRST)
    left = _stream_side(of, node.left(), int(node.leftGroupingLen()))
    right = (_stream_side if node.right().isStreaming() else _table_side)(
        of, node.right(), int(node.rightGroupingLen())
    )
    return groups.batch_cogroups(of, node, left, right, _function(node))


def _function(node: JavaObject, portions: bool = False, large: bool = False) -> UserFunction:
    return UserFunction(function_of(node), kind_of(node).endswith("Pandas"), portions, large)


def _stream_side(of: Translation, grouped: JavaObject, count: int) -> StreamSide:
    """``grouped`` is Spark's projection of the keys and, behind them, all columns."""
    rows, listed, keys = of.rows(grouped.child()), *_split(grouped, count)
    if [attribute_id(e) for e in listed] != rows.ids:
        rows = step(of, project(listed, relation(rows.attributes)), rows)
    return StreamSide(rows, keys)


def _table_side(of: Translation, grouped: JavaObject, count: int) -> TableSide:
    listed, keys = _split(grouped, count)
    frame = frame_of(project(listed, grouped.child()), of.spark)
    refuse_reserved([c for c in frame.columns if not c.startswith(BY)], "the static side")
    return TableSide(frame, keys)


def _split(grouped: JavaObject, count: int) -> tuple[list[JavaObject], list[str]]:
    """The columns, the hidden ones among them, and the names of the keys."""
    listed = seq_items(grouped.projectList())
    columns, keys = listed[count:], []
    known = {attribute_id(c): str(c.name()) for c in columns}
    for i, key in enumerate(listed[:count]):
        name = known.get(attribute_id(key)) if kind_of(key) == "AttributeReference" else None
        keys.append(f"{BY}{i}" if name is None else name)
        if name is None:
            columns.append(named_as(key.child() if kind_of(key) == "Alias" else key, keys[-1]))
    return columns, keys
