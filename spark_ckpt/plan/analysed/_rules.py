"""Rules of Spark's own, called one by one on an analysed plan. Driver; classic Spark.

The whole optimizer would do more: it takes the time of ``current_timestamp()`` once, at the start, where a stream takes
it for each batch.
"""

from __future__ import annotations

from typing import Any

from spark_ckpt.plan.analysed._nodes import named_as, project, relation
from spark_ckpt.plan.java_classes import CATALYST, java_class
from spark_ckpt.plan.udf_plan import items_of

JavaObject = Any

_OPTIMIZER = f"{CATALYST}.optimizer"


def in_stream_form(plan: JavaObject) -> JavaObject:
    """``plan`` with its WITH clauses inlined, and filters in front of watermarks, as Spark's own streams have it."""
    inlined = _inliner().apply(plan)
    return _until_stable("PushDownPredicates", inlined) if _has(inlined, "EVENT_TIME_WATERMARK") else inlined


def _inliner() -> JavaObject:
    """The rule that inlines every WITH clause. Spark 4.3 has a third parameter, for the analyser's own use."""
    rule = java_class(f"{_OPTIMIZER}.InlineCTE")
    (constructor,) = rule._java_lang_class.getConstructors()
    return rule(*(True, True, False)[: constructor.getParameterCount()])


def _has(plan: JavaObject, pattern: str) -> bool:
    return bool(plan.containsPattern(getattr(java_class(f"{CATALYST}.trees.TreePattern"), pattern)()))


def folded(constants: list[JavaObject]) -> list[JavaObject]:
    """The literals that they are."""
    plan = project([named_as(constant, "c") for constant in constants], relation([]))
    return [e.child() for e in items_of(applied("ConstantFolding", plan).projectList())]


def _until_stable(rule: str, plan: JavaObject) -> JavaObject:
    while True:
        done = applied(rule, plan)
        if done.fastEquals(plan):
            return plan
        plan = done


def applied(rule: str, plan: JavaObject) -> JavaObject:
    """What a rule of the optimizer makes of ``plan``."""
    return java_class(f"{_OPTIMIZER}.{rule}").apply(plan)
