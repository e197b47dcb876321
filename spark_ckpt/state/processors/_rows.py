"""Rows of a call by key, and what a processor puts out, for the form with DataFrames and the form with ``Row``s.

As PySpark's workers do it: DataFrames are made of rows of Python values, so all integers are 64 bits wide and all
floats doubles; the fields of ``Row``s are what Arrow says in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import UserFunctionError
from spark_ckpt.state.functions.base import Touched
from spark_ckpt.state.functions.pandas_input import Frames, in_timezone, key_tuples, spark_struct
from spark_ckpt.state.functions.pandas_output import KeyOutput, OutputConversion, checked_frame
from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.keys.grouping import segments_by_index

if TYPE_CHECKING:
    from spark_ckpt.state.processors.function import ProcessorFunction

Key = tuple[Any, ...]


def by_key(rows: pa.Table, key_index: Rows, keys: int) -> tuple[Rows, pa.Table, Rows, Rows]:
    """The keys that have rows, the rows side by side in that order, where those of each begin and end."""
    seg, found = segments_by_index(key_index, keys)
    return found, rows if seg.order is None else rows.take(pa.array(seg.order)), seg.starts, seg.ends


class FramesForm:
    """``transformWithStateInPandas``."""

    takes = "pandas.DataFrame"

    def __init__(self, function: ProcessorFunction) -> None:
        self._function = function

    def keys(self, touched: Touched) -> list[Key]:
        keys = key_tuples(touched.keys.select(self._function.key_schema.names), self._function)
        return [tuple([v.item() if isinstance(v, np.generic) else v for v in key]) for key in keys]

    def rows(self, rows: pa.Table, starts: Rows, ends: Rows) -> Iterator[Iterator[Any]]:
        """For each key an iterator of its one DataFrame."""
        if not len(starts):
            return
        frames = Frames(rows.cast(_widened(rows.schema)), starts, self._function)
        for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist())):
            yield (frames.slice(*one) for one in ((at, start, end),))

    def checked(self, where: Callable[[], str], output: Any) -> Any | None:
        function = self._function
        by_name = function.options.get("assign_cols_by_name", True)
        return checked_frame(where, output, function.output_schema.names, by_name)

    def table(self, outputs: list[tuple[Key, list[Any]]], where: str) -> pa.Table:
        function = self._function
        struct = spark_struct(function.output_struct, function.output_schema)
        known = {k: v for k, v in function.options.items() if k in ("safecheck", "int_to_decimal_coercion_enabled")}
        conversion = OutputConversion(function.output_schema, struct, function.session_timezone, known)
        return conversion.table([KeyOutput(key, frames) for key, frames in outputs], where)


class RowsForm:
    """``transformWithState``."""

    takes = "pyspark.sql.Row"

    def __init__(self, function: ProcessorFunction) -> None:
        self._function = function

    def keys(self, touched: Touched) -> list[Key]:
        columns = self._lists(touched.keys.select(self._function.key_schema.names))
        return list(zip(*columns, strict=True))

    def rows(self, rows: pa.Table, starts: Rows, ends: Rows) -> Iterator[Iterator[Any]]:
        from pyspark.sql.types import Row

        made = Row(*rows.column_names)
        for portion in range(0, len(starts), _PORTION):
            first = int(starts[portion])
            last = int(ends[min(portion + _PORTION, len(starts)) - 1])
            values = list(zip(*self._lists(rows.slice(first, last - first)), strict=True))
            for start, end in zip(starts[portion : portion + _PORTION], ends[portion : portion + _PORTION]):
                yield (made(*value) for value in values[start - first : end - first])

    def _lists(self, table: pa.Table) -> list[list[Any]]:
        timezone = self._function.session_timezone
        return [column.cast(in_timezone(column.type, timezone)).to_pylist() for column in table.columns]

    def checked(self, where: Callable[[], str], output: Any) -> Any | None:
        from pyspark.sql.types import Row

        if not isinstance(output, Row) or not hasattr(output, "__fields__"):
            raise UserFunctionError(
                f"{where()}: expected pyspark.sql.Row with the names of outputStructType, found {output!r}. "
                f"Yield Row({', '.join(f'{n}=...' for n in self._function.output_schema.names)})."
            )
        return output

    def table(self, outputs: list[tuple[Key, list[Any]]], where: str) -> pa.Table:
        schema = self._function.output_schema
        try:
            return _of_rows([row for _, rows in outputs for row in rows], schema)
        except Exception as e:
            key, bad, error = _misfit(outputs, schema, e)
            expected = ", ".join(f"{f.name} {f.type}" for f in schema)
            raise UserFunctionError(
                f"{where}, key {key!r}: the processor's output does not fit outputStructType: expected ({expected}), "
                f"found {bad!r}: {type(error).__name__}: {error}"
            ) from e


_PORTION = 1024


def _of_rows(rows: list[Any], schema: pa.Schema) -> pa.Table:
    """By name; what a row does not have is null, as in Spark."""
    if all(row.__fields__ == schema.names for row in rows):
        columns = list(zip(*rows)) or [()] * len(schema)
        if not any(pa.types.is_nested(f.type) for f in schema):
            return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema)], schema=schema)
    return pa.Table.from_pylist([row.asDict(True) for row in rows], schema=schema)


def _misfit(outputs: list[tuple[Key, list[Any]]], schema: pa.Schema, error: Exception) -> tuple[Any, Any, Exception]:
    for key, rows in outputs:
        for row in rows:
            try:
                _of_rows([row], schema)
            except Exception as e:  # noqa: BLE001 - whatever it is, it is told with the row
                return key, row, e
    return None, None, error


def _widened(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, _wide(f.type)) for f in schema])


def _wide(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(kind) else kind


def iterated(result: object, takes: str, where: Callable[[], str]) -> Iterable[Any]:
    """What a method of the user's returned."""
    import pandas as pd

    if isinstance(result, pd.DataFrame | str) or not isinstance(result, Iterable):
        found = type(result).__name__
        raise UserFunctionError(
            f"{where()}: expected an iterator of {takes}, found {found}. Use yield, or return iter([])"
        )
    return result
