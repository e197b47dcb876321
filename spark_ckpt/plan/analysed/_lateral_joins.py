"""``LateralJoin``: each row with those that a sub-query finds for it. Driver; classic Spark.

A generator, ``LATERAL explode(o.xs)``, is one in a projection, as are computed columns. A sub-query over a table is
Spark's: each batch reads the table as it is then. Spark's analysis refuses one over a stream.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import functions as F

from spark_ckpt.execution.java_classes import OPTION, frame_of, items_of, java_class, seq_items, to_seq
from spark_ckpt.execution.lineage import Leaves, Stays
from spark_ckpt.operators.handlers import lateral_join_refused
from spark_ckpt.plan.analysed._control_rows import ControlColumns
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    expression_class,
    filtered,
    kind_of,
    named_as,
    output_of,
    plan_class,
    project,
    relation,
    resolved,
)
from spark_ckpt.plan.analysed._row_by_row import step
from spark_ckpt.plan.analysed._rules import refuse_aggregated_stream
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed._udf_plan import NodeCopies

JavaObject = Any

_MATCH = "__ckpt_match"
_JOIN_TYPE = "org.apache.spark.sql.catalyst.plans.JoinType"


def lateral_join(of: Translation, node: JavaObject) -> Rows:
    rows, outer = of.rows(node.left()), str(node.joinType().toString()) == "LeftOuter"
    of_the_row = _of_the_row(node.right().plan())
    if of_the_row is not None:
        return _projected(of, node, rows, of_the_row, outer)
    over = partial(_joined, of.spark, node, of.control, outer)
    over(relation([*rows.attributes, *of.control.both]))  # refuses what no stream can have
    made = of.carried_step(node, rows, over, Stays(Leaves.TABLE, "a sub-query over a table"))
    return made if outer else replace(made, lineage=made.lineage.with_watermarks_told())


def _of_the_row(plan: JavaObject) -> list[JavaObject] | None:
    """The nodes of a sub-query that reads nothing but the row, the last one first; None: it reads a table."""
    found = []
    while kind_of(plan) in ("Project", "Filter", "Generate", "SubqueryAlias"):
        if kind_of(plan) != "SubqueryAlias":
            found.append(plan)
        plan = plan.child()
    return found if kind_of(plan) == "OneRowRelation" else None


def _projected(of: Translation, node: JavaObject, rows: Rows, nodes: list[JavaObject], outer: bool) -> Rows:
    """Each node over the rows, whose columns stay."""
    copies, kept, condition = NodeCopies(of.spark), rows.attributes, node.condition()
    if outer and (condition.isDefined() or any(kind_of(n) == "Filter" for n in nodes)):
        raise lateral_join_refused()
    for below in reversed(nodes):
        own = copies.with_expressions(below, lambda e: _of_row(copies, e))
        leaf = relation(rows.attributes)
        if kind_of(own) == "Project":
            made = project([*kept, *seq_items(own.projectList())], leaf)
        elif kind_of(own) == "Filter":
            made = filtered(own.condition(), leaf)
        else:
            given = own.qualifier(), own.generatorOutput(), leaf
            # As Spark writes it: a left join with a generator leaves out rows without elements, other than OUTER.
            made = plan_class("Generate")(own.generator(), to_seq([]), own.outer(), *given)
        rows = step(of, made, rows)
    if condition.isDefined():
        rows = step(of, filtered(condition.get(), relation(rows.attributes)), rows)
    return rows


def _of_row(copies: NodeCopies, e: JavaObject) -> JavaObject:
    """``e`` with columns of the row for what the sub-query says are columns of an outer query."""
    return e.e() if kind_of(e) == "OuterReference" else copies.with_children(e, lambda part: _of_row(copies, part))


def _joined(spark: Any, node: JavaObject, columns: ControlColumns, outer: bool, stream: JavaObject) -> JavaObject:
    """A control row finds nothing, and comes out once: the join is a left one."""
    query = node.right()
    (true,) = resolved(frame_of(query.plan(), spark), [F.lit(True)])
    marked = project([*output_of(query.plan()), named_as(true, _MATCH)], query.plan())
    match = output_of(marked)[-1]
    is_data = expression_class("IsNull")(expression_class("OuterReference")(columns.control))
    asked = query.withNewPlan(filtered(is_data, marked))
    asked = asked.withNewOuterAttrs(to_seq([*items_of(query.outerAttrs()), columns.control]))
    kind, given = java_class(_JOIN_TYPE).apply("LeftOuter"), node.condition()
    made = plan_class("LateralJoin")(stream, asked, kind, given if outer else java_class(OPTION).empty())
    refuse_aggregated_stream(made)
    if not outer:
        found = expression_class("IsNotNull")(match)
        found = expression_class("And")(found, given.get()) if given.isDefined() else found
        made = filtered(expression_class("Or")(columns.is_control(), found), made)
    return project([*output_of(node), *columns.both], made)
