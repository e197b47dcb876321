"""What a join of two streams asks of rows of one side alone, in front of that side's watermark. Driver; Spark Connect.

Spark filters a side whose rows do not come out by themselves: by the parts of the condition that look at it alone, and
by columns that are compared, as a null equals nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P
from pyspark.sql.connect import proto

from spark_ckpt.plan._condition import conjuncts, shape
from spark_ckpt.plan._join_condition import FLIPPED
from spark_ckpt.plan._join_rules import is_outer, join_kind
from spark_ckpt.plan._join_sides import LEFT
from spark_ckpt.plan._trying import unlogged
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.relations._columns import column, identifier_of
from spark_ckpt.plan.relations._filters_in_front import in_front
from spark_ckpt.plan.relations._translation import Translation
from spark_ckpt.plan.relations._tree import with_children

Relation = Any


def sides_in_front(of: Translation, node: Relation) -> Relation:
    """``node``, a join of two streams, over sides without the rows that Spark leaves out."""
    how = str(proto.Join.JoinType.Name(node.how)).removeprefix("JOIN_TYPE_")
    if how == "LEFT_ANTI" or node.left is node.right:
        return node
    done: set[str] = set()
    sides = []
    for side, rows in enumerate((node.left, node.right)):
        for condition in [] if is_outer(join_kind(how), side) else _of_side(of, node, side):
            asked = P.Filter(rows, condition)
            moved = in_front(of, asked)
            if moved is not asked:
                rows = moved
                done.add(str(condition))
        sides.append(rows)
    made = with_children(node, sides)
    return made if made is node or any(isinstance(on, str) for on in _given(node)) else _without(made, done)


def _without(node: Relation, done: set[str]) -> Relation:
    """The join by what of its condition is not in front of it."""
    made = copy.copy(node)
    made.on = [part for given in _given(node) for part in conjuncts(given) if str(part) not in done]
    return made if made.on else node


def _of_side(of: Translation, node: Relation, side: int) -> list[Column]:
    own, other = (node.left, node.right) if side == LEFT else (node.right, node.left)
    known: dict[str, Column] = {}
    for c in _asked(node):
        if _resolves(of, own, c) and not _resolves(of, other, c):
            known.setdefault(str(c), c)
    names = [column(E.ColumnReference(quoted(on))).isNotNull() for on in _given(node) if isinstance(on, str)]
    return [*names, *known.values()]


def _asked(node: Relation) -> Iterator[Column]:
    """The parts of the condition, and that a column which is compared is there."""
    for given in _given(node):
        for part in [] if isinstance(given, str) else conjuncts(given):
            yield part
            op, args = shape(part) or ("", [])
            for arg in args if op in FLIPPED and op != "<=>" else []:
                if identifier_of(arg._expr) is not None:
                    yield arg.isNotNull()


def _given(node: Relation) -> list[Any]:
    return node.on if isinstance(node.on, list) else [] if node.on is None else [node.on]


def _resolves(of: Translation, rows: Relation, c: Column) -> bool:
    try:
        with unlogged():
            return bool(of.schema(P.Project(rows, [c])))
    except PySparkException:
        return False
