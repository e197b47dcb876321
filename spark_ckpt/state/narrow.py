"""Arrow messages whose whole numbers and times take as few bytes as their range asks for (frame of reference).

What goes from one Python stage to the next passes through Spark's JVM as binary values, which copies each byte some ten
times: into a row, through the shuffle and its compression, the sort by subtask, and out again. Keys, times, counts and
sums of a batch mostly lie close together, and a column that has one value throughout takes no bytes at all.

A message is a form, what was taken off which column, in front of an Arrow message as :mod:`spark_ckpt.state.ipc` has
it; or just that, where nothing was gained.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.state.ipc import as_integers, from_bytes, messages

_MANY = 1024
"""Rows below which bytes do not matter."""
_ARROW = b"\xff\xff\xff\xff"
"""What an Arrow message begins with. A form's length, in as many bytes, is less."""
_LENGTH_BYTES, _ALIGNED = 4, 64
_WIDTHS = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32()}

Form = list[list[int] | None]
"""Of each column: the least of its values, and how many bytes what is above it takes, 0 if there is nothing above.
None: the column is as it was."""


def narrow_messages(batch: pa.RecordBatch, max_bytes: int) -> Iterator[tuple[bytes | pa.Buffer, ...]]:
    """The batch in as many messages as it takes, each in parts that belong behind each other. See ``ipc.messages``."""
    narrow, form = _narrowed(batch)
    for message in messages(narrow, max_bytes):
        yield (message,) if form is None else (_head(form), message)


def from_narrow(data: bytes | pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a message. Raises ``CorruptStorageError`` if ``data`` is none of these columns."""
    data = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    try:
        begins = data.slice(0, _LENGTH_BYTES).to_pybytes()
        if begins == _ARROW:
            return from_bytes(data, schema)
        end = _LENGTH_BYTES + int.from_bytes(begins, "little")
        form: Form = json.loads(data.slice(_LENGTH_BYTES, end - _LENGTH_BYTES).to_pybytes())
        narrow = from_bytes(data.slice(end), _narrow_schema(schema, form))
        return _widened(narrow, form, schema)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as e:
        raise CorruptStorageError(f"expected narrow rows of {schema.names}, found {data.size} bytes: {e}") from e


def _narrowed(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Form | None]:
    if batch.num_rows < _MANY:
        return batch, None
    form = [_form(column) for column in batch.columns]
    if all(f is not None and not f[1] for f in form):
        form[0] = None  # rows without columns are not counted
    if not any(form):
        return batch, None
    pairs = [(c, f) for c, f in zip(batch.columns, form, strict=True) if _is_kept(f)]
    columns = [c if f is None else _less(c, *f) for c, f in pairs]
    return pa.RecordBatch.from_arrays(columns, schema=_narrow_schema(batch.schema, form)), form


def _form(column: pa.Array) -> list[int] | None:
    if not _is_whole(column.type) or column.null_count:
        return None
    values = as_integers(column)
    low, high = int(values.min()), int(values.max())
    bits = (high - low).bit_length()
    width = next((w for w in (0, *_WIDTHS) if bits <= 8 * w), None)
    return None if width is None or width >= values.itemsize else [low, width]


def _less(column: pa.Array, low: int, width: int) -> pa.Array:
    """What is above ``low``: the lower bytes say it, whatever was above them."""
    kind = np.dtype(f"u{width}")
    narrow = as_integers(column).astype(kind)
    narrow -= kind.type(low & ((1 << 8 * width) - 1))
    return pa.array(narrow)


def _widened(narrow: pa.RecordBatch, form: Form, schema: pa.Schema) -> pa.RecordBatch:
    left, columns = iter(narrow.columns), []
    for field, taken in zip(schema, form, strict=True):
        column = next(left) if _is_kept(taken) else None
        columns.append(column if taken is None else _more(column, taken[0], field.type, narrow.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _more(column: pa.Array | None, low: int, kind: pa.DataType, rows: int) -> pa.Array:
    whole = np.dtype(f"i{kind.bit_width // 8}")
    if column is None:
        return pa.array(np.full(rows, low, whole)).view(kind)
    values = column.to_numpy().astype(whole)
    values += whole.type(low)
    return pa.array(values).view(kind)


def _narrow_schema(schema: pa.Schema, form: Form) -> pa.Schema:
    pairs = zip(schema, form, strict=True)
    return pa.schema([f if taken is None else f.with_type(_WIDTHS[taken[1]]) for f, taken in pairs if _is_kept(taken)])


def _is_kept(taken: list[int] | None) -> bool:
    return taken is None or taken[1] > 0


def _is_whole(kind: pa.DataType) -> bool:
    times = (pa.types.is_timestamp, pa.types.is_date32, pa.types.is_duration)
    return pa.types.is_int64(kind) or pa.types.is_int32(kind) or any(test(kind) for test in times)


def _head(form: Form) -> bytes:
    """The form, with its length in front, and blanks behind it so that the rows begin where they may be mapped."""
    text = json.dumps(form, separators=(",", ":")).encode()
    size = -(-(_LENGTH_BYTES + len(text)) // _ALIGNED) * _ALIGNED
    return (size - _LENGTH_BYTES).to_bytes(_LENGTH_BYTES, "little") + text.ljust(size - _LENGTH_BYTES)
