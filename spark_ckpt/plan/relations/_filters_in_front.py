"""A filter behind a watermark, in front of it: as Spark's own streams have it. Driver; Spark Connect.

Whether Spark moves it, its optimized plan of that filter alone says. What stands between goes in front, too, beside the
rows as they were, so that the server finds the filter's columns there as the user named them.
"""

from __future__ import annotations

import copy
import re
from itertools import count
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P

from spark_ckpt.execution import plan_text
from spark_ckpt.execution.columns import quoted
from spark_ckpt.plan.relations._columns import column, conjuncts
from spark_ckpt.plan.relations._translation import Translation
from spark_ckpt.plan.relations._tree import alias_of, all_parts, ids_in, kind_of, known_as, over, walk
from spark_ckpt.plan.relations.leaves import any_stream

Relation = Any
Expression = Any

_AT_RANDOM = re.compile(r"\b(rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id)\s*\(", re.I)
_OPTIMIZED = "== Optimized Logical Plan ==\n"
_BETWEEN = (
    "Drop", "Filter", "Hint", "NADrop", "NAFill", "NAReplace", "Project", "Repartition", "RepartitionByExpression",
    "SubqueryAlias", "ToDF", "WithColumns", "WithColumnsRenamed",
)  # fmt: skip
_ROW_BY_ROW = {
    "EventTimeWatermark", "Filter", "MapInArrow", "Project", "RebalancePartitions", "Repartition",
    "RepartitionByExpression", "StreamingRelationV2",
}  # fmt: skip
_numbers = count()


def in_front(of: Translation, node: Relation) -> Relation:
    """``node``, a filter, with what of it goes in front of the watermark, or of all that a union has, below it."""
    path, base = [], node._child
    while kind_of(base) in _BETWEEN:
        path.append(base)
        base = base._child
    if kind_of(base) == "WithWatermark":
        return _in_front_of(of, node, path, base)
    if (
        kind_of(base) == "SetOperation"
        and base.set_op == "union"
        and any(kind_of(each) == "WithWatermark" for each in walk(base))
    ):
        return _in_front_of_union(of, node, path, base)
    return node


def _in_front_of(of: Translation, node: Relation, path: list[Relation], watermark: Relation) -> Relation:
    parts = _parts(node)
    moved = [part for part in parts if _spark_moves(of, [part, *path], watermark)]
    if not moved:
        return node
    child = watermark._child
    for part in moved:
        child = filtered(of, part, path, child, _asked([node, *path], watermark))
    made = over(watermark, _known(child, _asked([node, *path, watermark], watermark)))
    return _behind(made, path, [part for part in parts if part not in moved], node)


def _behind(made: Relation, path: list[Relation], parts: list[Relation], node: Relation) -> Relation:
    """What became of ``node``: ``path`` and the ``parts`` of it that stay, over ``made``."""
    for each in [*path[::-1], *parts]:
        made = over(each, made)
    return made if made._plan_id == node._plan_id else known_as(made, node._plan_id)


def _in_front_of_union(of: Translation, node: Relation, path: list[Relation], union: Relation) -> Relation:
    """Spark has all of it, that is not random, in front of a union."""
    names = of.schema(union).names
    parts = _parts(node)
    moved = [part for part in parts if not any(map(_by_chance, all_parts(part)))]
    sides = []
    for number, side in enumerate((union._child, union.other)):
        made = side if number == 0 or union.by_name else P.ToDF(side, names)
        for part in moved:
            made = filtered(of, part, path, made, ids_in(union), push=True)
        sides.append(made)
    made = over(union, sides[0], other=sides[1])
    return _behind(made, path, [part for part in parts if part not in moved], node)


def filtered(
    of: Translation, part: Relation, path: list[Relation], rows: Relation, asked: set[int], push: bool = False
) -> Relation:
    """``rows`` for which ``part`` holds behind ``path``. ``push``: in front of watermarks below, too."""
    made: Relation = rows
    kept = ""
    if any(kind_of(each) not in ("Filter", "SubqueryAlias", "NADrop") for each in path):
        kept = f"__ckpt_kept_{next(_numbers)}"
        whole = F.struct(*(F.col(quoted(name)) for name in of.schema(rows).names)).alias(kept)
        made, alias = P.Project(rows, [column(E.UnresolvedStar(None)), whole]), alias_of(rows)
        made = made if alias is None else P.SubqueryAlias(made, alias)
    made = _known(made, asked)
    for each in path[::-1]:
        made = _keeping(of, each, made, kept)
    made = over(part, made)
    made = in_front(of, made) if push else made
    return P.Project(made, [F.col(f"{kept}.*")]) if kept else made


def _known(rows: Relation, asked: set[int]) -> Relation:
    for plan_id in asked - ids_in(rows):
        rows = known_as(rows, plan_id)
    return rows


def _keeping(of: Translation, node: Relation, child: Relation, kept: str) -> Relation:
    """``node`` over ``child``, with its column ``kept``. Filters are no part of it."""
    if kind_of(node) in ("Filter", "NADrop"):
        return child
    if kind_of(node) == "Project":
        made = over(node, child)
        return made if kept in of.schema(made).names else over(node, child, _columns=[*node._columns, F.col(kept)])
    if kind_of(node) == "ToDF":
        return over(node, child, _cols=[*node._cols, kept])
    if kind_of(node) in ("NAFill", "NAReplace") and not node.cols:
        return over(node, child, cols=[quoted(name) for name in of.schema(node._child).names])
    return over(node, child)


def _parts(node: Relation) -> list[Relation]:
    """What holds for all rows behind it, each by itself. Of ``dropna`` it is one."""
    if kind_of(node) != "Filter":
        return [node]
    return [_alone(node, part) for part in conjuncts(node.filter)]


def _alone(node: Relation, condition: Any) -> Relation:
    made = copy.copy(node)
    made.filter = condition
    return made


def _asked(known: list[Relation], watermark: Relation) -> set[int]:
    found = {e._plan_id for node in known for e in all_parts(node) if isinstance(e, E.ColumnReference)}
    return found & ids_in(watermark)


def _by_chance(e: Expression) -> bool:
    if isinstance(e, E.CommonInlineUserDefinedFunction):
        return not e._deterministic
    text = e._expr if isinstance(e, E.SQLExpression) else f"{getattr(e, '_name', '')}("
    return isinstance(e, E.SubqueryExpression) or _AT_RANDOM.search(text) is not None


def _spark_moves(of: Translation, chain: list[Relation], watermark: Relation) -> bool:
    """Whether Spark has the filter, which ``chain`` begins with, in front of ``watermark``."""
    if any(map(_by_chance, all_parts(chain[0]))):
        return False
    made = bare(of, watermark)
    for each in chain[:0:-1]:
        made = made if kind_of(each) in ("Filter", "NADrop") else over(each, made)
    nodes = optimized(of, over(chain[0], made))
    names = [each.text.lstrip("~").split(" ", 1)[0] for each in nodes]
    place = names.index("EventTimeWatermark")
    return set(names) <= _ROW_BY_ROW and "Filter" in names[place:] and "Filter" not in names[:place]


def optimized(of: Translation, node: Relation) -> list[plan_text.Node]:
    """Spark's optimized plan of ``node``."""
    text = of.frame(node)._explain_string(mode="extended")
    return plan_text.parse(text[text.index(_OPTIMIZED) + len(_OPTIMIZED) :].split("\n\n== ")[0])


def bare(of: Translation, watermark: Relation) -> Relation:
    """``watermark`` over rows that nothing was done to."""
    leaf, alias = any_stream(of.spark, of.schema(watermark._child)), alias_of(watermark._child)
    leaf = leaf if alias is None else P.SubqueryAlias(leaf, alias)
    return over(watermark, _known(leaf, ids_in(watermark._child)))
