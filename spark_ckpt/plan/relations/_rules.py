"""Filters in front of ``withWatermark``, as Spark's own streams have them. Driver; Spark Connect.

Spark's optimizer moves a filter there unless it looks at the event time. The client moves what it can. Where Spark
moves another one, by its own plan of the query, the query is refused: other rows would be late.
"""

from __future__ import annotations

import re
from typing import Any

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.relations._filters_in_front import bare, in_front, optimized
from spark_ckpt.plan.relations._filters_of_joins import sides_in_front
from spark_ckpt.plan.relations._translation import Translation
from spark_ckpt.plan.relations._tree import children_of, kind_of, known_as, with_children
from spark_ckpt.plan.relations.leaves import any_stream, stream_of

Relation = Any

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
    if kind_of(node) == "WithWatermark" and not any(kind_of(e) == "WithWatermark" for e in _all(node._child)):
        return bare(of, node)
    return with_children(node, [_bare(of, child) for child in children_of(node)])
