"""What plain Spark keeps of ``collect_list`` and ``collect_set``: the bytes of one ``UnsafeRow`` a key, with one array.

All versions of Spark share this form: all rows in their state have it. Numbers have 8 bytes, the lowest first. The row:
a bit set of nulls, then the place of the array in the upper half of a number and its length in the lower half. The
array: the number of elements, a bit set of nulls in words of 8 bytes, and a slot for each element, which
has the value, or its place and length, as the row has them of the array.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.runtime.stateless import spark_schema

_WORD = 8
_ROW_HEAD = 2 * _WORD
_IN_SLOTS: dict[pa.DataType, str] = {
    pa.bool_(): "?",
    pa.int8(): "i1",
    pa.int16(): "<i2",
    pa.int32(): "<i4",
    pa.date32(): "<i4",
    pa.int64(): "<i8",
    pa.float32(): "<f4",
    pa.float64(): "<f8",
    pa.timestamp("us", "UTC"): "<i8",
    pa.timestamp("us"): "<i8",
}
_LONG_DIGITS = 18
"""Decimals of more are not in their slot."""


def elements_of(buffer: Column, kind: pa.DataType) -> Column | None:
    """The array of ``kind`` that is in ``buffer``, in its order, by a function that runs on the executors; None: how
    elements of this kind are kept is not known here. A task raises ``CorruptStorageError`` where the bytes do not have
    this form."""
    if _reader(kind) is None:
        return None

    def lists(buffers: pa.Array) -> pa.Array:
        return lists_in(buffers, kind)

    return F.arrow_udf(lists, spark_schema(pa.schema([("c", pa.list_(kind))]))[0].dataType)(buffer)


def lists_in(buffers: pa.Array, kind: pa.DataType) -> pa.Array:
    read = _reader(kind)
    assert read is not None
    parts = [_array_in(data.as_py()) for data in buffers]
    offsets = np.concatenate(([0], np.cumsum([n for n, _ in parts]))).astype(np.int32)
    values = pa.concat_arrays([pa.array([], kind), *(read(n, part, kind) for n, part in parts)])
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _array_in(row: bytes) -> tuple[int, bytes]:
    """How many elements the array has, and the bytes of its slots and behind them."""
    nulls, where = np.frombuffer(row, "<u8", 2).tolist() if len(row) > _ROW_HEAD else (1, 0)
    if nulls or where != (_ROW_HEAD << 32 | len(row) - _ROW_HEAD):
        raise _other_form()
    count = int.from_bytes(row[_ROW_HEAD : _ROW_HEAD + _WORD], "little")
    head = _head(count)
    if len(row) < _ROW_HEAD + head or any(row[_ROW_HEAD + _WORD : _ROW_HEAD + head]):
        raise _other_form()  # null elements are not collected
    return count, row[_ROW_HEAD + head :]


def _head(count: int) -> int:
    return _WORD + (count + 63) // 64 * _WORD


def _reader(kind: pa.DataType) -> Callable[[int, bytes, pa.DataType], pa.Array] | None:
    if pa.types.is_decimal(kind):
        return _short_decimals if kind.precision <= _LONG_DIGITS else _long_decimals
    if pa.types.is_string(kind):
        return lambda count, part, element: pa.array([v.decode() for v in _elsewhere(count, part)], element)
    form = _IN_SLOTS.get(kind)
    return None if form is None else lambda count, part, element: _in_slots(count, part, form).cast(element)


def _in_slots(count: int, part: bytes, form: str) -> pa.Array:
    size = np.dtype(form).itemsize * count
    if len(part) != -(-size // _WORD) * _WORD:
        raise _other_form()
    return pa.array(np.frombuffer(part, form, count))


def _short_decimals(count: int, part: bytes, element: pa.DataType) -> pa.Array:
    return _decimals(_in_slots(count, part, "<i8").to_pylist(), element)


def _long_decimals(count: int, part: bytes, element: pa.DataType) -> pa.Array:
    return _decimals([int.from_bytes(v, "big", signed=True) for v in _elsewhere(count, part)], element)


def _decimals(unscaled: list[int], element: pa.DataType) -> pa.Array:
    signs = [(int(v < 0), tuple(map(int, str(abs(v)))), -element.scale) for v in unscaled]
    return pa.array([Decimal(sign) for sign in signs], element)


def _elsewhere(count: int, part: bytes) -> list[bytes]:
    slots = np.frombuffer(part, "<i8", count) if len(part) >= _WORD * count else None
    if slots is None:
        raise _other_form()
    begins, sizes = (slots >> 32) - _head(count), slots & 0xFFFFFFFF
    if count and ((begins < _WORD * count).any() or (begins + sizes > len(part)).any()):
        raise _other_form()
    return [part[b : b + n] for b, n in zip(begins.tolist(), sizes.tolist(), strict=True)]


def _other_form() -> CorruptStorageError:
    return CorruptStorageError(
        "expected the bytes that Spark keeps of collect_list or collect_set of the column of the query, found others: "
        "the column's type is another one than in the query that wrote the checkpoint, or the state is damaged"
    )
