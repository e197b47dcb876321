"""Rules of Spark's own, called one by one on an analysed plan. Driver; classic Spark.

The whole optimizer would do more: it takes the time of ``current_timestamp()`` once, at the start, where a stream takes
it for each batch.
"""

from __future__ import annotations

from typing import Any

from spark_ckpt.execution.java_classes import CATALYST, OPTION, java_class, seq_items, to_seq
from spark_ckpt.execution.spark_errors import unsupported
from spark_ckpt.plan.analysed._nodes import (
    OWN,
    all_of,
    expression_class,
    filtered,
    has_sub_query,
    is_stream_join,
    kind_of,
    named_as,
    output_of,
    parts_of,
    plan_class,
    project,
    relation,
    tag_of,
    walk,
)
from spark_ckpt.plan.analysed.ledger import How, entry_of

JavaObject = Any

_NAMES_ONLY = (
    "analysis.EliminateSubqueryAliases",
    "analysis.EliminateView",
    "expressions.EliminatePipeOperators",
    "optimizer.EliminateResolvedHint",
)
"""Filters are pushed through no name."""


def in_stream_form(plan: JavaObject) -> JavaObject:
    """``plan`` with its WITH clauses inlined, and filters in front of watermarks and joins, as Spark's own streams have
    it. Where state is between, they stay behind it, too."""
    inlined = _inliner().apply(plan)
    if not (_has(inlined, "EVENT_TIME_WATERMARK") or any(map(is_stream_join, walk(inlined)))):
        return inlined
    plain = inlined
    for rule in _NAMES_ONLY:
        plain = _applied(rule, plain)
    sure = _without_sure_chances(plain) if _has(plain, "EXPRESSION_WITH_RANDOM_SEED") else plain
    # NOT (a OR b) becomes two parts, each of which can be pushed
    pushed = applied("BooleanSimplification", _through_lateral_joins(sure))
    pushed = _until_stable("PushDownPredicates", pushed)
    for rule in ("EliminateOuterJoin", "InferFiltersFromConstraints"):
        pushed = applied(rule, pushed)
    return with_filters_in_front(plain, _until_stable("PushDownPredicates", pushed))


def _without_sure_chances(node: JavaObject) -> JavaObject:
    """Filters without parts such as ``rand() >= 0``, which Spark knows to be true: they would stop others."""
    node = node.withNewChildren(to_seq(map(_without_sure_chances, seq_items(node.children()))))
    if kind_of(node) != "Filter" or node.condition().deterministic():
        return node
    parts = [part for part in parts_of(node.condition()) if not _is_sure(part)]
    return filtered(all_of(parts), node.child()) if parts else node.child()


def _is_sure(part: JavaObject) -> bool:
    if part.deterministic() or not part.references().isEmpty() or has_sub_query(part):
        return False
    plan = applied("OptimizeRand", applied("ConstantFolding", project([named_as(part, "c")], relation([]))))
    (found,) = seq_items(plan.projectList())
    return kind_of(found.child()) == "Literal" and found.child().value() is True


def _through_lateral_joins(plan: JavaObject) -> JavaObject:
    """Filters in front of lateral joins: Spark has those as other joins before it pushes filters down."""
    return _in_front_of_lateral_join(plan) if _has(plan, "LATERAL_JOIN") else plan


def _in_front_of_lateral_join(node: JavaObject) -> JavaObject:
    node = node.withNewChildren(to_seq(map(_in_front_of_lateral_join, seq_items(node.children()))))
    if kind_of(node) != "Filter" or kind_of(node.child()) != "LateralJoin":
        return node
    join, parts = node.child(), parts_of(node.condition())
    known = join.left().outputSet()
    of_left = [p for p in parts if p.deterministic() and p.references().subsetOf(known)]
    if not of_left:
        return node
    made = join.withNewChildren(to_seq([_in_front_of_lateral_join(filtered(all_of(of_left), join.left()))]))
    others = [p for p in parts if p not in of_left]
    return filtered(all_of(others), made) if others else made


def _inliner() -> JavaObject:
    """The rule that inlines every WITH clause, and drops those that nothing uses. Spark 4.3 has a third parameter, for
    the analyser's own use."""
    rule = java_class(f"{CATALYST}.optimizer.InlineCTE")
    (constructor,) = rule._java_lang_class.getConstructors()
    return rule(*(True, False, False)[: constructor.getParameterCount()])


def _has(plan: JavaObject, pattern: str) -> bool:
    return bool(plan.containsPattern(getattr(java_class(f"{CATALYST}.trees.TreePattern"), pattern)()))


def folded(constants: list[JavaObject]) -> list[JavaObject]:
    """The literals that they are."""
    plan = project([named_as(constant, "c") for constant in constants], relation([]))
    return [e.child() for e in seq_items(applied("ConstantFolding", plan).projectList())]


def _until_stable(rule: str, plan: JavaObject) -> JavaObject:
    while True:
        done = applied(rule, plan)
        if done.fastEquals(plan):
            return plan
        plan = done


def applied(rule: str, plan: JavaObject) -> JavaObject:
    """What a rule of the optimizer makes of ``plan``."""
    return _applied(f"optimizer.{rule}", plan)


def _applied(rule: str, plan: JavaObject) -> JavaObject:
    return java_class(f"{CATALYST}.{rule}").apply(plan)


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


_RULES = (
    "PullupCorrelatedPredicates",
    "RewritePredicateSubquery",
    "RewriteCorrelatedScalarSubquery",
    "RewriteLateralSubquery",
)


def refuse_aggregated_stream(node: JavaObject) -> None:
    """Raises ``InvalidInputError`` for a sub-query that Spark computes by an aggregation of the stream. Of what is
    below ``node``, only the columns count."""
    if not has_sub_query(node):
        return
    made = node.withNewChildren(to_seq([relation(output_of(child)) for child in seq_items(node.children())]))
    for rule in _RULES:
        made = java_class(f"{CATALYST}.optimizer.{rule}").apply(made)
    if any(kind_of(found) == "Aggregate" and found.isStreaming() for found in walk(made)):
        raise unsupported(
            f"{kind_of(node)}: a sub-query aggregates rows that it finds by other than equality with columns of the "
            "stream, which Spark computes by an aggregation of the stream itself. Join a table that has an array of "
            "the values of each key, (SELECT k, collect_list(v) AS vs FROM t GROUP BY k), and aggregate that: "
            f"array_max(filter(vs, v -> v < o.v)). Spark's plan of it: {node.simpleString(200)}"
        )
