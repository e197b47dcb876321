"""``Join`` of two streams: both sides in front of one keyed operator. Driver; classic Spark."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._java_classes import EXPRESSION_UTILS, frame_of, java_class
from spark_ckpt.plan._join_columns import JoinColumns, JoinPlan, SideColumns
from spark_ckpt.plan._join_rules import INNER, LEFT, RIGHT, Times, Until, grows, join_kind, until
from spark_ckpt.plan._join_wiring import JoinWiring, joined_rows, met, timed, times_of
from spark_ckpt.plan.analysed._join_conditions import JoinedSides, SplitCondition, conjuncts, time_bounds
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    column_of,
    filtered,
    kind_of,
    named_as,
    output_of,
    project,
    relation,
    resolved,
    schema_of,
    with_own_names,
)
from spark_ckpt.plan.analysed._row_by_row import step
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed._udf_plan import NodeCopies
from spark_ckpt.plan.analysed.uids import given_uid
from spark_ckpt.state.joins.function import COUNTS

JavaObject = Any

_log = logging.getLogger("spark_ckpt")


@dataclass(frozen=True)
class _Join:
    """``condition``: what was found in the node's. ``times``: the event time of each side; ``ends``: until when its
    rows are kept."""

    node: JavaObject
    how: str
    sides: JoinedSides
    condition: SplitCondition
    times: Times
    ends: tuple[Until | None, Until | None]

    def touches_time(self, column: Column, side: int) -> bool:
        return self.times[side] in self.sides.columns(java_class(EXPRESSION_UTILS).expression(column._jc), side)

    def computed(self, spark: Any) -> dict[str, str]:
        """What is kept of each side for the condition, as Spark writes it: under another one it means nothing."""
        found = {}
        for side, columns in enumerate(self.condition.parts.computed):
            frame = frame_of(relation(self.sides.rows[side].attributes), spark)
            for name, column in columns.items():
                found[f"{COUNTS[side]}.{name}"] = _text(frame, column)
        return found


def _text(frame: Any, column: Column) -> str:
    """Spark leaves out a cast of its own, which tells computed columns apart, too."""
    tree = java_class(EXPRESSION_UTILS).expression(column._jc)
    text = str(frame.select(column).columns[0])
    if kind_of(tree) != "Cast" or kind_of(tree.child()) == "AttributeReference":
        return text
    kind = tree.dataType()
    return text if kind.json() == tree.child().dataType().json() else f"CAST({text} AS {kind.sql()})"


def stream_join(of: Translation, node: JavaObject) -> Rows:
    """Raises ``InvalidInputError`` for what no stream of Spark's has, and for conditions of pairs that only Spark can
    compute, in other than inner joins."""
    join = _read(of, node)
    grown = grows(join.ends)
    if grown is not None:
        _log.warning("%s", grown)
    made = _joined(of, join)
    for condition in join.condition.behind:
        made = step(of, filtered(condition, relation(made.attributes)), made)
    return made


def _read(of: Translation, node: JavaObject) -> _Join:
    how, given = join_kind(str(node.joinType().toString())), node.condition()
    left, right = (with_own_names(of.rows(side)) for side in (node.left(), node.right()))
    sides, copies = JoinedSides(left, right), NodeCopies(of.spark)
    conditions = conjuncts(given.get(), copies) if given.isDefined() else []
    condition = SplitCondition(of.spark, sides, conditions)
    times = times_of([rows.upstream() for rows in sides.rows], condition.compared)
    condition.parts.bounds += time_bounds(copies, sides, conditions, times)
    ends = until(how, condition.parts, times)
    if condition.behind and how != INNER:
        raise InvalidInputError(
            f"{how} join: {condition.behind[0].sql()} mixes columns of both streams, and only Spark can compute it "
            f"({condition.why}), which a {how} join has to know earlier. Have columns of one stream on each side of a "
            "comparison, as in a.at <= b.at + interval 1 hour; what an inner join gives can be filtered by anything"
        )
    return _Join(node, how, sides, condition, times, ends)


def _joined(of: Translation, join: _Join) -> Rows:
    names = (join.sides.rows[LEFT].schema.names, join.sides.rows[RIGHT].schema.names)
    columns = JoinColumns(join.how, join.condition.parts, names, join.touches_time)
    left, right = (_with(of, rows, columns.sides[side]) for side, rows in enumerate(join.sides.rows))
    plan = JoinPlan(columns, (left.schema, right.schema), join.ends, True)
    lineages = (left.lineage, right.lineage)
    both = met(lineages, join.times)
    shown = schema_of(join.node).fields
    function = plan.function(shown, None, bool(both.watermarks), f"a {join.how} join", join.computed(of.spark))
    times = timed(lineages, join.times)
    wiring = JoinWiring((left.recipe, right.recipe), times, both, plan, function)
    made = joined_rows(wiring, given_uid(of, join.node), shown)
    return Rows(made.recipe, made.lineage, output_of(join.node), made.schema)


def _with(of: Translation, rows: Rows, found: SideColumns) -> Rows:
    """``rows`` with what the join compares, which is computed for rows only that can match."""
    if not found.computed:
        return rows
    names, computed = rows.schema.names, found.computed
    if found.decides and len(found.decides) < len(computed):
        first = _resolved(of, rows, [computed[name] for name in found.decides])
        decided = [named_as(tree, name) for tree, name in zip(first, found.decides, strict=True)]
        rows = step(of, project([*rows.attributes, *decided], relation(rows.attributes)), rows)
        known = dict(zip(found.decides, map(column_of, rows.attributes[len(names) :]), strict=True))
        can_match = reduce(and_, known.values())
        computed = {name: known.get(name, F.when(can_match, column)) for name, column in computed.items()}
    trees = [*rows.attributes[: len(names)], *_resolved(of, rows, list(computed.values()))]
    named = [named_as(tree, name) for tree, name in zip(trees, [*names, *computed], strict=True)]
    return step(of, project(named, relation(rows.attributes)), rows)


def _resolved(of: Translation, rows: Rows, columns: list[Column]) -> list[JavaObject]:
    return resolved(frame_of(relation(rows.attributes), of.spark), columns)
