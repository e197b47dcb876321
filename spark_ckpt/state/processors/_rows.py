"""Rows of a call by key, and what a processor puts out, for the form with DataFrames and the form with ``Row``s.

As PySpark's workers do it: DataFrames are made of rows of Python values, so all integers are 64 bits wide and all
floats doubles; the fields of ``Row``s are what Arrow says in Python.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import UserFunctionError
from spark_ckpt.state.functions.base import Touched
from spark_ckpt.state.functions.pandas_input import Frames, in_timezone, key_tuples, spark_struct
from spark_ckpt.state.functions.pandas_output import KeyOutput, OutputConversion, checked_frame
from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.keys.grouping import segments_by_index
from spark_ckpt.state.processors._convert import python_values

if TYPE_CHECKING:
    from pyspark.sql.types import Row

    from spark_ckpt.state.processors.function import ProcessorFunction

Key = tuple[Any, ...]
Where = Callable[[Key], str]
"""Says of a message what it is about."""


def by_key(rows: pa.Table, key_index: Rows, keys: int) -> tuple[Rows, pa.Table, Rows, Rows]:
    """The keys that have rows, the rows side by side in that order, where those of each begin and end."""
    seg, found = segments_by_index(key_index, keys)
    return found, rows if seg.order is None else rows.take(pa.array(seg.order)), seg.starts, seg.ends


class FramesForm:
    """``transformWithStateInPandas``."""

    takes = "pandas.DataFrame"

    def __init__(self, function: ProcessorFunction) -> None:
        self._function, self._names = function, function.output_schema.names

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

    def checked(self, where: Where, key: Key, outputs: list[Any]) -> list[Any]:
        by_name = self._function.options.get("assign_cols_by_name", True)
        frames = [checked_frame(lambda: where(key), output, self._names, by_name) for output in outputs]
        return [frame for frame in frames if frame is not None]

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
        from pyspark.sql.types import Row

        self._function, self._row = function, Row

    def keys(self, touched: Touched) -> list[Key]:
        columns = self._lists(touched.keys.select(self._function.key_schema.names))
        return list(zip(*columns, strict=True))

    def rows(self, rows: pa.Table, starts: Rows, ends: Rows) -> Iterator[Iterator[Any]]:
        make = partial(tuple.__new__, row_class(tuple(rows.column_names)))
        for portion in range(0, len(starts), _PORTION):
            begin, end = starts[portion : portion + _PORTION], ends[portion : portion + _PORTION]
            first, last = int(begin[0]), int(end[-1])
            made = list(map(make, zip(*self._lists(rows.slice(first, last - first)), strict=True)))
            for one, behind in zip((begin - first).tolist(), (end - first).tolist()):
                yield iter(made[one:behind])

    def _lists(self, table: pa.Table) -> list[list[Any]]:
        timezone = self._function.session_timezone
        return [python_values(column.cast(in_timezone(column.type, timezone))) for column in table.columns]

    def checked(self, where: Where, key: Key, outputs: list[Any]) -> list[Any]:
        for output in outputs:
            if not isinstance(output, self._row) or not hasattr(output, "__fields__"):
                raise UserFunctionError(
                    f"{where(key)}: expected pyspark.sql.Row with the names of outputStructType, found {output!r}. "
                    f"Yield Row({', '.join(f'{n}=...' for n in self._function.output_schema.names)})."
                )
        return outputs

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


@lru_cache(maxsize=64)
def row_class(names: tuple[str, ...]) -> type[Row]:
    """``Row(*names)(*values)`` as a class: made and read at the cost of a named tuple.

    A ``Row`` of PySpark looks a field up by its name in Python, each time, which took longer than all that is done to
    pass a row on. Whatever ``Row`` itself has (``count``, ``asDict``) stays what it is, and pickled it is a ``Row``.
    """
    from pyspark.sql.types import Row

    places = vars(namedtuple("places", [f"f{i}" for i in range(len(names))]))
    fields = {name: places[f"f{i}"] for i, name in reversed([*enumerate(names)])}  # of equal names the first counts
    own = {name: field for name, field in fields.items() if not name.startswith("__") and not hasattr(Row, name)}
    return type("Row", (Row,), {**own, "__fields__": Row(*names), "__module__": Row.__module__})


def _of_rows(rows: list[Any], schema: pa.Schema) -> pa.Table:
    """By name; what a row does not have is null, as in Spark."""
    names = schema.names
    if all(row.__fields__ == names for row in rows):
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


def iterated(result: object, takes: str, where: Where, key: Key) -> Iterable[Any]:
    """What a method of the user's returned."""
    if isinstance(result, GeneratorType):
        return result
    import pandas as pd

    if isinstance(result, pd.DataFrame | str) or not isinstance(result, Iterable):
        found = type(result).__name__
        raise UserFunctionError(
            f"{where(key)}: expected an iterator of {takes}, found {found}. Use yield, or return iter([])"
        )
    return result
