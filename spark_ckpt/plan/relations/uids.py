"""``df.uid("totals")``: the name of the state of the operator that a DataFrame ends with. Driver; Spark Connect.

The client remembers it by the relation's plan id, which copies of the relation keep.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from spark_ckpt.errors import TopologyError
from spark_ckpt.names import checked_name
from spark_ckpt.operators.keyed_operator import no_operator, uid_of_use
from spark_ckpt.plan.analysed.ledger import How, entry_of
from spark_ckpt.plan.relations._names import node_of
from spark_ckpt.plan.relations._readers import function_of
from spark_ckpt.plan.relations._tree import kind_of, walk
from spark_ckpt.plan.relations.leaves import stream_of

SparkDF = Any
Relation = Any

_uids: dict[int, str] = {}


def with_uid(df: SparkDF, uid: str) -> SparkDF:
    """As :func:`spark_ckpt.plan.analysed.uids.with_uid`."""
    checked_name("operator uid", uid, TopologyError)
    node = df._plan
    while kind_of(node) == "SubqueryAlias":
        node = node._child
    if not is_operator(node):
        raise no_operator(uid, kind_of(node))
    _uids[node._plan_id] = uid
    return df


def given_uid(uses: Counter[tuple[str, Any]], node: Relation) -> str | None:
    """The uid of an operator's relation, None if it has none; ``uses`` counts them. Where one relation is used twice,
    the second use is called by the uid and a number, ``totals-2``."""
    uid = _uids.get(node._plan_id)
    return None if uid is None else uid_of_use(uses, uid, node._plan_id)


def name_below(node: Relation, inner: Relation, suffix: str) -> None:
    """``inner``, an operator that ``node`` is made of, is called by the uid of that."""
    uid = _uids.get(node._plan_id)
    if uid is not None:
        _uids[inner._plan_id] = f"{uid}-{suffix}"


def is_operator(node: Relation) -> bool:
    if kind_of(node) == "GroupMap":
        return hasattr(function_of(node), "asked")
    if kind_of(node) == "Join":
        return _reads_stream(node.left) and _reads_stream(node.right)
    return entry_of(node_of(node) or "").how is How.OPERATOR


def _reads_stream(node: Relation) -> bool:
    return any(stream_of(each) is not None or getattr(each, "_is_streaming", False) for each in walk(node))
