"""``Join`` of a stream with a table, so that each control row comes out exactly once. Driver; Spark Connect.

As in :mod:`spark_ckpt.plan.analysed._static_joins`: a control row matches nothing, an inner join is an outer one that
keeps the stream, and a filter of what found something. A join by names is one by a condition: a control row may have a
value there, as behind ``fillna``.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import and_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P
from pyspark.sql.connect import proto

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.relations._columns import column, is_control, is_data
from spark_ckpt.plan.relations._control_rows import control_last
from spark_ckpt.plan.relations._row_by_row import carried_step
from spark_ckpt.plan.relations._stream_joins import stream_join
from spark_ckpt.plan.relations._translation import Rows, Translation
from spark_ckpt.plan.spark_errors import unsupported
from spark_ckpt.types import CONTROL_COLUMNS

Relation = Any

_MATCH = "__ckpt_match"
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
        if self.kind == "LEFT_SEMI":
            return control_last(self._matched(stream, self._keys_once()))
        return control_last(self._joined(stream, self.table, self.kind))

    def _keys_once(self) -> Relation:
        """Of the table, for a left semi join: then each row finds one at most."""
        keys = P.Project(self.table, [_of(self.table, name) for name in self.names])
        return P.Deduplicate(keys, all_columns_as_keys=True)

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
        kind, side = made.kind.title().replace("_", ""), "left" if left else "right"
        raise unsupported(
            f"{kind} join with a streaming DataFrame/Dataset on the {side} and a static DataFrame/DataSet on the "
            "other side not supported: that none of a stream's rows matches is known when it has ended"
        )
    if made.kind == "LEFT_SEMI" and not made.names:
        raise InvalidInputError(
            "Join: over Spark Connect a left semi join with a table is one by names, as in "
            'stream.join(table, ["k"], "left_semi")'
        )
    rows = of.rows(node.left if left else node.right)
    out = carried_step(of, node, rows, partial(_StaticJoin.over, made), "a join with a table")
    keeps = made.kind in ("LEFT_OUTER", "RIGHT_OUTER")
    return out if keeps else replace(out, lineage=out.lineage.with_watermarks_told())
