"""Messages with narrow columns: whatever the values, what arrives is what was sent, and close values take few bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.state.narrow import from_narrow, narrow_messages
from tests.how_many import some

ROWS = 1500
KINDS = [pa.int64(), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.duration("us"), pa.int32(), pa.date32()]
OTHERS = [pa.string(), pa.float64(), pa.int16(), pa.decimal128(8, 2), pa.bool_()]


def sent(batch: pa.RecordBatch, max_bytes: int = 1 << 30) -> tuple[pa.RecordBatch, int]:
    """(what arrives, the bytes it took)."""
    data = [b"".join(message) for message in narrow_messages(batch, max_bytes)]
    pieces = [from_narrow(d, batch.schema) for d in data]
    for piece in pieces:
        piece.validate(full=True)
    (whole,) = pa.Table.from_batches(pieces).combine_chunks().to_batches()
    return whole, sum(map(len, data))


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """A column whose range is just within, or just beyond, what some bytes hold."""
    kind = draw(st.sampled_from(KINDS))
    least, most = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    low = draw(st.sampled_from([least, least + 1, -1, 0, 1, 2**16, most]) | st.integers(least, most))
    width = draw(st.sampled_from([0, 1, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63, 2**64 - 1]))
    high = min(most, low + width)
    some = draw(st.lists(st.integers(low, high), max_size=5))
    values = np.resize(np.array([low, high, *some], np.int64), ROWS + 10).astype(f"i{kind.bit_width // 8}")
    mask = np.arange(len(values)) % 7 == 3 if draw(st.integers(0, 4)) == 0 else None
    return pa.array(values, mask=mask).view(kind).slice(draw(st.integers(0, 10)), ROWS)


@settings(max_examples=some(30), deadline=None)
@given(st.lists(columns(), min_size=1, max_size=4), st.booleans())
def test_what_arrives_is_what_was_sent(found: list[pa.Array], cut: bool) -> None:
    batch = pa.RecordBatch.from_arrays(found, [f"c{i}" for i in range(len(found))])
    assert sent(batch, 4_000 if cut else 1 << 30)[0].equals(batch)


def test_other_types_go_beside_them() -> None:
    numbers = pa.array([i % 100 for i in range(ROWS)])
    values = [numbers.cast(pa.int16() if kind != pa.bool_() else kind).cast(kind) for kind in OTHERS[1:]]
    texts = pa.array([f"text {i}" for i in range(ROWS)])
    batch = pa.RecordBatch.from_arrays([pa.array(range(ROWS)), texts, *values], ["n", *map(str, OTHERS)])
    assert sent(batch)[0].equals(batch)


def test_one_value_takes_no_bytes_and_close_ones_few() -> None:
    many = 10_000
    time = pa.array(np.full(many, 1_700_000_000_000_000)).view(pa.timestamp("us", "UTC"))
    number = pa.array(np.arange(many) + 2**60)
    batch = pa.RecordBatch.from_arrays([time, number, time], ["t", "n", "u"])
    arrived, size = sent(batch)
    assert arrived.equals(batch)
    assert 2 * many <= size < 2 * many + 1000
    assert sent(pa.RecordBatch.from_arrays([time], ["t"]))[0].equals(batch.select(["t"]))


def test_few_rows_go_as_they_are_and_none_too() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2])], ["n"])
    assert sent(batch)[0].equals(batch)
    (message,) = narrow_messages(batch.slice(0, 0), 100)
    assert from_narrow(b"".join(message), batch.schema).num_rows == 0


def test_damaged_bytes_are_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(range(ROWS))], ["n"])
    (message,) = narrow_messages(batch, 1 << 30)
    data = b"".join(message)
    for damaged in (data[:40], data[:-100], b"", b"\x04\x00\x00\x00" + data[4:], data.replace(b"[[", b"[{", 1)):
        with pytest.raises(CorruptStorageError):
            from_narrow(damaged, batch.schema)
    with pytest.raises(CorruptStorageError):
        from_narrow(data, pa.schema([pa.field("n", pa.int64()), pa.field("m", pa.int64())]))
