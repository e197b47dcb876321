"""``Expand``: each row once for each of several projections, as of UNPIVOT and grouping sets. Driver; classic Spark."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark.sql import functions as F

from spark_ckpt.plan._in_arrow import Stays
from spark_ckpt.plan._java_classes import frame_of, to_seq
from spark_ckpt.plan.analysed._control_rows import ControlColumns
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    expression_class,
    filtered,
    named_as,
    output_of,
    plan_class,
    project,
    relation,
    resolved,
)
from spark_ckpt.plan.analysed._row_by_row import carried_step
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed.ledger_of_expressions import Leaves
from spark_ckpt.plan.udf_plan import items_of, seq_items

JavaObject = Any

_PLACE = "__ckpt_projection"


def expand(of: Translation, node: JavaObject) -> Rows:
    rows = of.rows(node.child())
    projections = seq_items(node.projections())
    numbers = resolved(frame_of(relation(rows.attributes), of.spark), [F.lit(i) for i in range(len(projections))])
    over = partial(_expanded, node, of.control, projections, numbers)
    return carried_step(of, node, rows, over, Stays(Leaves.OPERATION, "rows are repeated"))


def _expanded(
    node: JavaObject,
    columns: ControlColumns,
    projections: list[JavaObject],
    numbers: list[JavaObject],
    child: JavaObject,
) -> JavaObject:
    """Control rows are repeated, too, and all but the first of each are left out behind it."""
    place = named_as(numbers[0], _PLACE).toAttribute()
    listed = [to_seq([*items_of(p), *columns.both, n]) for p, n in zip(projections, numbers, strict=True)]
    out = [*output_of(node), *columns.both]
    made = plan_class("Expand")(to_seq(listed), to_seq([*out, place]), child)
    first = expression_class("EqualTo")(place, numbers[0])
    return project(out, filtered(expression_class("Or")(columns.is_data(), first), made))
