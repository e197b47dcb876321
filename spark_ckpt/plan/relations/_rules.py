"""Filters in front of ``withWatermark``, as Spark's own streams have them. Driver; Spark Connect.

Spark's optimizer moves a filter there unless it looks at the event time. The client moves those that stand right behind
it. Where Spark moves another one, by its own plan of the query, the query is refused: other rows would be late.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan import plan_text
from spark_ckpt.plan.relations._columns import column
from spark_ckpt.plan.relations._translation import Translation
from spark_ckpt.plan.relations._tree import (
    alias_of,
    all_parts,
    children_of,
    empty,
    ids_in,
    kind_of,
    known_as,
    over,
    parts_of,
    with_children,
)
from spark_ckpt.plan.relations.leaves import any_stream
from spark_ckpt.plan.trying import unlogged

Relation = Any
Expression = Any

_AT_RANDOM = re.compile(r"\b(rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id)\s*\(", re.I)
_OPTIMIZED = "== Optimized Logical Plan ==\n"
_NOT_NULL = re.compile(r"isnotnull\([^()]*\)")


def in_stream_form(of: Translation, node: Relation) -> Relation:
    """``node`` with filters in front of watermarks. Raises ``InvalidInputError`` where Spark moves others, too."""
    moved = _moved(of, node)
    if any(kind_of(each) == "WithWatermark" for each in _all(moved)):
        _check(of, moved)
    return moved


def _all(node: Relation) -> list[Relation]:
    return [node, *(each for child in children_of(node) for each in _all(child))]


def _moved(of: Translation, node: Relation) -> Relation:
    made = with_children(node, [_moved(of, child) for child in children_of(node)])
    return _in_front(of, made) if kind_of(made) == "Filter" else made


def _in_front(of: Translation, node: Relation) -> Relation:
    """A filter over a watermark: what of it Spark has in front of that. Names of aliases and filters may be between."""
    path, below = [], node._child
    while kind_of(below) in ("Filter", "SubqueryAlias"):
        path.append(below)
        below = below._child
    if kind_of(below) != "WithWatermark":
        return node
    before: list[Expression] = []
    behind: list[Expression] = []
    for part in _conjuncts(node.filter._expr):
        (before if not behind and _goes_in_front(of, node, below, part) else behind).append(part)
    if not before:
        return node
    made = below._child
    for plan_id in _asked(node, [node, *path, below]) - ids_in(made):
        made = known_as(made, plan_id)
    for each in path[::-1]:
        made = over(each, made) if kind_of(each) == "SubqueryAlias" else made
    made = over(below, P.Filter(made, _together(before)))
    for each in path[::-1]:
        made = over(each, made)
    return over(node, made, filter=_together(behind)) if behind else known_as(made, node._plan_id)


def _asked(node: Relation, known: list[Relation]) -> set[int]:
    return {e._plan_id for e in all_parts(node) if isinstance(e, E.ColumnReference)} & {k._plan_id for k in known}


def _conjuncts(e: Expression) -> list[Expression]:
    if isinstance(e, E.UnresolvedFunction) and e._name.lower() in ("and", "&&"):
        return [part for arg in e._args for part in _conjuncts(arg)]
    return [e]


def _together(parts: list[Expression]) -> Any:
    made = column(parts[0])
    for part in parts[1:]:
        made = made & column(part)
    return made


def _goes_in_front(of: Translation, node: Relation, watermark: Relation, part: Expression) -> bool:
    """Whether it is the same for the same row, and does not look at the event time: the server finds all its columns
    without that."""
    if any(_by_chance(e) for e in parts_of(part)):
        return False
    fields = [f for f in of.schema(watermark).fields if not of.same_name(f.name, watermark._event_time)]
    rest, alias = empty(T.StructType(fields)), alias_of(node._child)
    rest = rest if alias is None else P.SubqueryAlias(rest, alias)
    for plan_id in ids_in(node._child):
        rest = known_as(rest, plan_id)
    try:
        with unlogged():
            return of.frame(P.Filter(rest, column(part))).schema is not None
    except PySparkException:
        return False


def _by_chance(e: Expression) -> bool:
    if isinstance(e, E.CommonInlineUserDefinedFunction):
        return not e._deterministic
    text = e._expr if isinstance(e, E.SQLExpression) else f"{getattr(e, '_name', '')}("
    return isinstance(e, E.SubqueryExpression) or _AT_RANDOM.search(text) is not None


def _check(of: Translation, node: Relation) -> None:
    """Behind each watermark, Spark's plan of the same query over rows without filters must have none in front of it."""
    text = of.frame(_bare(of, node))._explain_string(mode="extended")
    nodes = plan_text.parse(text[text.index(_OPTIMIZED) + len(_OPTIMIZED) :].split("\n\n== ")[0])
    inside: int | None = None
    for each in nodes:
        name = each.text.lstrip("~").split(" ", 1)
        if inside is not None and each.depth <= inside:
            inside = None
        if name[0] == "EventTimeWatermark" and inside is None:
            inside = each.depth
        elif name[0] == "Filter" and inside is not None and _NOT_NULL.sub("", name[1]).strip(" ()AND"):
            raise InvalidInputError(
                f"Filter: Spark puts {name[1]} in front of withWatermark, so that rows that it leaves out do not move "
                "the watermark on. Write that where(...) in front of withWatermark; the result is the same in Spark"
            )


def _bare(of: Translation, node: Relation) -> Relation:
    """``node``, where the first watermark of each stream is over rows that nothing was done to."""
    if kind_of(node) == "WithWatermark" and not any(kind_of(e) == "WithWatermark" for e in _all(node._child)):
        leaf = any_stream(of.spark, of.schema(node._child))
        for plan_id in ids_in(node._child):
            leaf = known_as(leaf, plan_id)
        return over(node, leaf)
    return with_children(node, [_bare(of, child) for child in children_of(node)])
