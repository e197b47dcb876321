"""``Join`` of two streams: both sides in front of one keyed operator. Driver; Spark Connect."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P
from pyspark.sql.connect import proto

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._join_columns import JoinColumns, JoinPlan, SideColumns
from spark_ckpt.plan._join_rules import INNER, LEFT, RIGHT, Parts, Times, Until, grows, join_kind, until
from spark_ckpt.plan._join_wiring import JoinWiring, joined_rows, met, timed, times_of
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.relations._columns import column
from spark_ckpt.plan.relations._join_conditions import JoinedSides, SplitCondition
from spark_ckpt.plan.relations._parts import joined_parts
from spark_ckpt.plan.relations._row_by_row import python_step, step
from spark_ckpt.plan.relations._translation import Part, Rows, Translation, rows_of, with_names, with_own_names
from spark_ckpt.plan.relations.uids import given_uid
from spark_ckpt.runtime.stateless import Project as Only
from spark_ckpt.state.joins.function import COUNTS
from spark_ckpt.types import CONTROL_COLUMNS

Relation = Any

_log = logging.getLogger("spark_ckpt")


@dataclass(frozen=True)
class _Join:
    """``names``: those that it is by. ``times``: the event time of each side; ``ends``: until when rows are kept."""

    node: Relation
    how: str
    sides: JoinedSides
    names: list[str]
    parts: Parts
    times: Times
    ends: tuple[Until | None, Until | None]

    def touches_time(self, c: Column, side: int) -> bool:
        return self.times[side] in self.sides.columns(c, side)

    def computed(self, of: Translation) -> dict[str, str]:
        """What is kept of each side for the condition, as Spark writes it: under another one it means nothing."""
        found = {}
        for side, columns in enumerate(self.parts.computed):
            for name, c in columns.items():
                found[f"{COUNTS[side]}.{name}"] = of.schema(P.Project(self.sides.rows[side].plan, [c])).names[0]
        return found


def stream_join(of: Translation, node: Relation) -> Rows:
    """Raises ``InvalidInputError`` for what no stream of Spark's has, and for conditions of pairs that only Spark can
    compute, in other than inner joins."""
    of.schema(node)  # raises as Spark does
    join = _read(of, node)
    grown = grows(join.ends)
    if grown is not None:
        _log.warning("%s", grown)
    made = _joined(of, join)
    for condition in join.parts.behind:
        made = step(of, P.Filter(made.plan, condition), made)
    return made


def _read(of: Translation, node: Relation) -> _Join:
    how = join_kind(str(proto.Join.JoinType.Name(node.how)).removeprefix("JOIN_TYPE_"))
    left, right = (with_own_names(of.rows(side)) for side in (node.left, node.right))
    sides = JoinedSides(of, node, left, right)
    given = node.on if isinstance(node.on, list) else [] if node.on is None else [node.on]
    names = [on for on in given if isinstance(on, str)]
    split = SplitCondition(sides, [on for on in given if not isinstance(on, str)], names)
    times = times_of([rows.upstream() for rows in sides.rows], split.compared)
    parts = split.parts
    parts.bounds = [b for b in parts.bounds if b.column == times[b.side] and b.other_column == times[1 - b.side]]
    ends = until(how, parts, times)
    if parts.behind and how != INNER:
        raise InvalidInputError(
            f"{how} join: {parts.behind[0]} mixes columns of both streams, and only Spark can compute it, which a "
            f"{how} join has to know earlier. Have columns of one stream on each side of a comparison, as in "
            "a.at <= b.at + interval 1 hour; what an inner join gives can be filtered by anything"
        )
    return _Join(node, how, sides, names, parts, times, ends)


def _joined(of: Translation, join: _Join) -> Rows:
    names = (join.sides.rows[LEFT].schema.names, join.sides.rows[RIGHT].schema.names)
    columns = JoinColumns(join.how, join.parts, names, join.touches_time)
    left, right = (_with(of, rows, columns.sides[side]) for side, rows in enumerate(join.sides.rows))
    plan = JoinPlan(columns, (left.schema, right.schema), join.ends, of.case_sensitive)
    lineages = (left.lineage, right.lineage)
    both = met(lineages, join.times)
    shown = of.schema(join.node).fields
    made_by = f"a {join.how} join"
    function = plan.function(shown, join.names, bool(both.watermarks), made_by, join.computed(of))
    times = timed(lineages, join.times)
    wiring = JoinWiring((left.recipe, right.recipe), times, both, plan, function)
    made = joined_rows(wiring, given_uid(of, join.node), shown)
    rows = rows_of(made.recipe, made.lineage, join.node, made.schema)
    if len(made.schema.fields) > len(shown):  # the other side's columns that it is by, which nobody asks for
        seen = T.StructType(made.schema.fields[: len(shown)])
        rows = python_step(rows, Only([*seen.names, *CONTROL_COLUMNS]), seen)
    return replace(rows, shown=tuple(f.name for f in shown), parts=_parts(of, join, plan))


def _parts(of: Translation, join: _Join, plan: JoinPlan) -> tuple[Part, ...]:
    """Whose columns come out where. In an inner join by names, those of the right side are the left one's, too."""
    shown = len(of.schema(join.node).names)
    places = [
        [at if (at := plan.place(side, name)) is not None and at < shown else None for name in rows.schema.names]
        for side, rows in enumerate(join.sides.rows)
    ]
    same: dict[str, int] = {}
    for key in join.parts.keys[: len(join.names) if join.how == INNER else 0]:
        (one, other), at = key.names, plan.place(LEFT, key.names[LEFT] or "")
        if one is not None and other is not None and at is not None:
            same[other] = at
    return joined_parts(join.sides.rows, places, ({}, same))


def _with(of: Translation, rows: Rows, found: SideColumns) -> Rows:
    """``rows`` with what the join compares, which is computed for rows only that can match."""
    if not found.computed:
        return rows
    computed = dict(found.computed)
    if found.decides and len(found.decides) < len(computed):
        rows = _wider(of, rows, {name: computed.pop(name) for name in found.decides})
        can_match = reduce(and_, (F.col(quoted(name)) for name in found.decides))
        computed = {name: F.when(can_match, c) for name, c in computed.items()}
    return _wider(of, rows, computed)


def _wider(of: Translation, rows: Rows, computed: dict[str, Column]) -> Rows:
    listed = [column(E.UnresolvedStar(None)), *(c.alias(name) for name, c in computed.items())]
    made = step(of, P.Project(rows.plan, listed), rows)
    return with_names(made, [*rows.schema.names, *computed])
