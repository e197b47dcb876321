"""Which filters Spark's optimizer puts in front of ``withWatermark``: those that do not look at the event time. What
they leave out does not bring the watermark on. Read from a plan's text: classic Spark and Connect are alike. Pure.

As ``PushPredicateThroughNonJoin`` of Spark: through repartitioning, too, and projections in which the event time stays
what it was.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from spark_ckpt.plan.plan_text import Node

_EVENT_TIME = re.compile(r"#\d+-T\d+ms")
"""How Spark prints a column that is an event time."""
_PASSED_ON = re.compile(r"(?<=[\[ ])[^\[\],()]*#\d+-T\d+ms( AS [^\[\],()]*#\d+-T\d+ms)?(?=[,\]])")
"""One that a projection hands on, at most by another name."""
_PASSED = ("SubqueryAlias", "Repartition", "RepartitionByExpression", "ResolvedHint")
"""Filters go through these, whatever they say."""
_RANDOM = re.compile(
    r"\b(rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id|spark_partition_id"
    r"|input_file_name|input_file_block_start|input_file_block_length|current_timestamp|now)\(",
    re.IGNORECASE,
)


def goes_in_front(nodes: Sequence[Node]) -> bool:
    """Whether the filter that is the root of a plan is put in front of the watermark below it."""
    condition = nodes[0].text
    return nodes[0].name == "Filter" and not _EVENT_TIME.search(condition) and not _RANDOM.search(condition)


def only_hands_on(before: Sequence[Node], after: Sequence[Node]) -> bool:
    """Whether a filter behind ``after`` may as well stand behind ``before``."""
    new = _new(before, after)
    return new is not None and all(map(_hands_on, new))


def lets_through(before: Sequence[Node], after: Sequence[Node]) -> bool:
    """Whether a filter behind ``after`` that looks at columns of ``before`` alone may as well stand in front of what is
    between."""
    new = _new(before, after)
    return new is not None and all(
        n.name in (*_PASSED, "Project", "Generate") and not _RANDOM.search(n.text) for n in new
    )


def makes_rows(before: Sequence[Node], after: Sequence[Node]) -> bool:
    """Whether there is a generator between."""
    return any(node.name == "Generate" for node in _new(before, after) or ())


def _new(before: Sequence[Node], after: Sequence[Node]) -> list[Node] | None:
    """What ``after`` has more than ``before``; None if it does not have all of that."""
    known, now = Counter(n.same for n in before), Counter(n.same for n in after)
    return None if known - now else [n for n in after if n.same in now - known]


def _hands_on(node: Node) -> bool:
    if node.name in _PASSED:
        return True
    left = _PASSED_ON.sub("", node.text)
    return node.name == "Project" and not _EVENT_TIME.search(left) and not _RANDOM.search(left)
