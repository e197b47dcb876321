"""Filters in front of watermarks, as Spark's optimizer has them; behind state, where they were, as well. Driver;
classic Spark.

Rows that a filter leaves out do not bring the watermark on. But state may be older than the filter: a query gets one,
and goes on from a savepoint. And a filter is no reason for other state: so operators stay as they were written.
"""

from __future__ import annotations

from typing import Any

from spark_ckpt.plan._java_classes import OPTION, java_class, to_seq
from spark_ckpt.plan.analysed._nodes import (
    OWN,
    expression_class,
    is_stream_join,
    kind_of,
    parts_of,
    plan_class,
    tag_of,
    walk,
)
from spark_ckpt.plan.analysed._udf_plan import seq_items
from spark_ckpt.plan.analysed.ledger import How, entry_of

JavaObject = Any

_EQUAL = ("EqualTo", "EqualNullSafe")


def keeps_state(node: JavaObject) -> bool:
    """A join does, of two streams; of a table, nothing does."""
    operator = entry_of(kind_of(node)).how is How.OPERATOR or tag_of(node, OWN) is not None
    return is_stream_join(node) or (operator and bool(node.isStreaming()))


def with_filters_in_front(plain: JavaObject, pushed: JavaObject) -> JavaObject:
    """``plain``, whose inputs of operators are those of ``pushed``: the same plan with its filters pushed down.

    Below the last operator all is Spark's; above it, all is as it was, so that nothing depends on what was pushed.
    """
    if not any(map(keeps_state, walk(plain))):
        return pushed
    chain, node = _down(plain)
    other = _down(pushed)[1]
    inputs, others = seq_items(node.children()), seq_items(other.children())
    if kind_of(node) != kind_of(other) or len(inputs) != len(others):
        return plain
    made = _joined(node, other) if is_stream_join(node) else node
    made = made.withNewChildren(to_seq(map(with_filters_in_front, inputs, others)))
    for above in reversed(chain):
        made = above.withNewChildren(to_seq([made]))
    return made


def _down(node: JavaObject) -> tuple[list[JavaObject], JavaObject]:
    """The nodes of one child each, down to an operator or to a node of several children, and that."""
    chain = []
    while not keeps_state(node) and len(children := seq_items(node.children())) == 1:
        chain.append(node)
        (node,) = children
    return chain, node


def _joined(join: JavaObject, pushed: JavaObject) -> JavaObject:
    """``FROM a, b WHERE a.k = b.k`` is a join by the filter's condition. What has keys of its own keeps to those."""
    given, found = join.condition(), pushed.condition()
    if given.isDefined():
        if any(kind_of(part) in _EQUAL for part in parts_of(given.get())) or not found.isDefined():
            return join
        found = java_class(OPTION).apply(expression_class("And")(given.get(), found.get()))
    made = plan_class("Join")(join.left(), join.right(), join.joinType(), found, join.hint())
    made.copyTagsFrom(join)
    return made
