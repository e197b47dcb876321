"""A user's Python function for data rows only: it never sees control rows. Executor.

Spark calls a Python function for every row, whatever stands around it in the expression. So the driver puts these in
its place (``plan/analysed/_udf_plan.py``): they get one argument more, in front, which is true for control rows, and
call the user's function with the rest. Lengths are checked as Spark checks them, but without the control rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.core.broadcast import Broadcast
from pyspark.errors import PySparkRuntimeError, PySparkTypeError
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import DataType, StructType

from spark_ckpt.arrow_layouts import ordinary
from spark_ckpt.spark_versions import eval_types, spark_version
from spark_ckpt.spark_versions.arrow_schemas import to_arrow_type

Function = Callable[..., Any]


class DataRowsOnly:
    """Pickled to the workers where the user's function would be, and unpickled as a plain function.

    ``commands`` are what Spark would have sent: its own pickles of (function, type), innermost first. They are not
    opened on the driver. ``eval_type`` is Spark's kind of them.
    """

    def __init__(self, commands: tuple[bytes, ...], eval_type: int, return_type: DataType) -> None:
        self.commands = commands
        self.eval_type = eval_type
        self.return_type = return_type

    def __reduce__(self) -> tuple[Any, ...]:
        return load, (self.commands, self.eval_type, self.return_type)


def load(commands: tuple[bytes, ...], eval_type: int, return_type: DataType) -> Function:
    """The function for a worker; one that is fed by others calls them first, as Spark chains them."""
    functions = [_function(command) for command in commands]
    called = functions[0] if len(functions) == 1 else _chained(functions)
    return KINDS[eval_type](called, return_type)


def _function(command: bytes) -> Function:
    serializer = CloudPickleSerializer()
    found = serializer.loads(command)
    if isinstance(found, Broadcast):  # Spark sends large ones once
        found = serializer.loads(found.value)
    function: Function = found[0]
    return function


def _chained(functions: list[Function]) -> Function:
    def call(*args: Any, **kwargs: Any) -> Any:
        return reduce(lambda value, f: f(value), functions[1:], functions[0](*args, **kwargs))

    return call


def _row(func: Function, _: DataType) -> Function:
    def call(is_control: bool, *args: Any, **kwargs: Any) -> Any:
        return None if is_control else func(*args, **kwargs)

    return call


def _scalar(func: Function, vectors: _Vectors) -> Function:
    def call(is_control: Any, *args: Any, **kwargs: Any) -> Any:
        keep = vectors.data_rows(is_control)
        if keep.all():
            return func(*args, **kwargs)
        if not keep.any():
            return vectors.nothing(len(keep))
        given = {name: vectors.take(arg, keep) for name, arg in kwargs.items()}
        result = func(*(vectors.take(arg, keep) for arg in args), **given)
        if not hasattr(result, "__len__"):
            return result  # Spark says what is wrong with it
        if len(result) != keep.sum():
            raise _other_length(vectors.kind, str(keep.sum()), str(len(result)))
        return vectors.place(result, keep)

    return call


def _other_length(kind: str, expected: str, actual: str) -> PySparkRuntimeError:
    """As Spark's worker says it."""
    if spark_version() >= (4, 3):
        found = {"input_length": expected, "output_length": actual}
        return PySparkRuntimeError(errorClass="RESULT_ROWS_MISMATCH", messageParameters=found)
    found = {"udf_type": kind, "expected": expected, "actual": actual}
    return PySparkRuntimeError(errorClass="SCHEMA_MISMATCH_FOR_PANDAS_UDF", messageParameters=found)


def _iterator(func: Function, vectors: _Vectors) -> Function:
    def call(batches: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
        waiting = _Waiting()
        rows = _data_rows(batches, vectors, waiting)
        first = next(rows, None)
        if first is not None:
            results = func(chain([first], rows))
            if not hasattr(results, "__iter__"):
                wrong = {"expected": f"iterator of {vectors.element}", "actual": type(results).__name__}
                raise PySparkTypeError(errorClass="UDF_RETURN_TYPE", messageParameters=wrong)
            for result in results:
                yield vectors.place(result, waiting.answer(len(result))) if hasattr(result, "__len__") else result
            if next(rows, None) is not None:
                raise PySparkRuntimeError(errorClass="INPUT_NOT_FULLY_CONSUMED", messageParameters={})
        rest = waiting.rest()
        if len(rest):
            yield vectors.nothing(len(rest))

    return call


def _data_rows(batches: Iterator[tuple[Any, ...]], vectors: _Vectors, waiting: _Waiting) -> Iterator[Any]:
    """What the user's function gets: batches without control rows, and none that are empty because of them."""
    for is_control, *args in batches:
        keep = vectors.data_rows(is_control)
        waiting.add(keep)
        if not keep.all():
            if not keep.any():
                continue
            args = [vectors.take(arg, keep) for arg in args]
        yield args[0] if len(args) == 1 else tuple(args)


class _Waiting:
    """Which rows came in and wait for a result: an iterator may answer in batches of other sizes, but in order."""

    def __init__(self) -> None:
        self._masks: deque[Any] = deque()
        self._came = self._answered = 0

    def add(self, keep: Any) -> None:
        self._masks.append(keep)
        self._came += int(keep.sum())

    def answer(self, count: int) -> Any:
        """The rows, control rows between them included, to which ``count`` results belong."""
        if self._answered + count > self._came:
            raise PySparkRuntimeError(errorClass="OUTPUT_EXCEEDS_INPUT_ROWS", messageParameters={})
        self._answered += count
        taken = [np.zeros(0, bool)]
        while count and self._masks:
            mask = self._masks.popleft()
            end = len(mask)
            if mask.sum() > count:
                end = int(np.searchsorted(np.cumsum(mask), count)) + 1
                self._masks.appendleft(mask[end:])
            taken.append(mask[:end])
            count -= int(mask[:end].sum())
        return taken[-1] if len(taken) == 2 else np.concatenate(taken)

    def rest(self) -> Any:
        """Control rows behind the last result. Raises as Spark does if data rows are left."""
        if self._answered != self._came:
            found = {"output_length": str(self._answered), "input_length": str(self._came)}
            raise PySparkRuntimeError(errorClass="RESULT_ROWS_MISMATCH", messageParameters=found)
        return np.concatenate([np.zeros(0, bool), *self._masks])


class _Vectors:
    """Rows of one kind of columns: taken out, and results put where they belong."""

    kind: str
    element: str

    def __init__(self, return_type: DataType) -> None:
        self._return_type = return_type

    def data_rows(self, is_control: Any) -> Any:
        """As booleans."""
        raise NotImplementedError

    def take(self, column: Any, keep: Any) -> Any:
        raise NotImplementedError

    def nothing(self, count: int) -> Any:
        """Results for control rows alone."""
        raise NotImplementedError

    def place(self, result: Any, keep: Any) -> Any:
        """``result`` for the rows that are ``keep``, something for the others."""
        raise NotImplementedError


class _Pandas(_Vectors):
    kind = "pandas_udf"

    @property
    def element(self) -> str:  # type: ignore[override]
        return "pandas.DataFrame" if isinstance(self._return_type, StructType) else "pandas.Series"

    def data_rows(self, is_control: Any) -> Any:
        return ~is_control.to_numpy(dtype=bool)

    def take(self, column: Any, keep: Any) -> Any:
        return column[keep].reset_index(drop=True)

    def nothing(self, count: int) -> Any:
        import pandas as pd

        empty = pd.Series([None] * count, dtype=object)
        if isinstance(self._return_type, StructType):
            return pd.DataFrame({f.name: empty for f in self._return_type.fields})
        return empty

    def place(self, result: Any, keep: Any) -> Any:
        """A control row gets the result of a data row: a null would change the type of all of them."""
        if keep.all():
            return result
        at = np.maximum(np.cumsum(keep) - 1, 0)
        if hasattr(result, "iloc"):
            return result.iloc[at].reset_index(drop=True)
        return result[at] if isinstance(result, np.ndarray) else [result[i] for i in at]


class _Arrow(_Vectors):
    kind = "arrow_udf"
    element = "pyarrow.Array"

    def data_rows(self, is_control: Any) -> Any:
        return pc.invert(is_control).to_numpy(zero_copy_only=False)

    def take(self, column: Any, keep: Any) -> Any:
        return column.filter(pa.array(keep))

    def nothing(self, count: int) -> Any:
        return pa.nulls(count, to_arrow_type(self._return_type))

    def place(self, result: Any, keep: Any) -> Any:
        if keep.all() or not isinstance(result, pa.Array | pa.ChunkedArray):
            return result
        return ordinary(result).take(pa.array(np.cumsum(keep) - 1, pa.int64(), mask=~keep))


KINDS: dict[int, Callable[[Function, DataType], Function]] = {
    eval_types.SQL_BATCHED_UDF: _row,
    eval_types.SQL_ARROW_BATCHED_UDF: _row,
    eval_types.SQL_SCALAR_PANDAS_UDF: lambda f, t: _scalar(f, _Pandas(t)),
    eval_types.SQL_SCALAR_PANDAS_ITER_UDF: lambda f, t: _iterator(f, _Pandas(t)),
    eval_types.SQL_SCALAR_ARROW_UDF: lambda f, t: _scalar(f, _Arrow(t)),
    eval_types.SQL_SCALAR_ARROW_ITER_UDF: lambda f, t: _iterator(f, _Arrow(t)),
}
"""By Spark's kinds of functions that compute a column; the others never stand in an expression of a stream."""

PANDAS_KINDS = (eval_types.SQL_SCALAR_PANDAS_UDF, eval_types.SQL_SCALAR_PANDAS_ITER_UDF)
"""Where a null in a control row would change the type of a whole column."""

CHAINED_KINDS = (*PANDAS_KINDS, eval_types.SQL_BATCHED_UDF)
"""Those that Spark chains when one is the only argument of another."""
