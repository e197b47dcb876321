"""The keys of ``groupBy``, and the columns beside them that an operator gets. Driver only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.attributes import column_ids, refuse_missing, with_tables
from spark_ckpt.plan.columns import free, is_repeated, proposing_user_columns, quoted
from spark_ckpt.plan.condition import names_in, parts_of, replaced
from spark_ckpt.plan.event_time import DELAY_KEY
from spark_ckpt.plan.fails_on_nulls import of_data_rows
from spark_ckpt.plan.key_columns import Keys, resolve_keys, with_own_names
from spark_ckpt.plan.key_types import check_key, check_key_of_function
from spark_ckpt.types import CTL, TAG

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

_SPARKS = ("spark.", "spark_ckpt.")
"""What metadata begins with that is about times and windows: it is no more so behind the operator."""


def keys_apart(df: CkptDataFrame, cols: list[Any]) -> tuple[CkptDataFrame, list[Any], dict[int, int]]:
    """Behind a join with a table names may come twice: keys of such names get columns of their own. The places are
    those of columns that are keys, by the keys' numbers, where names do not say."""
    if not is_repeated(df.columns, df._session.spark):
        for col in cols:
            refuse_missing(df._attributes, col)
            if df._stream_side is not None:
                df._stream_side.refuse_others(col, df)
        return df, [with_tables(df._attributes, col, df._preview) for col in cols], {}
    twice = {name for name, n in Counter(c.lower() for c in df.columns).items() if n > 1}
    made: dict[str, Column] = {}
    keys: list[Any] = []
    places: dict[int, int] = {}
    ids = column_ids(df._preview) if hasattr(df._preview, "_jdf") else []
    for number, col in enumerate(df._told_apart(cols)):
        with proposing_user_columns():
            key = None if isinstance(col, int) else df._preview.select(col)
        name = "" if key is None else key.columns[0]
        one = column_ids(key)[0] if key is not None and ids else None
        if one is not None and one in ids:
            places[number] = ids.index(one)
        if name.lower() in twice:
            own = free(name, [*df.columns, *made])
            made[own], col = F.col(col) if isinstance(col, str) else col, F.col(quoted(own)).alias(name)
        keys.append(col)
    return df.withColumns(made) if made else df, keys, places


def called(df: CkptDataFrame, cols: list[Any]) -> list[Any]:
    """``cols``, as classic Spark calls them as keys: ``stream["k"].cast("int")`` is ``CAST(k AS INT)`` there, and ``k``
    in a projection, unless it goes by a time zone."""
    return [c.alias(_called_as_key(df, c)) if _is_cast(c) else c for c in cols]


def _called_as_key(df: CkptDataFrame, cast: Column) -> str:
    whole = all(len(parts_of(name.text)) == 1 for name in names_in(cast) or [])
    if df._joined is not None or not whole:  # within a struct it is told, too, but for casts that go by a time zone
        return str(df.select(F.struct(cast)).columns[0][len("struct(") : -1])
    rows = df._in_spark()
    of_rows = replaced(cast, lambda name: rows[name.text] if name.of_stream else None)
    return str(rows.groupBy(of_rows).count().columns[0])


def _is_cast(col: Any) -> bool:
    """Of columns that were taken from DataFrames, which Spark knows when they are given."""
    if not type(col).__module__.startswith("pyspark.sql.classic"):
        return False
    return col._jc.node().getClass().getSimpleName() == "Cast" and all(n.of_stream for n in names_in(col) or [])


def keys_of(parent: CkptDataFrame, cols: list[Any]) -> Keys:
    """``cols`` are names, positions and expressions. Raises ``InvalidInputError`` for what cannot be a key."""
    with proposing_user_columns():
        found, called = with_own_names(resolve_keys(parent._preview, parent.columns, cols), parent.columns)
    given = {field.name: expression for expression, field, _ in found}
    plain = frozenset(field.name for _, field, is_plain in found if is_plain)
    columns, copied = plain - called.keys(), plain & called.keys()
    expressions = given | for_data_rows(parent, {n: c for n, c in given.items() if n not in columns})
    for _, field, _ in found:
        if field.name not in columns:
            # Raises if its plan could lose control rows; F.window is such an expression, and no matter of types.
            parent._operation("groupBy", _only(expressions[field.name]), check=True)
        check_key(field)
    fields = [T.StructField(field.name, field.dataType, True) for _, field, _ in found]
    delays = tuple(_delay_ms(parent, field) for _, field, _ in found)
    notes = tuple({k: v for k, v in f.metadata.items() if not k.startswith(_SPARKS)} for _, f, _ in found)
    return Keys(expressions, T.StructType(fields), columns, delays, {}, given, notes, called, copied)


def for_data_rows(parent: CkptDataFrame, keys: dict[str, Column]) -> dict[str, Column]:
    """Those that fail on nulls, as such that do not: control rows have no key."""
    safe = of_data_rows(parent._preview, parent._nodes, keys)
    return {name: column.alias(name) for name, column in safe.items()}


def refuse_carried(keys: Keys) -> None:
    """Raises ``InvalidInputError`` for keys that a function would get as something else than they are."""
    if keys.called:
        names = [keys.called.get(name, name) for name in keys.expressions]
        raise InvalidInputError(
            f"groupBy has several keys of one name, {names}, which agg(...) and its short forms take: for others, "
            "rename one in front"
        )
    for field in keys.schema.fields:
        check_key_of_function(field)


def _delay_ms(parent: CkptDataFrame, key: T.StructField) -> int | None:
    """None: it is no event time."""
    timed = parent._lineage.watermarks and isinstance(key.dataType, T.TimestampType)
    return int(key.metadata[DELAY_KEY]) if timed and DELAY_KEY in key.metadata else None


def _only(key: Column) -> Callable[[Any], Any]:
    return lambda df: df.select(key, TAG, CTL)
