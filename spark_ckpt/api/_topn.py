"""``groupBy(...).topN(...)``: the first rows of each key. Driver only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.api._window_columns import shown
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import is_case_sensitive, refuse_repeated
from spark_ckpt.plan.event_time import event_time
from spark_ckpt.plan.key_columns import Keys, arrow_columns, column_named, is_key, resolve_keys, stored_name, written
from spark_ckpt.plan.ordering import Ordering, check_orderable, ordering
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.state.functions.distinct_rows import Expiry
from spark_ckpt.state.topn.changes import Changes
from spark_ckpt.state.topn.function import STATE_COLUMNS, TopN
from spark_ckpt.state.topn.ordering import OrderBy
from spark_ckpt.state.topn.updates import TopNOfUpdates

if TYPE_CHECKING:
    from spark_ckpt.api._window_keys import WindowColumn
    from spark_ckpt.api.dataframe import CkptDataFrame
    from spark_ckpt.plan.lineage import Lineage

_HIDDEN = "__ckpt_order_"


class TopRows:
    """What ``groupBy(...)`` has for the first rows of each key. PySpark has no such method on streams; in batches it is
    ``row_number()`` over a window."""

    _parent: CkptDataFrame
    _keys: Keys
    _window: WindowColumn | None

    def topN(
        self,
        n: int,
        *orderBy: Any,
        rank: str | None = None,
        mergeKeys: str | Sequence[str] | None = None,
        changeColumn: str = "op",
        uid: str | None = None,
    ) -> CkptDataFrame:
        """The first ``n`` rows of each key in an order, of all rows that ever came, as changes: Flink's Top-N.

        ``orderBy`` are names and columns as in ``DataFrame.orderBy``: ``"price"``, ``F.desc("at")``,
        ``F.asc_nulls_last("n")``, with Spark's order of nulls, NaN and zeros; equal rows stay in their order of
        arrival. ``topN(1, F.desc("at"))`` is the latest row of each key. ``groupBy()`` without keys has one such list,
        in one task.

        What comes out, for each batch, is what changed among those rows: all their columns, and ``changeColumn``
        (string, with Flink's kinds). A row that comes in is ``+I``, one that falls out ``-D``. With ``rank``, the name
        of a column for the row's number (int, from 1), each change is that of a rank: ``+I`` when it is first taken,
        ``-U`` and ``+U`` with the row before and the row that has it now. Give sinks that merge the option
        ``changeColumn``, and as ``mergeKeys`` the keys and ``rank``, or the keys and what tells their rows apart.

        Where rows are updates, behind an aggregate, ``mergeKeys`` names the columns by which, in its key, a newer row
        takes the place of an older one; a row whose key changes stays under its old one, too, unless a change row
        removes it there. If the rows have a column ``changeColumn``, it says which are removed. Then all rows are kept;
        else only the first ``n`` of each key.

        With ``withWatermark`` ahead, late rows are dropped; and if the event-time column is a key, a key is forgotten
        when the watermark passes it. Else keys are kept for ever. ``uid`` is the operator's name in checkpoints. Raises
        ``InvalidInputError`` for what cannot be ordered by, names that are taken, ``n`` below 1, and updates without
        ``mergeKeys``::

            best = orders.groupBy("customer").topN(3, F.desc("price"), rank="place").uid("best")
            best.writeStream.format("delta").option("mergeKeys", "customer,place").option("changeColumn", "op")

            sales = orders.groupBy("shop", "product").agg(F.sum("price").alias("sales"))
            top = sales.groupBy("shop").topN(10, F.desc("sales"), mergeKeys="product").uid("top")
        """
        if self._window is not None:
            by_columns: TopRows = self._by_columns()
            return by_columns.topN(n, *orderBy, rank=rank, mergeKeys=mergeKeys, changeColumn=changeColumn, uid=uid)
        parent = self._parent
        given = tuple(orderBy[0]) if len(orderBy) == 1 and isinstance(orderBy[0], list | tuple) else orderBy
        _check_arguments(n, given, mergeKeys, parent._lineage)
        _check_names(rank=rank, changeColumn=changeColumn)
        merged = _merge_keys(parent, mergeKeys, self._keys)
        removed_by = _removed_by(parent, merged, changeColumn)
        wider, order = _with_order(parent, [ordering(by) for by in given])
        _refuse_as_value(removed_by, [*(merged or ()), *(by.column for by in order)])
        changes = Changes(_arrow(wider, [c for c in shown(parent.columns) if c != removed_by]), rank, changeColumn)
        refuse_repeated(changes.schema.names, parent._session.spark)
        keys = self._keys.named_for(wider.columns, STATE_COLUMNS)
        function = _function(n, order, wider, keys, changes, merged, removed_by)
        return self._first(wider, uid, function, keys)

    def _by_columns(self) -> Any:
        raise NotImplementedError

    def _first(self, parent: CkptDataFrame, uid: str | None, function: TopN, keys: Keys) -> CkptDataFrame:
        raise NotImplementedError


def _function(
    n: int,
    order: list[OrderBy],
    df: CkptDataFrame,
    keys: Keys,
    changes: Changes,
    merged: list[str] | None,
    removed_by: str | None,
) -> TopN:
    needed = [c for c in shown(df.columns) if c != removed_by]
    time = event_time(df.schema, "topN")
    how: dict[str, Any] = {
        "changes": changes,
        "plain_keys": keys.columns,
        "watermark": time is not None,
        "expiry": None if time is None or time.name not in keys.columns else Expiry(time.name),
        "stored_as": {name: stored_name(name) for name in needed},
    }
    row = (n, order, arrow_schema(keys.schema), _arrow(df, needed))
    if merged is None:
        return TopN(*row, **how)
    sub_keys = {name: stored_name(name) for name in merged}
    return TopNOfUpdates(*row, merge_keys=sub_keys, removed_by=removed_by, **how)


def _arrow(df: CkptDataFrame, columns: list[str]) -> pa.Schema:
    return arrow_columns(df.schema, columns)


def _check_arguments(n: int, order: tuple[Any, ...], merge_keys: Any, lineage: Lineage) -> None:
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n < 2**31:
        raise InvalidInputError(f"topN: n is how many rows of each key, a whole number from 1 on; found {n!r}")
    if not order:
        raise InvalidInputError("topN needs at least one column to order by, such as F.desc('price')")
    last = [o for o in lineage.operators if not any(o in other.behind for other in lineage.operators)]
    updates = next((o for o in last if o.output_mode == "update"), None)
    if updates is not None and merge_keys is None:
        raise InvalidInputError(
            f"topN: the rows of operator {updates.shown!r} are updates, new values of rows that came before; say by "
            "which columns, beside the keys, a newer row takes the place of an older one: mergeKeys=['product']"
        )


def _check_names(**names: Any) -> None:
    for argument, name in names.items():
        if not (isinstance(name, str) and name) and not (argument == "rank" and name is None):
            raise InvalidInputError(f"topN: {argument} is the name of a column that comes out; found {name!r}")


def _merge_keys(df: CkptDataFrame, given: Any, keys: Keys) -> list[str] | None:
    if given is None:
        return None
    names: list[Any] = [given] if isinstance(given, str) else [*given] if isinstance(given, list | tuple) else [None]
    if not all(isinstance(name, str) for name in names):
        raise InvalidInputError(f"topN: mergeKeys is a column's name, or a list of names; found {given!r}")
    sensitive = is_case_sensitive(df._session.spark)
    found = {name: column_named(df.columns, name, sensitive) for name in names}
    missing = [name for name, column in found.items() if column is None]
    if missing:
        raise InvalidInputError(f"topN: mergeKeys names {missing[0]!r}; the columns are {df.columns}")
    merged = list(dict.fromkeys(c for c in found.values() if c is not None and c not in keys.columns))
    wrong = [c for c in merged if not is_key(df.schema[c].dataType)]
    if wrong:
        kind = df.schema[wrong[0]].dataType.simpleString()
        raise InvalidInputError(
            f"topN: mergeKeys names {wrong[0]!r}, whose type is {kind}; rows are told apart by flat columns"
        )
    if not merged:
        raise InvalidInputError(f"topN: mergeKeys needs a column beside the keys, found {given!r}")
    return merged


def _removed_by(df: CkptDataFrame, merged: list[str] | None, change: str) -> str | None:
    """The column of the rows that says which of them are removals."""
    if merged is None:
        return None
    sensitive = is_case_sensitive(df._session.spark)
    name = column_named(df.columns, change, sensitive)
    if name is not None and not isinstance(df.schema[name].dataType, T.StringType):
        kind = df.schema[name].dataType.simpleString()
        raise InvalidInputError(
            f"topN: column {name!r} has type {kind}; as changeColumn it would say what each row is, +I, -U, +U or -D: "
            "give another name, changeColumn='change', for a column of its own"
        )
    return name


def _refuse_as_value(removed_by: str | None, values: list[str]) -> None:
    if removed_by is not None and removed_by in values:
        raise InvalidInputError(
            f"topN: column {removed_by!r} says what each row is (changeColumn), so rows are neither ordered nor told "
            "apart by it; give another name, changeColumn='change', for a column of its own"
        )


def _with_order(parent: CkptDataFrame, orders: list[Ordering]) -> tuple[CkptDataFrame, list[OrderBy]]:
    """What is ordered by; expressions are computed in front of the operator, in columns of their own."""
    found = resolve_keys(parent._preview, parent.columns, [o.given for o in orders])
    computed: dict[str, Column] = {}
    made = []
    for i, (order, (expression, field, plain)) in enumerate(zip(orders, found, strict=True)):
        check_orderable("topN", field.name, field.dataType)
        name = field.name if plain else f"{_HIDDEN}{i}"
        if not plain:
            # Nothing is noted of what a function gives: the column is no event time, whatever it is computed of.
            computed[name] = F.coalesce(expression)
        text = "" if plain else written(order.given)
        made.append(OrderBy(name, order.descending, order.nulls_first, text))
    if computed:
        parent = parent._operation("topN", lambda df: df.withColumns(computed), check=True)
    return parent, made
