"""How the sinks write Parquet."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_ckpt.sinks._parquet import dictionary_columns, open_parquet


def _written(table: pa.Table) -> bytes:
    stream = io.BytesIO()
    with open_parquet(stream, table.schema, table) as writer:
        writer.write_table(table)
    return stream.getvalue()


def _encodings(data: bytes) -> dict[str, Any]:
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    return {group.column(i).path_in_schema: group.column(i).encodings for i in range(group.num_columns)}


def test_only_columns_whose_values_repeat_get_a_dictionary() -> None:
    table = pa.table({"id": list(range(1000)), "country": ["fr", "de"] * 500, "none": pa.nulls(1000, pa.string())})
    found = _encodings(_written(table))
    assert "RLE_DICTIONARY" not in found["id"]
    assert "RLE_DICTIONARY" in found["country"]
    assert "RLE_DICTIONARY" in found["none"]


def test_the_leaves_of_nested_columns_get_a_dictionary() -> None:
    table = pa.table({"a.b": [{"c": ["x"]}] * 10, "id": list(range(10))})
    assert any("RLE_DICTIONARY" in e for path, e in _encodings(_written(table)).items() if path != "id")


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"host.name": ["flat"] * 10, "host": [{"name": "deep"}] * 10, "id": ["x"] * 10}),
        pa.table({"host": [{"name": "deep"}] * 10, "host.name": ["flat"] * 10, "id": ["x"] * 10}),
        pa.table({"a.b": [{"c": "x"}] * 10, "a": [{"b.c": "y"}] * 10, "id": ["x"] * 10}),
        pa.table({"l.list.element": ["x"] * 10, "l": [["y"]] * 10, "id": ["x"] * 10}),
    ],
)
def test_columns_that_share_a_dotted_path_get_no_dictionary_that_spark_could_take_for_the_others(
    table: pa.Table,
) -> None:
    group = pq.read_metadata(io.BytesIO(_written(table))).row_group(0)
    found = [(c.path_in_schema, "RLE_DICTIONARY" in c.encodings) for c in map(group.column, range(3))]
    assert sorted(has for _, has in found) == [False, False, True]
    assert ("id", True) in found


def test_rows_come_back_as_they_were_with_and_without_dictionaries() -> None:
    table = pa.table({"id": list(range(10)), "s": ["x"] * 10, "l": [[1, None]] * 10})
    assert pq.read_table(io.BytesIO(_written(table))).equals(table)


def test_a_file_without_rows_and_a_dictionary_array_can_be_written() -> None:
    table = pa.table({"s": pa.array(["a", "a"]).dictionary_encode()})
    assert dictionary_columns(table) == ["s"]
    assert pq.read_table(io.BytesIO(_written(table.slice(0, 0)))).num_rows == 0
