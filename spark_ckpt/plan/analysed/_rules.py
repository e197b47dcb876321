"""Rules of Spark's own, called one by one on an analysed plan. Driver; classic Spark.

The whole optimizer would do more: it takes the time of ``current_timestamp()`` once, at the start, where a stream takes
it for each batch.
"""

from __future__ import annotations

from typing import Any

from spark_ckpt.plan._java_classes import CATALYST, java_class, to_seq
from spark_ckpt.plan.analysed._filters_in_front import with_filters_in_front
from spark_ckpt.plan.analysed._nodes import (
    all_of,
    filtered,
    has_sub_query,
    is_stream_join,
    kind_of,
    named_as,
    parts_of,
    project,
    relation,
    walk,
)
from spark_ckpt.plan.analysed._udf_plan import seq_items

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
