"""``groupBy(...).topN``, ``.aggregate`` and ``.applyInArrowWithState`` of PySpark's grouped data: ``enable`` adds them.
Driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.agg import AggSpec
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.columns import is_case_sensitive, listed, refuse_repeated
from spark_ckpt.operators.groups import rules_of
from spark_ckpt.operators.key_columns import arrow_columns, column_named, is_key, stored, written
from spark_ckpt.operators.own_operators import Groups
from spark_ckpt.operators.top_rows import FirstRows, ordering, top_n
from spark_ckpt.plan.front_door import groups_of
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.functions.arrow_function import ArrowStateFunction
from spark_ckpt.state.topn.function import STATE_COLUMNS
from spark_ckpt.state.topn.ordering import OrderBy

_HIDDEN = "__ckpt_order_"
_TIMEOUTS = ("NoTimeout", "ProcessingTimeTimeout", "EventTimeTimeout")


def topN(
    grouped: GroupedData,
    n: int,
    *orderBy: Any,
    rank: str | None = None,
    mergeKeys: str | Sequence[str] | None = None,
    changeColumn: str = "op",
) -> DataFrame:
    """The first ``n`` rows of each key in an order, of all rows that ever came, as changes: Flink's Top-N.

    ``orderBy`` is as in ``DataFrame.orderBy``, with Spark's order of nulls, NaN and zeros; equal rows stay in their
    order of arrival. For each batch the changes among those rows come out: all their columns, and ``changeColumn``
    (string, with Flink's kinds). A row that comes in is ``+I``, one that falls out ``-D``. With ``rank``, the name of a
    column for the number of the row (int, from 1), each change is that of a rank: ``-U`` and ``+U`` with the row before
    and the row that has it now. A sink that merges gets ``changeColumn``, and as ``mergeKeys`` the keys and ``rank``,
    or the keys and what tells their rows apart.

    Where rows are updates, behind an aggregate, ``mergeKeys`` names the columns by which, in its key, a newer row takes
    the place of an older one. If the rows have a column ``changeColumn``, it says which are removed. Then all rows are
    kept; else only the first ``n`` of each key. With ``withWatermark`` ahead, late rows are dropped, and a key that is
    the event time is forgotten when the watermark passes it. Raises ``InvalidInputError`` for what cannot be ordered
    by, names that are taken, ``n`` below 1, and updates without ``mergeKeys``::

        orders.groupBy("customer").topN(3, F.desc("price"), rank="place").uid("best")
    """
    _check_top_n(n, orderBy, rank=rank, changeColumn=changeColumn)
    groups = groups_of(grouped)
    df, spark = groups.df, groups.df.sparkSession
    merged = None if mergeKeys is None else _merged(df, mergeKeys)
    removed_by = None if merged is None else column_named(df.columns, changeColumn, is_case_sensitive(spark))
    if removed_by is not None and not isinstance(df.schema[removed_by].dataType, T.StringType):
        kind = df.schema[removed_by].dataType.simpleString()
        raise InvalidInputError(
            f"topN: column {removed_by!r} has type {kind}; as changeColumn it would say what each row is, +I, -U, +U "
            "or -D: give another name, changeColumn='change', for a column of its own"
        )
    wider, order = _with_order(groups, listed(orderBy))
    keys = wider.keys
    merged = None if merged is None else [c for c in merged if c not in keys.columns]
    if merged == []:
        raise InvalidInputError(f"topN: mergeKeys needs a column beside the keys, found {mergeKeys!r}")
    if removed_by is not None and removed_by in [*(merged or ()), *(by.column for by in order)]:
        raise InvalidInputError(
            f"topN: column {removed_by!r} says what each row is (changeColumn), so rows are neither ordered nor told "
            "apart by it; give another name, changeColumn='change', for a column of its own"
        )
    keys = keys.named_for(wider.df.columns, STATE_COLUMNS)
    shown = [c for c in df.columns if c != removed_by]
    asked = FirstRows(n, list(keys.expressions), order, shown, rank, changeColumn, merged, removed_by)
    function = top_n(wider.df.schema, asked, keys, "topN")
    refuse_repeated(function.output_schema.names, spark)
    return wider.operator("topN", function, keys, wider.df.columns)


def aggregate(
    grouped: GroupedData, *, emit: str = "update", orderBy: str | None = None, **aggregates: AggSpec
) -> DataFrame:
    """Keyed aggregation; ``aggregates`` are ``name=agg.count()`` and so on (:mod:`spark_ckpt.agg`).

    ``emit="update"`` gives, for each batch, the new values of the keys that it touched. ``emit="rows"`` gives each row
    with the running values of its key behind it, in ``orderBy`` order within a batch (Flink's rolling aggregation).
    Behind another operator's updates each of them is a row: that is for what only grows. Raises ``InvalidInputError``
    for none, for columns that are not there and types that an aggregate cannot take::

        orders.groupBy("customer").aggregate(emit="rows", orderBy="at", total=agg.sum("amount")).uid("totals")
    """
    if not aggregates:
        raise InvalidInputError("aggregate needs at least one aggregate, such as n=agg.count()")
    groups = groups_of(grouped)
    if not groups.by:
        raise InvalidInputError("aggregate: groupBy needs at least one key column; agg(...) goes without")
    names, keys = list(groups.df.columns), groups.keys
    needed = {s.column for s in aggregates.values() if s.column is not None} | ({orderBy} if orderBy else set())
    missing = sorted(needed - set(names))
    if missing:
        raise InvalidInputError(f"aggregate names column(s) {missing}; the columns are {names}")
    hidden = sorted(needed & (set(keys.expressions) - keys.columns))
    if hidden:
        raise InvalidInputError(
            f"the key {hidden[0]!r} is an expression and has the name of a column that is aggregated; "
            f"give it another one: .alias({hidden[0] + '_key'!r})"
        )
    columns, rules = names if emit == "rows" else sorted(needed), rules_of(groups.df.sparkSession)
    inputs = arrow_columns(groups.df.schema, columns)
    function = AggregateFunction(
        arrow_schema(keys.schema), inputs, aggregates, emit=emit, order_by=orderBy, rules=rules
    )
    mode = "update" if emit == "update" else None
    return groups.operator("aggregate", function, keys, columns, output_mode=mode, takes_updates=True)


def applyInArrowWithState(
    grouped: GroupedData,
    func: Callable[..., Any],
    outputStructType: T.StructType | str,
    stateStructType: T.StructType | str,
    timeoutConf: str = "NoTimeout",
) -> DataFrame:
    """The vectorised form of ``applyInPandasWithState``: ``func(rows, state, ctx) -> (output, new_state)``, called in
    executors once for all keys that a task touches.

    ``rows``: the columns in order of arrival, and ``_key`` (int32), the row of ``state`` each belongs to. ``state``: a
    row a touched key: the keys, the columns of ``stateStructType`` (null without state), ``_exists`` and ``_timed_out``
    (bool) and, where time-outs are used, ``_timeout_ms`` (int64, null: none). ``ctx`` is a
    :class:`spark_ckpt.CallContext`. ``output`` has the columns of ``outputStructType``. ``new_state`` has a row for
    each row of ``state``, with the columns of ``stateStructType`` and, if you want, ``_removed``, ``_write`` and
    ``_timeout_ms``; None keeps all state. A key whose name another column or a state field has is called with ``_key``
    behind its name. ``timeoutConf`` is as in ``applyInPandasWithState``; ``InvalidInputError`` is raised for another.
    What ``func`` raises ends the query with a ``UserFunctionError``.
    """
    if timeoutConf not in _TIMEOUTS:
        raise InvalidInputError(f"timeoutConf must be one of {list(_TIMEOUTS)}, found {timeoutConf!r}")
    groups, state = groups_of(grouped), stored(_struct(stateStructType))
    keys = groups.keys.named_for(groups.df.columns, state.names)
    function = ArrowStateFunction(
        func,
        arrow_schema(keys.schema),
        arrow_columns(groups.df.schema, groups.df.columns),
        arrow_schema(_struct(outputStructType)),
        arrow_schema(state),
        timeout=timeoutConf,
    )
    return groups.operator("applyInArrowWithState", function, keys, groups.df.columns)


def _struct(schema: T.StructType | str) -> T.StructType:
    return schema if isinstance(schema, T.StructType) else T.StructType.fromDDL(schema)


def _check_top_n(n: int, order: tuple[Any, ...], **names: Any) -> None:
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n < 2**31:
        raise InvalidInputError(f"topN: n is how many rows of each key, a whole number from 1 on; found {n!r}")
    if not listed(order):
        raise InvalidInputError("topN needs at least one column to order by, such as F.desc('price')")
    for argument, name in names.items():
        if not (isinstance(name, str) and name) and not (argument == "rank" and name is None):
            raise InvalidInputError(f"topN: {argument} is the name of a column that comes out; found {name!r}")


def _merged(df: DataFrame, given: Any) -> list[str]:
    names: list[Any] = [given] if isinstance(given, str) else [*given] if isinstance(given, list | tuple) else [None]
    if not all(isinstance(name, str) for name in names):
        raise InvalidInputError(f"topN: mergeKeys is a column's name, or a list of names; found {given!r}")
    sensitive = is_case_sensitive(df.sparkSession)
    found = {name: column_named(df.columns, name, sensitive) for name in names}
    missing = [name for name, column in found.items() if column is None]
    if missing:
        raise InvalidInputError(f"topN: mergeKeys names {missing[0]!r}; the columns are {df.columns}")
    merged = list(dict.fromkeys(c for c in found.values() if c is not None))
    wrong = [c for c in merged if not is_key(df.schema[c].dataType)]
    if wrong:
        kind = df.schema[wrong[0]].dataType.simpleString()
        raise InvalidInputError(
            f"topN: mergeKeys names {wrong[0]!r}, whose type is {kind}; rows are told apart by flat columns"
        )
    return merged


def _with_order(groups: Groups, given: list[Any]) -> tuple[Groups, list[OrderBy]]:
    """What is ordered by; expressions are columns of their own in front of the operator."""
    orders, df = [ordering(one) for one in given], groups.df
    columns = [F.col(o.given) if isinstance(o.given, str) else o.given for o in orders]
    computed: dict[str, Column] = {}
    made = []
    for i, (order, column, plain) in enumerate(zip(orders, columns, groups.columns_of(columns), strict=True)):
        name = plain or f"{_HIDDEN}{i}"
        if plain is None:
            # Nothing is noted of what a function gives: the column is no event time, whatever it is computed of.
            computed[name] = F.coalesce(column)
        made.append(OrderBy(name, order.descending, order.nulls_first, "" if plain else written(order.given)))
    return (type(groups)(df.withColumns(computed), groups.by) if computed else groups), made
