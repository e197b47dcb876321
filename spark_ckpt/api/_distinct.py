"""``dropDuplicates``, ``dropDuplicatesWithinWatermark`` and ``distinct`` of a checkpointed stream. Driver only."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.api._joined_rows import joined_names
from spark_ckpt.api._kept_aliases import handed_on
from spark_ckpt.api._keys import arrow_columns, is_key
from spark_ckpt.api._left_out import behind_row_by_row
from spark_ckpt.plan.columns import is_case_sensitive, quoted
from spark_ckpt.plan.distinct_keys import as_text
from spark_ckpt.plan.event_time import EventTimeColumn, event_time, event_time_among, event_times, late_by_window
from spark_ckpt.plan.key_columns import Keys
from spark_ckpt.plan.spark_errors import analysis_error, not_expected, unsupported
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.state.functions.distinct_rows import SEEN, DistinctRows, Expiry

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

_log = logging.getLogger("spark_ckpt")

_WITHIN = "dropDuplicatesWithinWatermark"


class Distinct:
    """The methods of a DataFrame that let one row of each key pass."""

    def dropDuplicates(self: Any, subset: list[str] | None = None, *, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's: the first row of each key, of all rows that ever came; ``subset`` names the key's columns, all
        if it is not given. Of several rows in one batch the first to arrive passes.

        With ``withWatermark`` ahead, late rows are dropped; and if the event-time column is in ``subset``, a key is
        forgotten when the watermark passes it. Else keys are kept for ever: state grows with each new one, and a line
        in the log says so. ``uid`` is the operator's name in checkpoints. Raises as Spark does for
        columns that are not there, ``InvalidInputError`` for maps, which cannot be compared::

            orders.withWatermark("at", "1 hour").dropDuplicates(["id", "at"], uid="once")
        """
        return _dropped(self, "dropDuplicates", subset, uid)

    drop_duplicates = dropDuplicates

    def dropDuplicatesWithinWatermark(
        self: Any, subset: list[str] | None = None, *, uid: str | None = None
    ) -> CkptDataFrame:
        """As PySpark's: :meth:`dropDuplicates` by the columns of ``subset``, where duplicates' event times may differ.

        A key is kept until the watermark passes the event time of the row that came out, and the watermark's delay:
        duplicates that are no further apart than that delay are dropped. ``uid`` is the operator's name in checkpoints.
        Raises ``InvalidInputError`` without ``withWatermark`` ahead, and as :meth:`dropDuplicates`::

            orders.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"], uid="once")
        """
        return _dropped(self, _WITHIN, subset, uid)

    def distinct(self: Any, *, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's: each row once, which is :meth:`dropDuplicates` of all columns.

        ``uid`` is the operator's name in checkpoints. Raises ``InvalidInputError`` for maps, which cannot be compared.
        """
        return _dropped(self, "distinct", None, uid)


def _dropped(df: CkptDataFrame, kind: str, subset: Any, uid: str | None) -> CkptDataFrame:
    from spark_ckpt.api._keyed import keyed

    joined = joined_names(df)
    if joined is not None and joined.needed:
        named = joined.all_called(subset) if isinstance(subset, list | tuple) else subset
        _ = _time(df, kind, df.columns if subset is None else subset)  # raises, by the names that its user knows
        return joined.through(lambda rows: _dropped(rows, kind, named, uid), visible=True)
    wanted = df.columns if subset is None else _named(df, kind, subset)
    keys, expiry, watermark = _keys(df, kind, wanted), _expiry(df, kind, wanted), bool(event_times(df.schema))
    late = late_by_window(df.schema) is not None
    rows = arrow_columns(df.schema, df.columns)
    function = DistinctRows(kind, arrow_schema(keys.schema), rows, watermark, expiry, late)
    made = keyed(df, uid, function, df.columns, keys, asked=wanted)
    if expiry is None:
        _log.warning(
            "%s keeps every key for ever, so its state grows with each new one. %s", kind, _way(kind, watermark)
        )
    made = handed_on(made, df, {at: at for at in range(len(df.columns))})
    made._wider = behind_row_by_row(df, lambda rows: _dropped(rows, kind, wanted, uid))
    return made


def _named(df: CkptDataFrame, kind: str, subset: Any) -> list[str]:
    """The columns of ``subset``, as Spark finds them: by name in any case, and no fields of structs."""
    if not isinstance(subset, Iterable) or isinstance(subset, str):
        raise not_expected("subset", "list or tuple", subset)
    names: list[Any] = list(subset)
    for name in names:
        if not isinstance(name, str):
            raise not_expected("subset", "str", name)
    sensitive = is_case_sensitive(df._session.spark)
    low = {column if sensitive else column.lower(): column for column in df.columns}
    found = {name: low.get(name if sensitive else name.lower()) for name in names}
    missing = [name for name, column in found.items() if column is None]
    if missing:
        raise analysis_error(
            "UNRESOLVED_COLUMN_AMONG_FIELD_NAMES",
            f'Cannot resolve column name "{missing[0]}" among ({", ".join(df.columns)}): {kind}; a field of a struct '
            'needs a column of its own first: withColumn("x", F.col("s.x"))',
            colName=missing[0],
        )
    return list(dict.fromkeys(column for column in found.values() if column is not None))


def _time(df: CkptDataFrame, kind: str, wanted: Iterable[str]) -> EventTimeColumn | None:
    if kind == _WITHIN:
        return event_time(df.schema, kind)
    sensitive = is_case_sensitive(df._session.spark)
    names = {str(name) if sensitive else str(name).lower() for name in wanted}
    asked = [column for column in df.columns if (column if sensitive else column.lower()) in names]
    return event_time_among(df.schema, kind, asked, not df._lineage.open_watermarks)


def _expiry(df: CkptDataFrame, kind: str, wanted: list[str]) -> Expiry | None:
    time = _time(df, kind, wanted)
    if kind == _WITHIN:
        if time is None:
            raise unsupported(
                f"{kind} is not supported on streaming DataFrames/Datasets without watermark: call "
                'withWatermark("at", "1 hour") in front of it'
            )
        return Expiry(time.name, time.delay_us)
    return None if time is None or time.name not in wanted else Expiry(time.name)


def _way(kind: str, watermark: bool) -> str:
    if watermark:
        return f"Have the event-time column among its columns, or use {_WITHIN}, to forget those of long ago."
    return (
        'To forget those of long ago, call withWatermark("at", "1 hour") in front of it and have "at" among the '
        f"columns of {kind}, or use {_WITHIN}."
    )


def _keys(df: CkptDataFrame, kind: str, wanted: list[str]) -> Keys:
    """Columns that cannot be keys go by what is written of them; without any column, all rows have one key."""
    if not wanted:
        return Keys({"all": F.lit(True)}, T.StructType().add("all", "boolean"), frozenset()).named_for(df.columns, [])
    types = {f.name: f.dataType for f in df.schema.fields}
    plain = frozenset(name for name in wanted if is_key(types[name]))
    columns = {name: F.col(quoted(name)) for name in wanted}
    expressions = {n: c if n in plain else as_text(kind, n, c, types[n]) for n, c in columns.items()}
    fields = [T.StructField(name, types[name] if name in plain else T.StringType(), True) for name in wanted]
    return Keys(expressions, T.StructType(fields), plain).named_for(df.columns, [SEEN])
