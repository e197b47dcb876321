"""The one writer of JSON: what Spark's ``to_json`` writes. The values here are Spark 4.2's own; all of them are held
against a live Spark in ``tests/spark/test_texts_of_values.py``."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.formats._java_doubles import java_double
from spark_ckpt.formats.float_texts import float_texts
from spark_ckpt.formats.formats import FormatSpec
from spark_ckpt.formats.json_texts import check_json, json_texts

UTC, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
NAN, INFINITE = float("nan"), float("inf")


def values(kind: pa.DataType, *found: Any) -> pa.Array:
    """Times are given as numbers: Python has no objects for the far ones."""
    if pa.types.is_date(kind):
        return pa.array(found, pa.int32()).cast(kind)
    return pa.array(found, pa.int64()).cast(kind) if pa.types.is_temporal(kind) else pa.array(found, kind)


@pytest.mark.parametrize(
    ("array", "texts"),
    [
        (values(pa.date32(), 0, 2_932_897, -719_529, -719_528, 2**31 - 1, -(2**31)),
         ["1970-01-01", "+10000-01-01", "-0001-12-31", "0000-01-01", "+5881580-07-11", "-5877641-06-23"]),
        (values(UTC, 0, 2**63 - 1, -(2**63)),
         ["1970-01-01T00:00:00.000000Z", "+294247-01-10T04:00:54.775807Z", "-290308-12-21T19:59:05.224192Z"]),
        (values(LOCAL, -1, 2**63 - 1), ["1969-12-31T23:59:59.999999", "+294247-01-10T04:00:54.775807"]),
        (values(pa.time64("us"), 0, 36_672_500_000, 1), ["00:00:00", "10:11:12.5", "00:00:00.000001"]),
        (values(pa.binary(), b"", b"\x01\x02"), ["", "AQI="]),
        (values(pa.string(), "", 'a"\\/\x00\x1f\x7f\u2028é😀\n'),
         ["", 'a\\"\\\\/\\u0000\\u001F\x7f\u2028é😀\\n']),
    ],
)  # fmt: skip
def test_times_bytes_and_texts_are_quoted_as_in_spark(array: pa.Array, texts: list[str]) -> None:
    assert json_texts(array).to_pylist() == [f'"{text}"' for text in texts]


def test_numbers_are_written_as_java_writes_them() -> None:
    doubles = values(pa.float64(), 1e20, 1e7, 9999999.0, 0.001, 0.0001, 123456789.125, -0.0, 5e-324, NAN, -INFINITE, 5)
    assert json_texts(doubles).to_pylist() == [
        "1.0E20", "1.0E7", "9999999.0", "0.001", "1.0E-4", "1.23456789125E8", "-0.0", "4.9E-324", '"NaN"',
        '"-Infinity"', "5.0",
    ]  # fmt: skip
    floats = values(pa.float32(), 0.1, 1e10, 1e-5, 16777216.0, 1e-45)
    assert json_texts(floats).to_pylist() == ["0.1", "1.0E10", "1.0E-5", "1.6777216E7", "1.4E-45"]
    decimals = values(pa.decimal128(38, 10), Decimal("1E-10"), Decimal("0E-10"), Decimal("1.5"), Decimal("1e27"))
    assert json_texts(decimals).to_pylist() == ["1E-10", "0E-10", "1.5000000000", f"1{'0' * 27}.{'0' * 10}"]
    assert json_texts(values(pa.int64(), 2**63 - 1, None)).to_pylist() == [str(2**63 - 1), "null"]


@given(st.lists(st.none() | st.floats(), max_size=20))
def test_any_double_is_written_as_java_19_writes_it(numbers: list[float | None]) -> None:
    found = float_texts(pa.array(numbers, pa.float64())).to_pylist()
    assert found == [None if n is None else java_double(n, shortest=True) for n in numbers]


@pytest.mark.parametrize(
    ("kind", "key", "text"),
    [
        (pa.bool_(), True, "true"),
        (pa.int8(), -1, "-1"),
        (pa.float64(), 1e20, "1.0E20"),
        (pa.float32(), NAN, "NaN"),
        (pa.float64(), -INFINITE, "-Infinity"),
        (pa.decimal128(20, 10), Decimal("1E-10"), "1E-10"),
        (pa.date32(), 18_263, "18263"),
        (pa.date32(), 2_932_897, "2932897"),
        (UTC, 1_577_934_245_123_456, "1577934245123456"),
        (LOCAL, -1, "-1"),
        (pa.time64("us"), 36_672_500_000, "36672500000000"),
        (pa.string(), 'a"b', 'a\\"b'),
    ],
)
def test_keys_of_maps_are_what_spark_holds_of_them(kind: pa.DataType, key: Any, text: str) -> None:
    entries = pa.StructArray.from_arrays([values(kind, key), pa.array([1])], names=["key", "value"])
    array = pa.MapArray.from_arrays([0, 1], entries.field(0), entries.field(1))
    assert json_texts(array).to_pylist() == [f'{{"{text}":1}}']


def test_nested_values_have_nulls_as_asked_wherever_the_array_begins() -> None:
    inner = pa.struct([("q", pa.int32()), ("r", pa.int32())])
    kind = pa.struct([("a", pa.int32()), ("m", pa.map_(pa.string(), inner)), ("l", pa.list_(inner)), ("e", inner)])
    full = {"a": None, "m": [("x", None), ("y", {"q": None, "r": 1})], "l": [None, {"q": None}], "e": {"q": None}}
    array = pa.array([None, {"a": 1}, full, {"m": [], "l": []}, None], kind)
    told = [
        '{"a":null,"m":{"x":null,"y":{"q":null,"r":1}},"l":[null,{"q":null,"r":null}],"e":{"q":null,"r":null}}',
        '{"m":{"x":null,"y":{"r":1}},"l":[null,{}],"e":{}}',
    ]
    for part in (array[2:], array[1:4][1:], pa.concat_arrays([array[2:3], array])):
        assert json_texts(part).to_pylist()[0] == told[0]
        assert json_texts(part, nulls=False).to_pylist()[0] == told[1]
    assert json_texts(array[3:], nulls=False).to_pylist() == ['{"m":{},"l":[]}', "null"]
    assert json_texts(pa.array([{}, None], pa.struct([]))).to_pylist() == ["{}", "null"]
    assert json_texts(pa.chunked_array([], kind)).to_pylist() == []


_maps = st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=5))


@given(st.lists(st.none() | st.lists(_maps, max_size=3)))
def test_any_parser_reads_the_same_values_back(rows: list[Any]) -> None:
    kind = pa.list_(pa.map_(pa.string(), pa.string()))
    array = pa.array([None if row is None else [m and list(m.items()) for m in row] for row in rows], kind)
    assert [json.loads(text) for text in json_texts(array).to_pylist()] == [
        None if row is None else [m or (None if m is None else {}) for m in row] for row in rows
    ]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.duration("us")),
        pa.map_(pa.binary(), pa.int32()),
        pa.struct([("m", pa.map_(pa.list_(pa.int32()), pa.int32()))]),
    ],
)
def test_what_has_no_text_in_json_is_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match="column 'c' has type"):
        check_json("c", kind)


def test_days_and_moments_of_every_year_that_there_is_come_back_from_our_own_reader() -> None:
    days = [0, 2_932_897, -719_529, 2**31 - 1, -(2**31)]
    moments = [0, 253_402_300_800_000_000, -62_198_755_200_000_000, 2**63 - 1, -(2**63)]
    columns = [values(pa.date32(), *days), values(UTC, *moments), values(LOCAL, *moments)]
    array = pa.StructArray.from_arrays(columns, names=["day", "at", "shown"])
    found = FormatSpec("json").decoder(array.type).decode([t.encode() for t in json_texts(array).to_pylist()])
    assert found.bad == {}
    assert found.values.field("day").cast(pa.int32()).to_pylist() == days
    for name in ("at", "shown"):
        assert found.values.field(name).cast(pa.int64()).to_pylist() == moments
