"""``Distinct``, ``Intersect`` and ``Except``: Spark's own rules write them as aggregations, and joins of distinct rows.
Driver; classic Spark."""

from __future__ import annotations

from typing import Any

from spark_ckpt.plan.analysed._nodes import Rows, kind_of
from spark_ckpt.plan.analysed._rules import applied
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.spark_errors import unsupported

JavaObject = Any

_RULES = {"Intersect": "ReplaceIntersectWithSemiJoin", "Except": "ReplaceExceptWithAntiJoin"}


def set_operation(of: Translation, node: JavaObject) -> Rows:
    """Nulls are equal, and each row comes once."""
    kind = kind_of(node)
    if node.isAll():
        raise unsupported(
            f"{kind} All: how often a row comes is known when both sides have ended: write {kind.upper()}, or join"
        )
    if node.right().isStreaming() and not node.left().isStreaming():
        raise unsupported(
            f"{kind} on a streaming DataFrame/Dataset on the right is not supported: that a row of the table is not in "
            "the stream is known when it has ended. An INTERSECT has the stream first"
        )
    return of.rows(applied(_RULES[kind], node))


def distinct(of: Translation, node: JavaObject) -> Rows:
    """What SQL calls DISTINCT is an aggregation without aggregates: in mode update, a row comes with each batch that
    has it. The method ``distinct()`` is a ``Deduplicate``."""
    return of.rows(applied("ReplaceDistinctWithAggregate", node))
