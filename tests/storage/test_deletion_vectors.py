"""Deletion vectors: what is written is read, and damage is found."""

from __future__ import annotations

import dataclasses
import re
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.storage.deletion_vectors import (
    DvRef,
    decode_rows,
    encode_rows,
    read_vector,
    to_delta,
    unstored,
    vector_payload,
    write_vectors,
)
from spark_ckpt.storage.filesystem import Folder
from tests.how_many import some

_ROWS = st.sets(st.integers(0, 2**32 - 1) | st.integers(0, 300), max_size=50)


def _folder() -> Folder:
    return Folder(f"memory://{uuid.uuid4().hex}/table")


def _write(folder: Folder, dead: dict[str, BitMap]) -> dict[str, DvRef]:
    payloads = {file: vector_payload(rows) for file, rows in dead.items()}
    name, offsets = write_vectors(folder, payloads)
    refs = {file: unstored(payload, len(dead[file])) for file, payload in payloads.items()}
    return {file: dataclasses.replace(ref, file=name, offset=offsets[file]) for file, ref in refs.items()}


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), _ROWS, min_size=1, max_size=4))
@settings(max_examples=some(25), deadline=None)
def test_the_vectors_of_many_files_share_one_file_and_read_back(dead: dict[str, set[int]]) -> None:
    folder = _folder()
    refs = _write(folder, {file: BitMap(rows) for file, rows in dead.items()})
    assert len({ref.file for ref in refs.values()}) == 1
    assert {file: set(read_vector(folder, ref)) for file, ref in refs.items()} == dead


@given(_ROWS)
@settings(max_examples=some(25), deadline=None)
def test_the_same_rows_give_the_same_bytes_however_they_were_collected(rows: set[int]) -> None:
    optimized = BitMap(rows)
    optimized.run_optimize()
    assert vector_payload(BitMap(sorted(rows))) == vector_payload(optimized)
    assert decode_rows(encode_rows(rows)) == optimized


def test_a_vector_is_named_as_the_delta_protocol_says() -> None:
    # The example of the protocol's text: this identifier is written as this Z85 string.
    ref = DvRef("deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", 4, 40, 6, 0)
    assert to_delta(ref) == {
        "storageType": "u",
        "pathOrInlineDv": "^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 6,
    }


@pytest.mark.parametrize("damage", [lambda data: data[:20], lambda data: data[:-6] + b"\0" + data[-5:]])
def test_a_damaged_vector_is_named(damage: object) -> None:
    folder = _folder()
    ref = _write(folder, {"a": BitMap([1, 5, 9])})["a"]
    data = folder.read(ref.file) or b""
    folder.replace(ref.file, damage(data))  # type: ignore[operator]
    with pytest.raises(CorruptStorageError, match=re.escape(ref.file)):
        read_vector(folder, ref)


def test_a_missing_vector_is_named() -> None:
    folder = _folder()
    ref = _write(folder, {"a": BitMap([1])})["a"]
    folder.remove(ref.file)
    with pytest.raises(CorruptStorageError, match="no such file"):
        read_vector(folder, ref)
