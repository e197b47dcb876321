"""Streams that Spark itself reads, in the plan of a start. Driver; classic and Connect.

Spark's offset log has a line for each place of a source in the plan, in the plan's order and without a name. So each
stream is marked by an alias there, and the control source is told whose line is which. It has to know before there is
a plan: the plan is built in the order of the lineage, and once more if that is not what came out, as where a stream
stands in it twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from spark_ckpt.errors import ProtocolBugError
from spark_ckpt.plan.plan_check import plan_nodes
from spark_ckpt.runtime.operations import Operation

Built = tuple[Any, tuple[Operation, ...]]
"""What the sink's writer gets from Spark, and the operations it does first."""

_MARK = "__ckpt_stream_"
_MARKED = re.compile(rf"~?SubqueryAlias {_MARK}(\d+)")


def marked(rows: Any, number: int) -> Any:
    """``rows`` of the query's stream ``number``."""
    return rows.alias(f"{_MARK}{number}")


def in_order(build: Callable[[tuple[str, ...]], Built], streams: tuple[str, ...]) -> Built:
    """What ``build`` makes when it is told the names of the query's ``streams`` as they stand in the plan it makes."""
    told, built = streams, build(streams)
    if not streams:
        return built
    found = _names(built[0], streams)
    if found != told:
        told, built = found, build(found)
        found = _names(built[0], streams)
    if found != told or set(found) != set(streams):
        raise ProtocolBugError(f"expected the streams {told} in this order in Spark's plan, found {found}")
    return built


def _names(df: Any, streams: tuple[str, ...]) -> tuple[str, ...]:
    marks = (_MARKED.match(node.text) for node in plan_nodes(df))
    return tuple(streams[int(mark.group(1))] for mark in marks if mark)
