"""What ``orderBy`` is given: columns and expressions, ascending or descending, nulls first or last. Driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.chain import Chain, Recipe, StreamRows
from spark_ckpt.execution.event_time import event_time
from spark_ckpt.execution.java_classes import COLUMN, class_name, java_class
from spark_ckpt.operators.key_columns import Keys, arrow_columns, stored_name
from spark_ckpt.operators.keyed_operator import keyed_rows
from spark_ckpt.runtime.limits import FirstOfResult
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.state.functions.distinct_rows import Expiry
from spark_ckpt.state.functions.first_rows import COUNT
from spark_ckpt.state.functions.first_rows import FirstRows as Limited
from spark_ckpt.state.topn.changes import Changes
from spark_ckpt.state.topn.function import STATE_COLUMNS, TopN
from spark_ckpt.state.topn.ordering import OrderBy
from spark_ckpt.state.topn.updates import TopNOfUpdates

Node = Any


@dataclass(frozen=True)
class Ordering:
    """``given`` is a name or an expression. Spark's nulls come first where it ascends and last where it descends."""

    given: Any
    descending: bool = False
    nulls_first: bool = True


def ordering(given: Any) -> Ordering:
    """Of one argument: a name, or a column such as ``F.desc("ts")`` or ``df.n.asc_nulls_last()``."""
    if isinstance(given, str):
        return Ordering(given)
    if not isinstance(given, Column):
        raise InvalidInputError(f"expected columns to order by, names or such as F.desc('ts'); found {given!r}")
    if hasattr(given, "_jc"):
        return _classic(given, given._jc.node())
    tree = given._expr
    if type(tree).__name__ != "SortOrder":
        return Ordering(given)
    return Ordering(type(given)(tree._child), not tree._ascending, tree._nullsFirst)


def _classic(given: Column, node: Node) -> Ordering:
    if class_name(node) != "SortOrder":
        return Ordering(given)
    child = type(given)(java_class(COLUMN)(node.child()))
    return Ordering(child, "Desc" in str(node.sortDirection()), "First" in str(node.nullOrdering()))


def check_orderable(method: str, name: str, kind: T.DataType) -> None:
    """Raises ``InvalidInputError`` for types whose order is not Spark's here."""
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            check_orderable(method, f"{name}.{field.name}", field.dataType)
        return
    collated = isinstance(kind, T.StringType) and not kind.isUTF8BinaryCollation()
    others = (T.ArrayType, T.MapType, T.VariantType, T.CalendarIntervalType, T.YearMonthIntervalType, T.NullType)
    if collated or isinstance(kind, (*others, T.UserDefinedType)):
        raise InvalidInputError(
            f"{method} cannot order by {name!r}, whose type is {kind.simpleString()}: order by flat columns or structs "
            "of such, for example by F.size(...) or an element of an array, or by a cast"
        )


@dataclass(frozen=True)
class FirstRows:
    """What is asked of rows. ``keys`` and ``order`` go by columns of theirs, ``shown`` come out. ``merged``: where rows
    are updates, the columns by which a newer row takes the place of an older one, beside the keys; ``removed_by`` says
    which rows are removals."""

    n: int
    keys: Sequence[str]
    order: Sequence[OrderBy]
    shown: Sequence[str]
    rank: str | None
    change: str | None
    merged: Sequence[str] | None = None
    removed_by: str | None = None


def first_rows_of_keys(
    rows: StreamRows, uid: str | None, asked: FirstRows, method: str, mode: str | None
) -> StreamRows:
    """The operator behind rows whose columns have names of their own; the keys are columns of theirs."""
    names = rows.schema.names
    keys = Keys.of_columns([rows.schema[name] for name in asked.keys]).named_for(names, STATE_COLUMNS)
    function = top_n(rows.schema, asked, keys, method)
    return keyed_rows(rows, uid, function, names, keys, mode)


def top_n(schema: T.StructType, asked: FirstRows, keys: Keys, method: str) -> TopN:
    """Of rows of ``schema``. Raises ``InvalidInputError`` for what cannot be ordered by."""
    for by in asked.order:
        check_orderable(method, by.column, schema[by.column].dataType)
    needed, time = [c for c in schema.names if c != asked.removed_by], event_time(schema, method)
    how: dict[str, Any] = {
        "changes": Changes(arrow_columns(schema, list(asked.shown)), asked.rank, asked.change),
        "plain_keys": keys.columns,
        "watermark": time is not None,
        "expiry": None if time is None or time.name not in keys.columns else Expiry(time.name),
        "stored_as": {name: stored_name(name) for name in needed},
    }
    row = (asked.n, asked.order, arrow_schema(keys.schema), arrow_columns(schema, needed))
    if asked.merged is None:
        return TopN(*row, **how)
    sub_keys = {name: stored_name(name) for name in asked.merged}
    return TopNOfUpdates(*row, merge_keys=sub_keys, removed_by=asked.removed_by, **how)


_ALL = "all"


def first_rows(rows: StreamRows, n: int, uid: str | None) -> StreamRows:
    """The first ``n`` rows. In output mode complete, behind an aggregation, of each result; else an operator counts
    them over time, in one task."""
    names = rows.schema.names
    keys = Keys({_ALL: F.lit(True)}, T.StructType().add(_ALL, "boolean"), frozenset()).named_for(names, [COUNT])
    function = Limited(n, arrow_schema(keys.schema), arrow_columns(rows.schema, names))
    whole = rows.lineage.whole_result
    made = keyed_rows(rows, uid, function, names, keys, whole_in_complete=whole)
    counting, lineage = made.recipe.make, replace(made.lineage, is_limited=True)

    def make(ctx: Any) -> Chain:
        in_complete = whole and ctx.output_mode == "complete"
        return of_result(ctx, rows.recipe, n) if in_complete else counting(ctx)

    return replace(made, recipe=replace(made.recipe, make=make), lineage=lineage)


def of_result(ctx: Any, recipe: Recipe, n: int) -> Chain:
    """In each task first, and then in one. Behind Python, Spark keeps the order that its rows have."""
    chain = ctx.chain(recipe)
    few = ctx.place(chain.then(FirstOfResult(n), chain.schema))
    return Chain(few.repartition(1), chain.schema, (FirstOfResult(n),))
