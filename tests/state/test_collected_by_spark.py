"""The bytes that plain Spark keeps of ``collect_list``: what has another form is damaged, and never another value.

That values are right is tested on checkpoints of Spark itself: tests/spark/test_spark_import.py.
"""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.execution._spark_collected import lists_in


def kept(values: list[int], form: str = "q") -> bytes:
    slots = struct.pack(f"<{len(values)}{form}", *values)
    words = -(-len(values) // 64)
    array = struct.pack(f"<q{words}q", len(values), *[0] * words) + slots + bytes(-len(slots) % 8)
    return struct.pack("<QII", 0, len(array), 16) + array


def test_lists_of_any_length_are_read_whole() -> None:
    lists = [[], [7], list(range(65)), list(range(-128, 0))]
    assert lists_in(pa.array([kept(v) for v in lists]), pa.int64()).to_pylist() == lists
    assert lists_in(pa.array([kept(v, "i") for v in lists]), pa.int32()).to_pylist() == lists
    assert lists_in(pa.array([], pa.binary()), pa.int64()).to_pylist() == []


@pytest.mark.parametrize("kind", [pa.int32(), pa.string(), pa.decimal128(30, 4), pa.bool_()])
def test_elements_of_another_type_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(CorruptStorageError, match="of the column of the query, found others"):
        lists_in(pa.array([kept([5, 1 << 40, 3])]), kind)


def test_bytes_that_are_cut_or_hold_a_null_are_refused() -> None:
    whole = kept([1, 2, 3])
    with_null = whole[:24] + b"\x01" + whole[25:]
    for damaged in (b"", whole[:16], whole[:-8], whole + bytes(8), with_null):
        with pytest.raises(CorruptStorageError):
            lists_in(pa.array([damaged]), pa.int64())
