"""``df.uid("totals")``: the name of the state of the operator that a DataFrame ends with. Driver; classic Spark.

The name is a tag on the operator's node in Spark's plan, so it goes where the node goes: behind further operations,
into views and SQL texts.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

from pyspark.sql import DataFrame

from spark_ckpt.errors import TopologyError
from spark_ckpt.names import checked_name
from spark_ckpt.operators.keyed_operator import no_operator, uid_of_use
from spark_ckpt.plan.analysed._nodes import analysed, kind_of, tag, tag_of
from spark_ckpt.plan.analysed._rules import keeps_state

JavaObject = Any

_TAG = "spark_ckpt.uid"
_calls = count()
"""A tag has the number of its call of ``uid``: it tells two copies of one node from two operators of one uid."""
_NAMES_COLUMNS = ("Project", "SubqueryAlias")
"""What Spark puts on top of an operator by itself: a projection that names results, an alias."""


def with_uid(df: DataFrame, uid: str) -> DataFrame:
    """``df``, whose operator keeps its state under ``uid``.

    Raises ``TopologyError`` for what is no name, ``InvalidInputError`` where ``df`` does not end with an operator that
    keeps state.
    """
    checked_name("operator uid", uid, TopologyError)
    node = analysed(df)
    while kind_of(node) in _NAMES_COLUMNS and not keeps_state(node):
        node = node.child()
    if not keeps_state(node):
        raise no_operator(uid, kind_of(analysed(df)))
    tag(node, _TAG, f"{uid} {next(_calls)}")
    return df


def given_uid(uses: Counter[tuple[str, Any]], node: JavaObject) -> str | None:
    """The uid of an operator's node, None if it has none; ``uses`` counts them. A second copy of one node, as Spark
    makes for a join of a DataFrame with itself, is called by the uid and a number, ``totals-2``."""
    found = tag_of(node, _TAG)
    if found is None:
        return None
    uid, call = found.rsplit(" ", 1)
    return uid_of_use(uses, uid, call)


def name_below(node: JavaObject, below: JavaObject, part: str) -> None:
    """An operator that Spark's plan has as two: ``below``, the other one, has the uid of ``node`` with ``part`` behind
    it."""
    found = tag_of(node, _TAG)
    if found is not None:
        uid, call = found.rsplit(" ", 1)
        tag(below, _TAG, f"{uid}-{part} {call}")
