"""Rows of a call by key, and what a processor puts out, for the form with DataFrames and the form with ``Row``s.

As PySpark's workers do it: DataFrames are made of rows of Python values, so all integers are 64 bits wide and all
floats doubles; the fields of ``Row``s are what Arrow says in Python.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from operator import attrgetter
from types import GeneratorType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import UserFunctionError
from spark_ckpt.state.functions.pandas_input import Frames, in_timezone, key_tuples, spark_struct
from spark_ckpt.state.functions.pandas_output import KeyOutput, OutputConversion, checked_frame
from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.keys.grouping import Segments
from spark_ckpt.state.processors._convert import arrow_array, python_values

if TYPE_CHECKING:
    from pyspark.sql.types import Row

    from spark_ckpt.state.processors.function import ProcessorFunction

Key = tuple[Any, ...]
Where = Callable[..., str]
"""Says of a message what it is about: where the call runs, and, with a key, which."""
RowsOf = Callable[[int, int], Iterator[Iterator[Any]]]
"""What calls number *i* to *j* - 1 get."""


def side_by_side(rows: pa.Table, seg: Segments) -> tuple[pa.Table, Rows, Rows]:
    """The rows of each key side by side, and where they begin and end."""
    return rows if seg.order is None else rows.take(pa.array(seg.order)), seg.starts, seg.ends


class Outputs:
    """What the calls of a portion put out, in one list: ``ends[i]`` is behind what belongs to ``keys[i]``."""

    def __init__(self, keys: list[Key]) -> None:
        self.keys = keys
        self.found: list[Any] = []
        self.ends: list[int] = []

    def by_key(self) -> Iterator[tuple[Key, list[Any]]]:
        """Those that put out something."""
        for key, begin, end in zip(self.keys, [0, *self.ends], self.ends):  # a call may have failed
            if end > begin:
                yield key, self.found[begin:end]


class FramesForm:
    """``transformWithStateInPandas``."""

    takes = "pandas.DataFrame"

    def __init__(self, function: ProcessorFunction) -> None:
        self._function, self._names = function, function.output_schema.names

    def keys(self, keys: pa.RecordBatch) -> list[Key]:
        found = key_tuples(pa.Table.from_batches([keys]).select(self._function.key_schema.names), self._function)
        return [tuple([v.item() if isinstance(v, np.generic) else v for v in key]) for key in found]

    def rows(self, rows: pa.Table, starts: Rows, ends: Rows) -> RowsOf:
        """For each key an iterator of its one DataFrame."""
        frames = Frames(rows.cast(_widened(rows.schema)), starts, self._function) if len(starts) else None

        def of(first: int, end: int) -> Iterator[Iterator[Any]]:
            assert frames is not None
            pairs = zip(starts[first:end].tolist(), ends[first:end].tolist(), strict=True)
            for at, (begin, behind) in enumerate(pairs, first):
                yield (frames.slice(*one) for one in ((at, begin, behind),))

        return of

    def check(self, outputs: Outputs, where: Where) -> list[KeyOutput]:
        """Raises ``UserFunctionError`` for what is no DataFrame with the columns of ``outputStructType``."""
        by_name, checked = self._function.options.get("assign_cols_by_name", True), []
        for key, found in outputs.by_key():
            frames = [checked_frame(partial(where, key), output, self._names, by_name) for output in found]
            if frames := [frame for frame in frames if frame is not None]:
                checked.append(KeyOutput(key, frames))
        return checked

    def table(self, outputs: Outputs, where: Where) -> pa.Table:
        function, checked = self._function, self.check(outputs, where)
        struct = spark_struct(function.output_struct, function.output_schema)
        known = {k: v for k, v in function.options.items() if k in ("safecheck", "int_to_decimal_coercion_enabled")}
        conversion = OutputConversion(function.output_schema, struct, function.session_timezone, known)
        return conversion.table(checked, where())


class RowsForm:
    """``transformWithState``."""

    takes = "pyspark.sql.Row"

    def __init__(self, function: ProcessorFunction) -> None:
        from pyspark.sql.types import Row

        self._function, self._row = function, Row

    def keys(self, keys: pa.RecordBatch) -> list[Key]:
        return list(zip(*self._lists(keys.select(self._function.key_schema.names)), strict=True))

    def rows(self, rows: pa.Table, starts: Rows, ends: Rows) -> RowsOf:
        """For each key an iterator of its rows, which are made in one sweep."""
        make = partial(tuple.__new__, row_class(tuple(rows.column_names)))

        def of(first: int, end: int) -> Iterator[Iterator[Any]]:
            begin, behind = int(starts[first]), int(ends[end - 1])
            made = map(make, zip(*self._lists(rows.slice(begin, behind - begin)), strict=True))
            if behind - begin == end - first:
                return map(iter, zip(made))  # a row a key
            every = list(made)
            pairs = zip((starts[first:end] - begin).tolist(), (ends[first:end] - begin).tolist(), strict=True)
            return (iter(every[one:after]) for one, after in pairs)

        return of

    def _lists(self, table: pa.Table | pa.RecordBatch) -> list[list[Any]]:
        timezone = self._function.session_timezone
        return [python_values(_in_timezone(column, timezone)) for column in table.columns]

    def check(self, outputs: Outputs, where: Where) -> None:
        """Raises ``UserFunctionError`` for what is no ``Row`` with names."""
        for key, rows in outputs.by_key():
            for row in rows:
                if not isinstance(row, self._row) or not hasattr(row, "__fields__"):
                    names = ", ".join(f"{n}=..." for n in self._function.output_schema.names)
                    raise UserFunctionError(
                        f"{where(key)}: expected pyspark.sql.Row with the names of outputStructType, found {row!r}. "
                        f"Yield Row({names})."
                    )

    def table(self, outputs: Outputs, where: Where) -> pa.Table:
        schema, rows = self._function.output_schema, outputs.found
        try:
            if (table := self._in_order(rows, schema)) is not None:
                return table
            self.check(outputs, where)
            return _of_rows(rows, schema)
        except UserFunctionError:
            raise
        except Exception as e:
            self.check(outputs, where)
            key, bad, error = _misfit(outputs, schema, e)
            expected = ", ".join(f"{f.name} {f.type}" for f in schema)
            raise UserFunctionError(
                f"{where(key)}: the processor's output does not fit outputStructType: expected ({expected}), "
                f"found {bad!r}: {type(error).__name__}: {error}"
            ) from e

    def _in_order(self, rows: list[Any], schema: pa.Schema) -> pa.Table | None:
        """None where not all are plain ``Row``s whose fields are those of ``schema``, one by one."""
        if any(pa.types.is_nested(f.type) for f in schema) or set(map(type, rows)) != {self._row}:
            return None
        if list(map(_FIELDS, rows)).count(schema.names) != len(rows):
            return None
        columns = zip(*rows, strict=True)
        arrays = [arrow_array(column, f.type) for column, f in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)


_FIELDS = attrgetter("__fields__")


@lru_cache(maxsize=64)
def row_class(names: tuple[str, ...]) -> type[Row]:
    """``Row(*names)(*values)`` as a class: made and read at the cost of a named tuple.

    A ``Row`` of PySpark looks a field up by its name in Python, each time, which took longer than all that is done to
    pass a row on. Whatever ``Row`` itself has (``count``, ``asDict``) stays what it is, and pickled it is a ``Row``.
    """
    from pyspark.sql.types import Row

    # The class is held: the garbage collector clears the attributes of one that nobody holds, also while they are read.
    places = _places(len(names))
    fields = {
        name: vars(places)[f"f{i}"] for i, name in reversed([*enumerate(names)])
    }  # of equal names the first counts
    own = {name: field for name, field in fields.items() if not name.startswith("__") and not hasattr(Row, name)}
    return type("Row", (Row,), {**own, "__fields__": Row(*names), "__module__": Row.__module__})


def _places(count: int) -> type:
    return namedtuple("places", [f"f{i}" for i in range(count)])


def _in_timezone(column: pa.ChunkedArray | pa.Array, timezone: str) -> pa.ChunkedArray | pa.Array:
    kind = in_timezone(column.type, timezone)
    return column if kind == column.type else column.cast(kind)  # a cast that changes nothing takes its time, too


def _of_rows(rows: list[Any], schema: pa.Schema) -> pa.Table:
    """By name; what a row does not have is null, as in Spark."""
    return pa.Table.from_pylist([row.asDict(True) for row in rows], schema=schema)


def _misfit(outputs: Outputs, schema: pa.Schema, error: Exception) -> tuple[Any, Any, Exception]:
    for key, rows in outputs.by_key():
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
