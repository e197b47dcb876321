"""What a join of two streams asks of rows of one side alone, in front of that side's watermark. Driver; Spark Connect.

Spark filters a side whose rows do not come out by themselves: by the parts of the condition that look at it alone, and
by columns that are compared, as a null equals nothing.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P
from pyspark.sql.connect import proto

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.columns import quoted
from spark_ckpt.operators.join_rules import FLIPPED, LEFT, is_outer, join_kind
from spark_ckpt.plan.relations._columns import column, conjuncts, identifier_of, shape
from spark_ckpt.plan.relations._filters_in_front import bare, in_front, optimized
from spark_ckpt.plan.relations._translation import Translation
from spark_ckpt.plan.relations._tree import children_of, kind_of, known_as, walk, with_children
from spark_ckpt.plan.relations.leaves import any_stream, stream_of

Relation = Any


def sides_in_front(of: Translation, node: Relation) -> Relation:
    """``node``, a join of two streams, over sides without the rows that Spark leaves out."""
    how = str(proto.Join.JoinType.Name(node.how)).removeprefix("JOIN_TYPE_")
    if how == "LEFT_ANTI" or node.left is node.right:
        return node
    done: set[str] = set()
    sides = []
    for side, rows in enumerate((node.left, node.right)):
        for condition in [] if is_outer(join_kind(how), side) else _of_side(of, node, side):
            asked = P.Filter(rows, condition)
            moved = in_front(of, asked)
            if moved is not asked:
                rows = moved
                done.add(str(condition))
        sides.append(rows)
    made = with_children(node, sides)
    return made if made is node or any(isinstance(on, str) for on in _given(node)) else _without(made, done)


def _without(node: Relation, done: set[str]) -> Relation:
    """The join by what of its condition is not in front of it."""
    made = copy.copy(node)
    made.on = [part for given in _given(node) for part in conjuncts(given) if str(part) not in done]
    return made if made.on else node


def _of_side(of: Translation, node: Relation, side: int) -> list[Column]:
    own, other = (node.left, node.right) if side == LEFT else (node.right, node.left)
    known: dict[str, Column] = {}
    for c in _asked(node):
        if of.resolves(own, c) and not of.resolves(other, c):
            known.setdefault(str(c), c)
    names = [column(E.ColumnReference(quoted(on))).isNotNull() for on in _given(node) if isinstance(on, str)]
    return [*names, *known.values()]


def _asked(node: Relation) -> Iterator[Column]:
    """The parts of the condition, and that a column which is compared is there."""
    for given in _given(node):
        for part in [] if isinstance(given, str) else conjuncts(given):
            yield part
            op, args = shape(part) or ("", [])
            for arg in args if op in FLIPPED and op != "<=>" else []:
                if identifier_of(arg._expr) is not None:
                    yield arg.isNotNull()


def _given(node: Relation) -> list[Any]:
    return node.on if isinstance(node.on, list) else [] if node.on is None else [node.on]


_NOT_NULL = re.compile(r"isnotnull\([^()]*\)")


def in_stream_form(of: Translation, node: Relation) -> Relation:
    """``node`` with filters in front of watermarks. Raises ``InvalidInputError`` where Spark moves others, too."""
    moved = _moved(of, node)
    if any(kind_of(each) == "WithWatermark" for each in walk(moved)):
        _check(of, moved)
    return moved


def _moved(of: Translation, node: Relation) -> Relation:
    made = with_children(node, [_moved(of, child) for child in children_of(node)])
    if kind_of(made) == "Join" and of.reads_stream(made.left) and of.reads_stream(made.right):
        return sides_in_front(of, made)
    return in_front(of, made) if kind_of(made) in ("Filter", "NADrop") else made


def _check(of: Translation, node: Relation) -> None:
    """Behind each watermark, Spark's plan of the same query over rows without filters must have none in front of it."""
    inside: int | None = None
    for each in optimized(of, _bare(of, node)):
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
    if stream_of(node) is not None:  # its nulls would be computed with
        return known_as(any_stream(of.spark, of.schema(node)), node._plan_id)
    if kind_of(node) == "WithWatermark" and not any(kind_of(e) == "WithWatermark" for e in walk(node._child)):
        return bare(of, node)
    return with_children(node, [_bare(of, child) for child in children_of(node)])
