"""``Join`` of two streams, and of a stream with a table. Driver; Spark Connect.

As in :mod:`spark_ckpt.plan.analysed._joins`: beside a table a control row matches nothing, an inner join is an outer
one that keeps the stream, and a filter of what found something. A join by names is one by a condition: a control row
may have a value there, as behind ``fillna``.
"""

from __future__ import annotations

import copy
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
from spark_ckpt.execution.chain import StreamRows
from spark_ckpt.execution.columns import quoted
from spark_ckpt.execution.lineage import Leaves, Stays
from spark_ckpt.operators import stream_joins as joins
from spark_ckpt.operators.handlers import static_join_refused
from spark_ckpt.operators.join_columns import JoinPlan
from spark_ckpt.operators.join_rules import INNER, LEFT, join_kind
from spark_ckpt.operators.walks import python_step
from spark_ckpt.plan.relations._columns import column, identifier_of, is_control, is_data
from spark_ckpt.plan.relations._control_rows import control_last
from spark_ckpt.plan.relations._join_conditions import RelationCondition, RelationSides
from spark_ckpt.plan.relations._parts import joined_parts
from spark_ckpt.plan.relations._row_by_row import step
from spark_ckpt.plan.relations._translation import Part, Rows, Translation, rows_of
from spark_ckpt.plan.relations._tree import ids_in, rewritten
from spark_ckpt.runtime.stateless import Project as Only
from spark_ckpt.types import CONTROL_COLUMNS

Relation = Any

_MATCH, _LEFT = "__ckpt_match", "__ckpt_left_"
_PREFIX = "JOIN_TYPE_"
_KEEPS_STREAM = {True: ("LEFT_OUTER", "LEFT_ANTI"), False: ("RIGHT_OUTER",)}


@dataclass(frozen=True)
class _StaticJoin:
    node: Relation
    of: Translation
    stream_left: bool

    @property
    def kind(self) -> str:
        found = str(proto.Join.JoinType.Name(self.node.how)).removeprefix(_PREFIX)
        return "INNER" if found == "CROSS" else found

    @property
    def table(self) -> Relation:
        return self.node.right if self.stream_left else self.node.left

    def over(self, stream: Relation) -> Relation:
        """The join over the relation of the stream, control columns included."""
        if self.kind == "INNER":
            return control_last(self._matched(stream, self.table))
        if self.kind == "LEFT_SEMI" and self.names:
            return control_last(self._matched(stream, self._keys_once()))
        if self.kind == "LEFT_SEMI":
            return self._existing(stream)
        return control_last(self._joined(stream, self.table, self.kind))

    def _keys_once(self) -> Relation:
        """Of the table, for a left semi join: then each row finds one at most."""
        keys = P.Project(self.table, [_of(self.table, name) for name in self.names])
        return P.Deduplicate(keys, all_columns_as_keys=True)

    def _existing(self, stream: Relation) -> Relation:
        """In the sub-query, names are those of the table: what is of the stream gets a name of its own there."""
        outer: dict[str, Column] = {}

        def put(e: Any) -> Any:
            if identifier_of(e) is None and isinstance(e, E.SQLExpression):
                raise InvalidInputError(
                    f"Join: over Spark Connect, which side {e._expr!r} is of is not known in a left semi join; write "
                    'its condition without SQL text, as in stream["k"] == table["k"]'
                )
            if identifier_of(e) is None or self._of_table(e):
                return None
            name = f"{_LEFT}{len(outer)}"
            outer[name] = column(e)
            return F.col(name).outer()._expr

        condition = column(rewritten(self._condition([])._expr, put))
        found = self.of.frame(P.Filter(self.table, condition)).exists()
        wide = P.WithColumns(stream, list(outer), list(outer.values())) if outer else stream
        return control_last(P.Drop(P.Filter(wide, is_control() | found), list(outer)))

    def _of_table(self, e: Any) -> bool:
        if getattr(e, "_plan_id", None) is not None:
            return e._plan_id in ids_in(self.table)
        return self.of.resolves(self.table, column(e))

    def _matched(self, stream: Relation, table: Relation) -> Relation:
        marked = P.Project(table, [column(E.UnresolvedStar(None)), F.lit(True).alias(_MATCH)])
        outer = self._joined(stream, marked, "LEFT_OUTER" if self.stream_left else "RIGHT_OUTER")
        kept = P.Filter(outer, is_control() | F.col(_MATCH).isNotNull())
        return P.Drop(kept, [_MATCH])

    def _joined(self, stream: Relation, table: Relation, kind: str) -> Relation:
        left, right = (stream, table) if self.stream_left else (table, stream)
        made = copy.copy(self.node)
        made._child = made.left = left
        made.right, made.how = right, proto.Join.JoinType.Value(_PREFIX + kind)
        names = self.names
        made.on = is_data() if not names and self.node.on is None else self._condition(names) & is_data()
        return made if not names else self._as_by_names(made, names, kind, table is not self.table)

    @property
    def names(self) -> list[str]:
        on = self.node.on if isinstance(self.node.on, list) else [self.node.on]
        return [name for name in on if isinstance(name, str)]

    def _condition(self, names: list[str]) -> Column:
        sides = self.node.left, self.node.right
        if names:
            return reduce(and_, [_of(sides[0], n) == _of(sides[1], n) for n in names])
        on = self.node.on
        return reduce(and_, on) if isinstance(on, list) else on

    def _as_by_names(self, made: Relation, names: list[str], kind: str, marked: bool) -> Relation:
        """What comes out of a join by names: these once and in front, of the side that is kept."""
        left, right = self.node.left, self.node.right
        keys = [_of(right if kind == "RIGHT_OUTER" else left, name) for name in names]
        sides = (left,) if self.kind in ("LEFT_ANTI", "LEFT_SEMI") else (left, right)
        rest = [_of(s, c) for s in sides for c in self.of.schema(s).names if not self._is_key(c, names)]
        control = [F.col(name) for name in CONTROL_COLUMNS]
        return P.Project(made, [*keys, *rest, *([F.col(_MATCH)] if marked else []), *control])

    def _is_key(self, name: str, names: list[str]) -> bool:
        return any(self.of.same_name(name, key) for key in names)


def _of(side: Relation, name: str) -> Column:
    return column(E.ColumnReference(quoted(name), side._plan_id))


def join(of: Translation, node: Relation) -> Rows:
    """Each batch reads the table as it is then."""
    left, right = of.reads_stream(node.left), of.reads_stream(node.right)
    if left and right:
        return stream_join(of, node)
    made = _StaticJoin(node, of, left)
    if made.kind not in ("INNER", *_KEEPS_STREAM[left], *(("LEFT_SEMI",) if left else ())):
        raise static_join_refused(made.kind.title().replace("_", ""), left)
    rows = of.rows(node.left if left else node.right)
    stays = Stays(Leaves.TABLE, "a join with a table")
    joined = of.carried_step(node, rows, made.over, stays)
    told = joined.lineage if made.kind in ("LEFT_OUTER", "RIGHT_OUTER") else joined.lineage.with_watermarks_told()
    return replace(joined, lineage=told, parts=_parts_beside(of, made, rows))


def _parts_beside(of: Translation, made: _StaticJoin, rows: Rows) -> tuple[Part, ...]:
    """Whose columns come out where. Of a join by names, those are none that only one side has."""
    table = made.table
    names = [list(rows.shown), list(of.schema(table).names)]
    by = made.names
    keeps = [[not made._is_key(name, by) for name in side] for side in names]
    sides = [rows, rows_of(replace(rows, schema=of.schema(table)), table)]
    if not made.stream_left:
        names, keeps, sides = names[::-1], keeps[::-1], sides[::-1]
    if made.kind in ("LEFT_SEMI", "LEFT_ANTI"):
        keeps[1] = [False] * len(names[1])
    places: list[list[int | None]] = []
    at = len(by)
    for side in keeps:
        places.append([at + sum(side[:i]) if kept else None for i, kept in enumerate(side)])
        at += sum(side)
    stream = 0 if made.stream_left else 1
    for number, key in enumerate(by):  # of an outer join, and of an inner one, they are the stream's
        own = next(i for i, name in enumerate(names[stream]) if of.same_name(name, key))
        places[stream][own] = number
    return joined_parts(sides, places, ({}, {}))


def stream_join(of: Translation, node: Relation) -> Rows:
    shown = of.schema(node).names  # raises as Spark does
    how = join_kind(str(proto.Join.JoinType.Name(node.how)).removeprefix("JOIN_TYPE_"))
    left, right = (of.with_own_names(of.rows(side)) for side in (node.left, node.right))
    given = node.on if isinstance(node.on, list) else [] if node.on is None else [node.on]
    names = [on for on in given if isinstance(on, str)]
    sides = RelationSides(of, node, left, right)
    split = RelationCondition(sides, [on for on in given if not isinstance(on, str)], names)
    joined, plan = joins.stream_join(of, node, how, split, names, of.case_sensitive)
    parts = _parts(split, plan, len(shown), names if how == INNER else [])
    made = replace(of.put_out(node, _as_shown(joined, len(shown))), shown=tuple(shown), parts=parts)
    for condition in split.behind:
        made = step(of, P.Filter(made.plan, condition), made)
    return made


def _as_shown(joined: StreamRows, count: int) -> StreamRows:
    """Without the other side's columns that the join is by, which nobody asks for."""
    if len(joined.schema) == count:
        return joined
    seen = T.StructType(joined.schema.fields[:count])
    return python_step(joined, Only([*seen.names, *CONTROL_COLUMNS]), seen)


def _parts(split: RelationCondition, plan: JoinPlan, shown: int, same_names: list[str]) -> tuple[Part, ...]:
    """Whose columns come out where. In an inner join by names, ``same_names``, those of the right side are the left
    one's, too."""
    sides = split.sides.rows
    places = [
        [at if (at := plan.place(side, name)) is not None and at < shown else None for name in rows.schema.names]
        for side, rows in enumerate(sides)
    ]
    same: dict[str, int] = {}
    for key in split.parts.keys[: len(same_names)]:
        (one, other), at = key.names, plan.place(LEFT, key.names[LEFT] or "")
        if one is not None and other is not None and at is not None:
            same[other] = at
    return joined_parts(sides, places, ({}, same))
