"""The one rule for control rows: how a node that works row by row lets them through. Driver; classic Spark.

A control row has an event in ``__ckpt_ctl`` and no data. It leaves each node exactly once, with both control columns:

- expressions are computed for data rows only, ``CASE WHEN __ckpt_ctl IS NULL THEN e END``;
- filters let control rows pass;
- what multiplies rows multiplies data rows only (:mod:`spark_ckpt.plan.analysed._generators`);
- functions in Python get data rows only (:mod:`spark_ckpt.plan.analysed._udf_plan`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from spark_ckpt.execution.java_classes import attribute_id, seq_items, to_seq
from spark_ckpt.plan.analysed._nodes import (
    all_of,
    expression_class,
    filtered,
    has_sub_query,
    kind_of,
    null_of,
    output_of,
    parts_of,
    project,
)

JavaObject = Any

_PLAIN = ("AttributeReference", "Literal")


@dataclass(frozen=True)
class ControlColumns:
    """Spark's attributes of them."""

    tag: JavaObject
    control: JavaObject

    @property
    def both(self) -> tuple[JavaObject, JavaObject]:
        return self.tag, self.control

    def is_control(self) -> JavaObject:
        return expression_class("IsNotNull")(self.control)

    def is_data(self) -> JavaObject:
        return expression_class("IsNull")(self.control)

    def guarded(self, value: JavaObject) -> JavaObject:
        """``value`` of data rows; null in control rows."""
        return expression_class("If")(self.is_data(), value, null_of(value))


def carried(node: JavaObject, columns: ControlColumns) -> Callable[[JavaObject], JavaObject]:
    """``node`` over a child that has the control columns behind its own, as a function of that child."""
    kind = kind_of(node)
    if kind == "Project":
        listed = seq_items(node.projectList())
        kept = [_guarded(e, columns) for e in listed]
        return partial(project, [*kept, *columns.both])
    if kind == "Filter":
        return partial(_filtered, parts_of(node.condition()), columns)
    return partial(_in_order, node, columns)


def _filtered(parts: list[JavaObject], columns: ControlColumns, child: JavaObject) -> JavaObject:
    """Data rows for which all ``parts`` hold. Sub-queries as values come last: Spark computes them for the rows that
    the other parts let through, of which each finds one value where others would find several."""
    last = [part for part in parts if has_sub_query(part, "SCALAR_SUBQUERY")]
    first = [part for part in parts if part not in last]
    if first:
        child = filtered(expression_class("Or")(columns.is_control(), all_of(first)), child)
    if not last:
        return child
    # Spark's optimizer would merge both filters, and others above, to ``is_control OR (first AND last)``, which it
    # cannot take apart again. It merges none with one that is not deterministic, and finds nothing in common here.
    fence, has_event = expression_class("SparkPartitionID"), expression_class("AtLeastNNonNulls")
    child = filtered(expression_class("EqualNullSafe")(fence(), fence()), child)
    return filtered(expression_class("Or")(has_event(1, to_seq([columns.control])), all_of(last)), child)


def _guarded(expression: JavaObject, columns: ControlColumns) -> JavaObject:
    """A named expression, whose value is null in control rows. Columns and constants stay as they are."""
    if kind_of(expression) != "Alias" or kind_of(expression.child()) in _PLAIN:
        return expression
    return expression.withNewChildren(to_seq([columns.guarded(expression.child())]))


def _in_order(node: JavaObject, columns: ControlColumns, child: JavaObject) -> JavaObject:
    """A node that hands on the columns of its child, with the control columns at the end."""
    made = node.withNewChildren(to_seq([child]))
    wanted = [*output_of(node), *columns.both]
    found = [attribute_id(a) for a in output_of(made)]
    return made if found == [attribute_id(a) for a in wanted] else project(wanted, made)
