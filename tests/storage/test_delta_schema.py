"""Arrow schemas as Delta schemas."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.storage.delta_schema import from_delta_schema, table_features, to_delta_schema

_ALL = pa.schema(
    [
        ("long", pa.int64()),
        ("int", pa.int32()),
        ("short", pa.int16()),
        ("byte", pa.int8()),
        ("double", pa.float64()),
        ("float", pa.float32()),
        ("bool", pa.bool_()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("instant", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("money", pa.decimal128(38, 18)),
        ("many", pa.list_(pa.list_(pa.string()))),
        ("named", pa.map_(pa.string(), pa.struct([("x", pa.int64())]))),
        ("nested", pa.struct([("x", pa.list_(pa.float64())), ("y.z", pa.date32())])),
    ]
)


def test_every_type_comes_back() -> None:
    assert from_delta_schema(to_delta_schema(_ALL)).equals(_ALL)


def test_large_and_zoned_types_are_stored_as_their_plain_ones() -> None:
    schema = pa.schema([("a", pa.large_string()), ("b", pa.timestamp("us", tz="Europe/Berlin"))])
    types = [field["type"] for field in json.loads(to_delta_schema(schema))["fields"]]
    assert types == ["string", "timestamp"]


def test_only_local_times_need_a_table_feature() -> None:
    assert table_features(pa.schema([("a", pa.timestamp("us", tz="UTC")), ("timestamp_ntz", pa.string())])) == []
    assert table_features(pa.schema([("a", pa.list_(pa.timestamp("us")))])) == ["timestampNtz"]


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a;b", "a{b}", "a(b)", "a\nb", "a\tb", "a=b"])
def test_a_name_that_delta_cannot_store_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="Rename it"):
        to_delta_schema(pa.schema([(name, pa.int64())]))
    with pytest.raises(InvalidInputError, match="Rename it"):
        to_delta_schema(pa.schema([("s", pa.list_(pa.struct([(name, pa.int64())])))]))


def test_names_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"'key'.*'KEY'"):
        to_delta_schema(pa.schema([("key", pa.int64()), ("KEY", pa.int64())]))


@pytest.mark.parametrize("arrow", [pa.uint64(), pa.time64("us"), pa.timestamp("ns"), pa.duration("s"), pa.null()])
def test_a_type_that_delta_does_not_have_is_refused_by_its_column(arrow: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match=r"'s\.x'.*expected one of"):
        to_delta_schema(pa.schema([("s", pa.struct([("x", arrow)]))]))
