"""The condition of a join of two streams, as the client has it. Driver; Spark Connect.

The server says of which side each column is: it is asked over rows whose columns are marked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.columns import quoted
from spark_ckpt.operators.join_conditions import JoinedSides, Operands, SplitCondition
from spark_ckpt.operators.join_rules import LEFT, RIGHT, Bound, Times
from spark_ckpt.plan.relations._columns import column, identifier_of, name_among, shape
from spark_ckpt.plan.relations._parts import MARK, located, marked
from spark_ckpt.plan.relations._row_by_row import under_names
from spark_ckpt.plan.relations._translation import Rows, Translation
from spark_ckpt.plan.relations._tree import empty, parts_of
from spark_ckpt.runtime.stateless import with_control
from spark_ckpt.spark_versions.sql_types import DATETIME

Relation = Any
Expression = Any
Pair = tuple[Column, Column]

_SIDES = {"L": LEFT, "R": RIGHT}


@dataclass(frozen=True)
class _Leaf:
    """The column of a side, and whether it is that as it is, or a field of it."""

    side: int
    name: str
    whole: bool


class RelationSides(JoinedSides[Rows]):
    """In front of ``node``."""

    def __init__(self, of: Translation, node: Relation, left: Rows, right: Rows) -> None:
        super().__init__(left, right)
        self.of = of
        self._over = [self._marked(node, rows, prefix) for rows, prefix in zip(self.rows, _SIDES, strict=True)]
        self._leaves: dict[tuple[str, Any], _Leaf | None] = {}
        self._of_texts: dict[str, tuple[int, ...]] = {}

    def _marked(self, node: Relation, rows: Rows, prefix: str) -> Relation:
        known = replace(rows, schema=marked(rows.schema, prefix))
        return under_names(located(node, rows), known, self.of.frame(empty(with_control(known.schema))))

    def reads(self, c: Column) -> tuple[int, ...]:
        found = {side for e in _ends(c) for side in self._sides(e)}
        return tuple(side for side in (LEFT, RIGHT) if side in found)

    def columns(self, c: Column, side: int) -> set[str]:
        """Of a SQL text, all that may be."""
        found: set[str] = set()
        for e in _ends(c):
            leaf = self._leaf(e)
            if leaf is not None:
                found |= {leaf.name} if leaf.side == side else set()
            elif side in self._sides(e):
                found.update(self.rows[side].schema.names)
        return found

    def name(self, c: Column, side: int) -> str | None:
        e = c._expr
        leaf = self._leaf(e) if identifier_of(e) is not None else None
        return leaf.name if leaf is not None and leaf.whole and leaf.side == side else None

    def expression(self, column: Column) -> Column:
        return column

    def text(self, column: Column, side: int) -> str:
        return str(self.of.schema(P.Project(self.rows[side].plan, [column])).names[0])

    def kind(self, c: Column, side: int) -> T.DataType:
        return self.of.schema(P.Project(self.rows[side].plan, [c])).fields[0].dataType

    def same_kind(self, kinds: tuple[T.DataType, T.DataType], pair: Pair) -> T.DataType:
        """What Spark converts both to, where it compares them. Of numbers and times ``coalesce`` tells it."""
        one, other = kinds
        if one == other:
            return one
        nulls = [F.lit(None).cast(kind) for kind in kinds]
        rows = self.of.frame(self._over[LEFT])
        for alike in (T.NumericType, DATETIME):
            if all(isinstance(kind, alike) for kind in kinds):
                return rows.select(F.coalesce(*nulls)).schema.fields[0].dataType
        both = rows.select(nulls[0].alias("one"), nulls[1].alias("other"))
        asked = both.select(F.col("one") == F.col("other"))
        for kind in dict.fromkeys((one, other, T.LongType(), T.DoubleType())):
            if asked.sameSemantics(both.select(_as(kinds, kind))):
                return kind
        raise InvalidInputError(
            f"the join compares {pair[LEFT]} with {pair[RIGHT]}, {one.simpleString()} with {other.simpleString()}: "
            "make them one type first, as in left['k'] == right['k'].cast('long')"
        )

    def _sides(self, e: Expression) -> tuple[int, ...]:
        leaf = self._leaf(e)
        if leaf is not None:
            return (leaf.side,)
        text = repr(e)
        if text not in self._of_texts:
            alone = [side for side in (LEFT, RIGHT) if self.of.resolves(self.rows[side].plan, column(e))]
            if not alone:
                raise InvalidInputError(
                    f"Join: over Spark Connect, the client does not read a SQL text of both streams, found {e}. Write "
                    'it with columns: (a["k"] == b["k"]) & (b["at"] <= a["at"] + F.expr("interval 1 hour"))'
                )
            self._of_texts[text] = () if len(alone) == 2 else tuple(alone)
        return self._of_texts[text]

    def _leaf(self, e: Expression) -> _Leaf | None:
        """None for a text with more than a name."""
        name = identifier_of(e)
        if name is None:
            return None
        key = name, getattr(e, "_plan_id", None)
        if key not in self._leaves:
            self._leaves[key] = self._asked(e)
        return self._leaves[key]

    def _asked(self, e: Expression) -> _Leaf | None:
        asked = P.Project(P.Join(self._over[LEFT], self._over[RIGHT], None, "cross"), [column(e)])
        asked = located(located(asked, self.rows[LEFT]), self.rows[RIGHT])
        found = self.of.schema(asked).fields[0].metadata.get(MARK)
        if found is None:
            return None
        side = _SIDES[found[0][0]]
        return _Leaf(side, self.rows[side].schema.names[int(found[0][1:])], len(found) == 1)


def _ends(c: Column) -> Iterator[Expression]:
    """The names and texts in it."""
    return (e for e in parts_of(c._expr) if isinstance(e, E.ColumnReference | E.SQLExpression))


def _as(kinds: tuple[T.DataType, T.DataType], kind: T.DataType) -> Column:
    columns = [F.col(n) if own == kind else F.col(n).cast(kind) for n, own in zip(("one", "other"), kinds, strict=True)]
    return columns[0] == columns[1]


class RelationCondition(SplitCondition[Rows]):
    """``names`` are those that the join is by."""

    def __init__(self, sides: RelationSides, conditions: list[Column], names: list[str]) -> None:
        super().__init__(sides)
        self._sides = sides
        for name in names:
            self._named_key(name)
        for condition in conditions:
            for part in _conjuncts(condition):
                self.add(part)

    def shape(self, e: Column) -> tuple[str, list[Column]] | None:
        return shape(e)

    def column(self, e: Column) -> Column:
        return e

    def written(self, e: Column) -> str:
        return str(e)

    def operands(self, pair: Pair) -> Operands:
        kinds = self._sides.kind(pair[LEFT], LEFT), self._sides.kind(pair[RIGHT], RIGHT)
        return self._in_one_type(
            pair, kinds, (self._sides.name(pair[LEFT], LEFT), self._sides.name(pair[RIGHT], RIGHT))
        )

    def _in_one_type(
        self, pair: Pair, kinds: tuple[T.DataType, T.DataType], names: tuple[str | None, str | None]
    ) -> Operands:
        kind = self._sides.same_kind(kinds, pair)
        left, right = (c if found == kind else c.cast(kind) for c, found in zip(pair, kinds, strict=True))
        one, other = (name if found == kind else None for name, found in zip(names, kinds, strict=True))
        return Operands((left, right), (kind, kind), (one, other))

    def _named_key(self, name: str) -> None:
        e, sides = E.ColumnReference(quoted(name)), self._sides
        places = [name_among(rows.shown, e, sides.of.case_sensitive) for rows in sides.rows]
        left, right = (rows.schema.fields[at] for rows, at in zip(sides.rows, places, strict=True) if at is not None)
        for side, f in enumerate((left, right)):
            self.compared[side].add(f.name)
        pair = column(e), column(e)
        self.add_key(self._in_one_type(pair, (left.dataType, right.dataType), (left.name, right.name)), False, pair)

    # -- until when rows can match -----------------------------------------------------------------------------

    def ordered(self, op: str, args: list[Column]) -> None:
        """``small < big``, each a time and day-time intervals, as Spark's ``StreamingJoinHelper`` solves it."""
        if op not in ("<", "<=", ">", ">="):
            return
        small, big = args if op in ("<", "<=") else (args[1], args[0])
        lower, upper = self._linear(small), self._linear(big)
        if lower is None or upper is None or lower.time is None or upper.time is None:
            return
        (other, other_column), (side, name) = lower.time, upper.time
        if side != other:
            shift = (lower.micros - upper.micros) // 1000 - (1 if op in ("<=", ">=") else 0)
            self.parts.bounds.append(Bound(side, name, other_column, shift))

    def bound(self, times: Times) -> None:
        """Of those that were found, the ones by the event times."""
        found = self.parts.bounds
        self.parts.bounds = [b for b in found if b.column == times[b.side] and b.other_column == times[1 - b.side]]

    def _linear(self, c: Column) -> _Linear | None:
        """A timestamp column of one side, plus a constant; None if it is anything else."""
        reads = self._sides.reads(c)
        if not reads:
            return self._constant(c)
        name = self._sides.name(c, reads[0]) if len(reads) == 1 else None
        if name is not None:
            is_time = isinstance(self._sides.rows[reads[0]].schema[name].dataType, T.TimestampType)
            return _Linear((reads[0], name), 0) if is_time else None
        op, args = shape(c) or ("", [])
        if op not in ("+", "-") or len(args) != 2:
            return None
        one, other = map(self._linear, args)
        if one is None or other is None or (other.time is not None and (op == "-" or one.time is not None)):
            return None
        return _Linear(one.time or other.time, one.micros + (other.micros if op == "+" else -other.micros))

    def _constant(self, c: Column) -> _Linear | None:
        one = self._sides.of.spark.sql("SELECT 1").select(c)
        if not isinstance(one.schema.fields[0].dataType, T.DayTimeIntervalType):
            return None
        value = one.first()[0]
        return None if value is None else _Linear(None, value // timedelta(microseconds=1))


@dataclass(frozen=True)
class _Linear:
    time: tuple[int, str] | None
    micros: int


def _conjuncts(c: Column) -> list[Column]:
    op, args = shape(c) or ("", [])
    return [part for arg in args for part in _conjuncts(arg)] if op == "and" else [c]
