"""Relations of Spark Connect's client: walked, copied and asked about. Driver; Spark Connect."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P
from pyspark.sql.connect.column import Column

Relation = Any
Expression = Any
_HAND_ON = (
    "Aggregate", "CollectMetrics", "Deduplicate", "Drop", "Filter", "Hint", "Limit", "NADrop", "NAFill", "NAReplace",
    "Project", "Repartition", "RepartitionByExpression", "Sample", "Sort", "WithColumns", "WithColumnsRenamed",
    "WithWatermark",
)  # fmt: skip
"""Behind which a column is still known by the alias that it had."""
_IN_PYTHON = (
    "ApplyInPandasWithState", "CoGroupMap", "GroupMap", "MapPartitions", "TransformWithStateInPandas",
    "TransformWithStateInPySpark",
)  # fmt: skip
_SIDES = ("_child", "left", "right", "other", "_other")


def kind_of(node: Relation) -> str:
    """The name of its class."""
    return type(node).__name__


def children_of(node: Relation) -> list[Relation]:
    """The relations that it reads: those of sub-queries are none."""
    found: list[Relation] = []
    for name in _SIDES:
        child = getattr(node, name, None)
        if isinstance(child, P.LogicalPlan) and all(child is not other for other in found):
            found.append(child)
    return found


def walk(node: Relation) -> Iterator[Relation]:
    """``node`` and all relations below it."""
    yield node
    for child in children_of(node):
        yield from walk(child)


def known_from(node: Relation) -> Iterator[Relation]:
    """``node`` and the relations below it that its columns may be known from. Out of Python come names, and nothing
    else."""
    yield node
    if kind_of(node) not in _IN_PYTHON and not getattr(node, "_ckpt_cut", False):
        for child in children_of(node):
            yield from known_from(child)


def cut_off(node: Relation) -> Relation:
    """``node``, whose columns are no more known as those of relations below it are."""
    node._ckpt_cut = True
    return node


def ids_in(node: Relation) -> set[int]:
    """The plan ids by which columns of ``node`` and of what is below it are known."""
    return {each._plan_id for each in known_from(node)}


def over(node: Relation, child: Relation, **parts: Any) -> Relation:
    """A copy of ``node`` around another child, with its plan id; ``parts``: what else is different."""
    made = copy.copy(node)
    made._child = child
    if hasattr(node, "left"):
        made.left = child
    vars(made).update(parts)
    return made


def known_as(node: Relation, plan_id: int) -> Relation:
    """The same rows; the columns that ``plan_id`` is asked for are those of ``node``."""
    made = P.Project(node, [Column(E.UnresolvedStar(None))])
    made._root_plan_id = plan_id
    return made


def empty(schema: T.StructType) -> Relation:
    """A relation without rows."""
    return P.LocalRelation(None, schema.json())


def expressions_of(node: Relation) -> list[Expression]:
    """Those that stand in ``node`` itself."""
    return [e for value in vars(node).values() for e in _expressions(value)]


def _expressions(value: Any) -> Iterator[Expression]:
    if isinstance(value, Column):
        yield value._expr
    elif isinstance(value, E.Expression):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _expressions(item)


def parts_of(e: Expression) -> Iterator[Expression]:
    """``e`` and all expressions in it; not those of sub-queries."""
    yield e
    for value in vars(e).values():
        for part in _expressions(value):
            yield from parts_of(part)


def rewritten(e: Expression, put: Callable[[Expression], Expression | None]) -> Expression:
    """``e`` with what ``put`` gives in place of a part; itself if that is nothing everywhere."""
    found = put(e)
    if found is not None:
        return found
    parts = {name: (value, _rewritten(value, put)) for name, value in vars(e).items()}
    changed = {name: new for name, (old, new) in parts.items() if new is not old}
    if not changed:
        return e
    made = copy.copy(e)
    vars(made).update(changed)
    return made


def with_expressions(node: Relation, put: Callable[[Expression], Expression | None]) -> Relation:
    """``node`` with what ``put`` gives in place of parts of its expressions; itself if that is nothing everywhere."""
    parts = {name: (value, _rewritten(value, put)) for name, value in vars(node).items()}
    changed = {name: new for name, (old, new) in parts.items() if new is not old}
    if not changed:
        return node
    made = copy.copy(node)
    vars(made).update(changed)
    return made


def _rewritten(value: Any, put: Callable[[Expression], Expression | None]) -> Any:
    if isinstance(value, E.Expression):
        return rewritten(value, put)
    if isinstance(value, Column):
        new = rewritten(value._expr, put)
        return value if new is value._expr else Column(new)
    if isinstance(value, list | tuple):
        done = [_rewritten(item, put) for item in value]
        return value if all(new is old for new, old in zip(done, value, strict=True)) else type(value)(done)
    return value


def all_parts(node: Relation) -> Iterator[Expression]:
    for e in expressions_of(node):
        yield from parts_of(e)


def with_children(node: Relation, children: list[Relation]) -> Relation:
    """``node`` over ``children``, in the order of :func:`children_of`; itself if they are the same."""
    old = children_of(node)
    if all(one is other for one, other in zip(old, children, strict=True)):
        return node
    made = copy.copy(node)
    for name in _SIDES:
        value = getattr(node, name, None)
        found = next((new for new, before in zip(children, old, strict=True) if before is value), None)
        if found is not None:
            setattr(made, name, found)
    return made


def alias_of(node: Relation) -> str | None:
    """The alias that columns of ``node`` are known by, if that is one."""
    while kind_of(node) in _HAND_ON:
        node = node._child
    return str(node._alias) if kind_of(node) == "SubqueryAlias" else None
