"""Which columns tell the rows of an update from each other: those by which a newer row takes the place of an older one.
Driver; classic Spark."""

from __future__ import annotations

from typing import Any

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.java_classes import attribute_id, items_of, seq_items
from spark_ckpt.operators.key_columns import is_key
from spark_ckpt.operators.own_operators import are_updates
from spark_ckpt.plan.analysed._nodes import Rows, kind_of, text_of

JavaObject = Any

_SAME = ("SubqueryAlias", "View", "PipeOperator", "ResolvedHint", "Repartition", "RepartitionByExpression")


def merged_by(
    node: JavaObject, rows: Rows, keys: list[JavaObject], order: list[str], rank: str | None
) -> list[str] | None:
    """The columns, beside ``keys``, that tell the rows apart of which ``node`` ranks the first; None: no row takes the
    place of another. ``rank``: its text, if rows may share it, so that ``order`` has to tell all rows apart."""
    if not are_updates(rows.lineage):
        if rank is None:
            return None
        raise InvalidInputError(
            f"{rank}: rows may share it, so how many are in front has no bound, and no column tells them apart: write "
            "row_number() in its place"
        )
    identity = _identity(node.child())
    for key in keys:
        if not _references(key, node.child()) <= set(identity):
            text = text_of(_definition(key, node.child()))
            raise InvalidInputError(
                f"PARTITION BY {text}: the rows are updates, and this value of a row may change, which would stay "
                "among those of its old value, too: partition by keys of the groupBy in front"
            )
    of_keys = {attribute_id(key) for key in keys if kind_of(key) == "AttributeReference"}
    merged = [rows.schema.fields[rows.ids.index(i)] for i in identity if i not in of_keys]
    names = [f.name for f in merged]
    if rank is not None and not set(names) <= set(order):
        raise InvalidInputError(
            f"{rank}: rows may share it, so how many are in front has no bound: write row_number() in its place, or "
            f"order by {', '.join(name for name in names if name not in order)}, too, which tells all rows apart"
        )
    wrong = next((f for f in merged if not is_key(f.dataType)), None)
    if wrong is not None:
        raise InvalidInputError(
            f"the rows are told apart by {wrong.name!r} of type {wrong.dataType.simpleString()}, and expected are flat "
            "columns: have it in PARTITION BY"
        )
    if not names:
        raise InvalidInputError(
            f"PARTITION BY {', '.join(map(text_of, keys))}: it has one row for each of the groups in front, so there "
            " is nothing to rank: partition by some of the keys of groupBy"
        )
    return names


def _definition(e: JavaObject, below: JavaObject) -> JavaObject:
    """What Spark computes for a window by itself is called ``_w0``."""
    listed = seq_items(below.projectList()) if kind_of(below) == "Project" else []
    own = (x.child() for x in listed if kind_of(x) == "Alias" and x.toAttribute().semanticEquals(e))
    return next(own, e)


def _references(e: JavaObject, below: JavaObject) -> set[int]:
    """The columns that ``e`` is computed of."""
    made = _definition(e, below)
    return {
        attribute_id(a) for a in items_of((e if kind_of(made) == "AttributeReference" else made).references().toSeq())
    }


def _identity(node: JavaObject) -> list[int]:
    """The columns of ``node`` that tell its rows apart."""
    kind = kind_of(node)
    if kind in _SAME:
        return _identity(node.child())
    if kind == "Project":
        return _through(node.projectList(), _identity(node.child()))
    if kind == "Aggregate":
        keys = seq_items(node.groupingExpressions())
        results = seq_items(node.aggregateExpressions())
        return [attribute_id(_result_of(key, results)) for key in keys]
    if kind == "Window":
        keys = [attribute_id(k) for k in seq_items(node.partitionSpec()) if kind_of(k) == "AttributeReference"]
        return [*keys, *(attribute_id(e) for e in seq_items(node.windowExpressions()))]
    if kind == "Filter":
        identity = _identity(node.child())
        if {attribute_id(a) for a in items_of(node.condition().references().toSeq())} <= set(identity):
            return identity
        raise InvalidInputError(
            f"{text_of(node.condition())}: of an update that it leaves out, the row of before would stay among the "
            "first; filter by keys of the groupBy, or behind the rank"
        )
    raise InvalidInputError(
        f"{kind}: the rows behind it are updates, and nothing says which of them take the place of others. Rank right "
        "behind groupBy(...).agg(...), or use groupBy(...).topN(..., mergeKeys=...)"
    )


def _result_of(key: JavaObject, results: list[JavaObject]) -> JavaObject:
    for result in results:
        if result.semanticEquals(key) or (kind_of(result) == "Alias" and result.child().semanticEquals(key)):
            return result
    raise InvalidInputError(f"{text_of(key)}: the rows behind this groupBy are ranked, so its keys have to be selected")


def _through(listed: JavaObject, identity: list[int]) -> list[int]:
    """Where a projection has the columns of ``identity``."""
    of_ids = {attribute_id(e.child()): e for e in items_of(listed) if _is_alias(e)}
    of_ids |= {attribute_id(e): e for e in items_of(listed) if kind_of(e) == "AttributeReference"}
    missing = [i for i in identity if i not in of_ids]
    if missing:
        raise InvalidInputError(
            "select: the rows are updates that are ranked behind it, so all keys of the groupBy in front have to be "
            f"among the columns; found {', '.join(str(e.name()) for e in items_of(listed))}"
        )
    return [attribute_id(of_ids[i]) for i in identity]


def _is_alias(e: JavaObject) -> bool:
    return kind_of(e) == "Alias" and kind_of(e.child()) == "AttributeReference"
