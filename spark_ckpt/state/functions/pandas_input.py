"""What the user's per-key function gets: keys, DataFrames and ``GroupState``, made from one call's Arrow tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from spark_ckpt.state.functions.base import CallContext, Touched
from spark_ckpt.state.ipc import one_batch, plain_array

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState
    from pyspark.sql.types import StructType

    from spark_ckpt.state.functions.pandas_function import PandasStateFunction

DEFINED = "_defined"
"""Extra state column where time-outs are used: a key may have a time-out and no value."""


class Converts(Protocol):
    """What conversions to pandas need of a function."""

    session_timezone: str
    options: dict[str, bool]


class CallInput:
    """The input of one call, converted once."""

    def __init__(self, function: PandasStateFunction, ctx: CallContext, touched: Touched) -> None:
        self.function, self.ctx, self.touched = function, ctx, touched
        self.keys = key_tuples(touched.keys.select(function.key_schema.names), function)
        self.struct = spark_struct(function.state_struct, function.value_schema)
        self.values = self._stored_values()

    def calls(self) -> Iterator[tuple[int, object]]:
        """Keys with rows, each with an iterator of its one DataFrame; then timed-out keys."""
        touched, names = self.touched, self.function.input_schema.names
        seg, found = touched.by_key()
        rows = touched.rows.select(names)
        if seg.order is not None:
            rows = rows.take(pa.array(seg.order))
        frames = Frames(rows, seg.starts, self.function)
        for at, (i, start, end) in enumerate(zip(found.tolist(), seg.starts.tolist(), seg.ends.tolist())):
            yield i, (frames.slice(*one) for one in ((at, start, end),))
        for i in np.flatnonzero(touched.timed_out).tolist():
            yield i, [frames.empty()]

    def group_state(self, i: int) -> GroupState:
        from pyspark.sql.streaming.state import GroupState

        ctx, function = self.ctx, self.function
        value = self.values.get(i)
        watermark_ms = ctx.watermark_ms if ctx.watermark_ms is not None else 0
        return GroupState(
            optionalValue=value,
            batchProcessingTimeMs=ctx.processing_time_ms,
            eventTimeWatermarkMs=watermark_ms if self._has_watermark() else GroupState.NO_TIMESTAMP,
            timeoutConf=function.timeout,
            hasTimedOut=bool(self.touched.timed_out[i]),
            watermarkPresent=self._has_watermark(),
            defined=value is not None,
            updated=False,
            removed=False,
            timeoutTimestamp=GroupState.NO_TIMESTAMP,
            keyAsUnsafe=b"",
            valueSchema=self.struct,
        )

    def _has_watermark(self) -> bool:
        return self.function.has_watermark or self.ctx.watermark_ms is not None

    def _stored_values(self) -> dict[int, tuple[Any, ...]]:
        from pyspark.sql.conversion import ArrowTableToRowsConversion

        has_value = self.touched.exists
        if self.function.timeout != "NoTimeout":
            defined = plain_array(self.touched.state[DEFINED]).fill_null(False)
            has_value = has_value & defined.to_numpy(zero_copy_only=False)
        known = np.flatnonzero(has_value)
        stored = self.touched.state.select(self.function.value_schema.names).take(pa.array(known))
        return dict(zip(known.tolist(), ArrowTableToRowsConversion.convert(stored, self.struct)))


class Frames:
    """pandas slices of Arrow rows with the types Spark would give each slice by itself.

    Integers and booleans with nulls have another pandas type than those without, so such columns are kept in both
    forms and a slice takes the one its own nulls call for. With nulls inside arrays that is so for each array's
    values, and such a column is converted slice by slice.
    """

    def __init__(self, rows: pa.Table, starts: np.ndarray, function: Converts) -> None:
        import pandas as pd

        self.nullable: dict[int, pd.Series] = {}
        self.has_nulls: dict[int, np.ndarray] = {}
        self.function = function
        self.nested = {at: rows.select([at]) for at in range(rows.num_columns) if _nulls_inside(rows.column(at))}
        for at in range(rows.num_columns):
            column = plain_array(rows.column(at))
            t = column.type
            if column.null_count and (pa.types.is_integer(t) or pa.types.is_boolean(t)) and len(starts):
                nulls = column.is_null().to_numpy(zero_copy_only=False)
                self.has_nulls[at] = np.logical_or.reduceat(nulls, starts)
                self.nullable[at] = _series(rows.select([at]), function)[0]
                rows = rows.set_column(
                    at, rows.schema.field(at), column.fill_null(False if pa.types.is_boolean(t) else 0)
                )
        for at in self.nested:
            field = rows.schema.field(at)
            rows = rows.set_column(at, field, pa.nulls(rows.num_rows, field.type))
        self.frame = pd.concat(_series(rows, function), axis=1)

    def slice(self, at: int, start: int, end: int) -> pd.DataFrame:

        part = _rows_of(self.frame, start, end)
        for column, has_nulls in self.has_nulls.items():
            if has_nulls[at]:
                values = self.nullable[column].iloc[start:end].set_axis(part.index)
                part.isetitem(column, values)
        for column, rows in self.nested.items():
            part.isetitem(column, _series(rows.slice(start, end - start), self.function)[0])
        return part

    def empty(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(columns=self.frame.columns)


def _rows_of(frame: pd.DataFrame, start: int, end: int) -> pd.DataFrame:
    """Rows under an index from 0, in a DataFrame of its own: the user may write to it without a SettingWithCopyWarning.

    What ``DataFrame(frame.iloc[start:end])`` and a new index do, without the checks that take four times as long; a
    key has few rows. By pandas' own parts where it has them.
    """
    import pandas as pd

    index = pd.RangeIndex(end - start)
    manager: Any = getattr(frame, "_mgr", None)
    if not hasattr(manager, "get_slice") or not hasattr(pd.DataFrame, "_from_mgr"):
        part = pd.DataFrame(frame.iloc[start:end])
        part.index = index
        return part
    manager = manager.get_slice(slice(start, end), axis=1)
    manager.axes = [manager.axes[0], index]
    return pd.DataFrame._from_mgr(manager, manager.axes)


def _nulls_inside(column: pa.ChunkedArray) -> bool:
    """Whether a value that holds others, at any depth, holds a null."""
    if pa.types.is_list(column.type):
        children = [pa.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type)]
    elif pa.types.is_map(column.type):
        entries = [(chunk.keys, chunk.items) for chunk in column.chunks]
        children = [pa.chunked_array(list(side)) for side in zip(*entries)]
    elif pa.types.is_struct(column.type):
        children = column.flatten()
    else:
        return False
    return any(child.null_count or _nulls_inside(child) for child in children)


def _series(rows: pa.Table, function: Converts) -> list[pd.Series]:
    from spark_ckpt.spark_versions.pandas_conversion import to_pandas

    # PySpark goes by the columns' own time zone, which is the session's in what the JVM sends and UTC in ours.
    local = pa.schema([pa.field(f.name, in_timezone(f.type, function.session_timezone)) for f in rows.schema])
    return to_pandas(
        one_batch(rows.cast(local)),  # PySpark cannot convert times in a column without a chunk
        function.session_timezone,
        function.options.get("prefer_int_ext_dtype", False),
    )


def in_timezone(kind: pa.DataType, timezone: str) -> pa.DataType:
    """``kind`` with every time zone replaced; the instants stay the same."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, timezone) if kind.tz is not None else kind
    if pa.types.is_list(kind):
        return pa.list_(in_timezone(kind.value_type, timezone))
    if pa.types.is_map(kind):
        return pa.map_(in_timezone(kind.key_type, timezone), in_timezone(kind.item_type, timezone))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, in_timezone(f.type, timezone)) for f in kind])
    return kind


def key_tuples(keys: pa.Table, function: Converts) -> list[tuple[Any, ...]]:
    """Key values of the types ``series[0]`` has when Spark converts each key by itself."""
    columns = []
    for at in range(keys.num_columns):
        one = keys.select([at])
        if _has_list(one.schema.field(0).type):  # what a null in one of them makes of all of them
            columns.append([_series(one.slice(i, 1), function)[0][0] for i in range(one.num_rows)])
            continue
        valid = plain_array(one.column(0)).is_valid().to_numpy(zero_copy_only=False)
        present = iter(_series(one.filter(pa.array(valid)), function)[0].array)
        null = None if valid.all() else _series(one.slice(int(np.argmin(valid)), 1), function)[0][0]
        columns.append([next(present) if v else null for v in valid.tolist()])
    return list(zip(*columns))


def _has_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or (pa.types.is_struct(kind) and any(_has_list(field.type) for field in kind))


@lru_cache(maxsize=64)
def _struct_of_json(text: str) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(text))


def spark_struct(text: str | None, schema: pa.Schema) -> StructType:
    """The user's struct, every field nullable as Spark makes state and output."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True) if text is None else _struct_of_json(text)
