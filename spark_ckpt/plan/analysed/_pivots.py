"""``pivot`` of results that are numbers or booleans: Spark aggregates twice, the rows of each value and, by
``PivotFirst``, what those put out, a row a group. Others are one aggregation with conditions. Driver; classic Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from pyspark.sql import functions as F

from spark_ckpt.execution.java_classes import OPTION, attribute_id, frame_of, java_class, seq_items, to_seq
from spark_ckpt.plan.analysed._nodes import expression_class, kind_of, output_of, relation, resolved
from spark_ckpt.plan.analysed._rules import folded
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed._udf_plan import NodeCopies
from spark_ckpt.plan.analysed.uids import name_below

JavaObject = Any

_VALUE, _RESULT = "__ckpt_pivot", "__ckpt_pivot_"
"""What the state of today's methods calls the pivoted column and the results."""
_ARRAY = "org.apache.spark.sql.catalyst.util.GenericArrayData"
_ARRAY_TYPE = "org.apache.spark.sql.types.ArrayType"


def without_pivots(of: Translation, node: JavaObject) -> JavaObject:
    """An ``Aggregate``, with an array of first values in place of each ``PivotFirst``: there is at most one row of each
    value. If it has a uid, the aggregation below it has that with ``-values`` behind it."""
    found = [pivot for e in seq_items(node.aggregateExpressions()) for pivot in _pivots(e)]
    if not found:
        return node
    copies, below = NodeCopies(of.spark), node.child()
    pivoted, keys = attribute_id(found[0].pivotColumn()), len(seq_items(below.groupingExpressions()))
    names = {attribute_id(a): f"{_RESULT}{i - keys}" for i, a in enumerate(output_of(below))} | {pivoted: _VALUE}

    def firsts(e: JavaObject) -> JavaObject:
        return copies.with_children(e, firsts) if not _is_pivot(e) else _firsts(of, e.aggregateFunction(), names)

    inner = copies.with_expressions(below, partial(_named, pivoted))
    name_below(node, inner, "values")
    return copies.with_expressions(node, firsts).withNewChildren(to_seq([inner]))


def _pivots(e: JavaObject) -> Iterator[JavaObject]:
    if _is_pivot(e):
        yield e.aggregateFunction()
    else:
        for child in seq_items(e.children()):
            yield from _pivots(child)


def _is_pivot(e: JavaObject) -> bool:
    return kind_of(e) == "AggregateExpression" and kind_of(e.aggregateFunction()) == "PivotFirst"


def _named(pivoted: int, e: JavaObject) -> JavaObject:
    """A key or a result of the first aggregation; the pivoted column under the name that the state has."""
    return e.withName(_VALUE) if kind_of(e) == "AttributeReference" and attribute_id(e) == pivoted else e


def _firsts(of: Translation, pivot: JavaObject, names: dict[int, str]) -> JavaObject:
    column, result = (a.withName(names[attribute_id(a)]) for a in (pivot.pivotColumn(), pivot.valueColumn()))
    found = []
    for value in _values(of, pivot):
        branch = java_class("scala.Tuple2")(expression_class("EqualNullSafe")(column, value), result)
        mine = expression_class("CaseWhen")(to_seq([branch]), java_class(OPTION).empty())
        found.append(expression_class("aggregate.First")(mine, True).toAggregateExpression())
    return expression_class("CreateArray")(to_seq(found), False)


def _values(of: Translation, pivot: JavaObject) -> list[JavaObject]:
    """The literals: as values of Python some of them would be others."""
    values = pivot.pivotColumnValues()
    kind = java_class(_ARRAY_TYPE)(pivot.pivotColumn().dataType(), True)
    array = expression_class("Literal")(java_class(_ARRAY)(values), kind)
    numbers = resolved(frame_of(relation([]), of.spark), [F.lit(i) for i in range(values.size())])
    return folded([expression_class("GetArrayItem")(array, number, False) for number in numbers])
