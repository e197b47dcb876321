"""``dropDuplicates``, ``dropDuplicatesWithinWatermark`` and ``distinct`` of a checkpointed stream. Driver only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from spark_ckpt.api._joined_rows import joined_names
from spark_ckpt.api._kept_aliases import handed_on
from spark_ckpt.api._left_out import behind_row_by_row
from spark_ckpt.plan.columns import is_case_sensitive
from spark_ckpt.plan.distinct_by import WITHIN, DistinctBy
from spark_ckpt.plan.spark_errors import analysis_error, not_expected

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame


class Distinct:
    """The methods of a DataFrame that let one row of each key pass."""

    def dropDuplicates(self: Any, subset: list[str] | None = None, *, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's: the first row of each key, of all rows that ever came; ``subset`` names the key's columns, all
        if it is not given. Of several rows in one batch the first to arrive passes.

        With ``withWatermark`` ahead, late rows are dropped; and if the event-time column is in ``subset``, a key is
        forgotten when the watermark passes it. Else keys are kept for ever: state grows with each new one, and a line
        in the log says so. ``uid`` is the operator's name in checkpoints. Raises as Spark does for
        columns that are not there, ``InvalidInputError`` for maps, which cannot be compared::

            orders.withWatermark("at", "1 hour").dropDuplicates(["id", "at"]).uid("once")
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

            orders.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"]).uid("once")
        """
        return _dropped(self, WITHIN, subset, uid)

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
        _by(df, kind, []).time(_asked(df, subset))  # raises, by the names that its user knows
        return joined.through(lambda rows: _dropped(rows, kind, named, uid), visible=True)
    wanted = df.columns if subset is None else _named(df, kind, subset)
    function, keys = _by(df, kind, wanted).function()
    made = keyed(df, uid, function, df.columns, keys, asked=wanted)
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


def _by(df: CkptDataFrame, kind: str, wanted: list[str]) -> DistinctBy:
    return DistinctBy(kind, df.schema, wanted, bool(df._lineage.open_watermarks))


def _asked(df: CkptDataFrame, subset: Iterable[str] | None) -> list[str]:
    """The columns that ``subset`` names, in whatever case."""
    sensitive = is_case_sensitive(df._session.spark)
    names = {str(name) if sensitive else str(name).lower() for name in (df.columns if subset is None else subset)}
    return [column for column in df.columns if (column if sensitive else column.lower()) in names]
