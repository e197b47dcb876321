"""Joins with a static DataFrame as Spark Connect's client has them, for those that run in Python. Driver.

As in :mod:`spark_ckpt.plan._in_arrow_connect`: the join is put together again with every name, side and cast spelt out,
and is taken only if Spark says that both are the same to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.connect import expressions as E
from pyspark.sql.connect.column import Column
from pyspark.sql.connect.plan import LogicalPlan, SubqueryAlias

from spark_ckpt.expressions.tree import Tree
from spark_ckpt.plan._condition import ConnectTree
from spark_ckpt.plan._connect_asked import called
from spark_ckpt.plan._connect_scope import Scope, parts_of, without_texts
from spark_ckpt.plan._in_arrow import StaysError
from spark_ckpt.plan._in_arrow_connect import same, settings_of, trees_of
from spark_ckpt.plan._sql_expressions import read
from spark_ckpt.plan.columns import quoted

SparkDF = Any
Expression = Any
_ALIASES = ("__ckpt_one", "__ckpt_other")


@dataclass(frozen=True)
class JoinParts:
    """What the condition is the AND of, over the columns of both sides, the stream's ``width`` first, and what of these
    comes out."""

    conjuncts: list[Tree]
    out: list[tuple[str, int]]
    width: int


def join_parts(left: SparkDF, right: SparkDF, on: Any, kind: str) -> JoinParts:
    """Raises ``StaysError`` where the join may be another one to Spark than was thought."""
    settings = settings_of(left.sparkSession)
    fields = [df.schema.fields for df in (left, right)]
    names, types = [f.name for side in fields for f in side], [f.dataType for side in fields for f in side]
    scope = _Both(names, types, settings.case_sensitive, len(fields[0]), (_plan(left), _plan(right)))
    by_name = isinstance(on, list)
    whole = [] if by_name else [without_texts(on._expr, lambda text: read(text, settings.zone))]
    parts = [_equal(name) for name in on] if by_name else [scope.of_sides(e) for e in _conjuncts(*whole)]
    one, other = (df.alias(alias) for df, alias in zip((left, right), _ALIASES, strict=True))
    trees = trees_of(parts, one.crossJoin(other), scope, settings)
    typed = [trees.typed(e) for e in parts]
    thought = one.join(other, [Column(t.written) for t in typed], kind)
    out = [place for place in scope.out(on if by_name else []) if place < scope.width or not kind.startswith("left_")]
    if by_name:
        thought = thought.select(*[Column(E.ColumnReference(scope.quoted(place))) for place in out])
    if trees.thought or not same(left.join(right, on, kind), thought):
        raise StaysError("Spark analyses it in another way than was thought")
    return JoinParts([t.tree for t in typed], [(names[place], place) for place in out], scope.width)


def _plan(df: SparkDF) -> LogicalPlan:
    found: LogicalPlan = df._plan
    return found


def _conjuncts(e: Expression) -> Iterator[Expression]:
    if called(e) in ("and", "&&"):
        for part in e.children:
            yield from _conjuncts(part)
    else:
        yield e


def _equal(name: str) -> Expression:
    return E.UnresolvedFunction("=", [E.ColumnReference(f"{alias}.{quoted(name)}") for alias in _ALIASES])


@dataclass(frozen=True)
class _Both(Scope):
    """The columns of both sides, each known by an alias of its side."""

    width: int
    plans: tuple[LogicalPlan, LogicalPlan]

    def quoted(self, place: int) -> str:
        number = int(place >= self.width)
        return f"{_ALIASES[number]}.{self._side(number).quoted(place - number * self.width)}"

    def find(self, text: str) -> tuple[int, list[str]]:
        number = _ALIASES.index(parts_of(text)[0])
        place, fields = self._side(number).find(text)
        return place + number * self.width, fields

    def _side(self, number: int) -> Scope:
        own = slice(self.width, None) if number else slice(None, self.width)
        return Scope(self.names[own], self.types[own], self.sensitive)

    def out(self, by: list[str]) -> list[int]:
        """What comes out of a join by these names."""
        left, right = ([self._side(number).places(name) for name in by] for number in (0, 1))
        if any(len(places) != 1 for places in [*left, *right]):
            raise StaysError("a name that it is by is there several times")
        once = [place for places in left for place in places]
        gone = {*once, *(place + self.width for places in right for place in places)}
        return [*once, *(place for place in range(len(self.names)) if place not in gone)]

    def of_sides(self, e: Expression) -> Expression:
        """``e``, with the side in front of each name."""
        return _WithSides(self).expression(e)

    def side_of(self, reference: Any) -> tuple[int, str]:
        """The side that it is of, and what it is called there."""
        text = reference._unparsed_identifier
        if reference._plan_id is not None:
            inside = [is_of(plan, reference._plan_id) for plan in self.plans]
        else:
            first, *others = parts_of(text)
            inside = [others != [] and _alias(plan) == first for plan in self.plans]
            if any(inside):
                text = ".".join(map(quoted, others))
            else:
                inside = [bool(self._side(number).places(first)) for number in (0, 1)]
        if inside.count(True) != 1:
            raise StaysError(f"{text} may be of either side")
        return inside.index(True), text


class _WithSides(ConnectTree):
    def __init__(self, scope: _Both) -> None:
        super().__init__(lambda _: None)
        self._scope = scope

    def expression(self, e: Any) -> Any:
        if not isinstance(e, self._reference):
            return super().expression(e)
        number, text = self._scope.side_of(e)
        return self._reference(f"{_ALIASES[number]}.{text}")


def is_of(plan: LogicalPlan, plan_id: int) -> bool:
    """Whether columns that were taken from the plan of this number are of ``plan``."""
    inner = [v for value in vars(plan).values() for v in (value if isinstance(value, list | tuple) else [value])]
    return plan._plan_id == plan_id or any(is_of(part, plan_id) for part in inner if isinstance(part, LogicalPlan))


def _alias(plan: Any) -> str | None:
    """What it is called, below filters and the like."""
    while plan is not None and not isinstance(plan, SubqueryAlias):
        plan = plan._child if type(plan).__name__ in ("Filter", "Hint") else None
    return None if plan is None else str(plan._alias)
