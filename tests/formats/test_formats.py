"""Values as bytes and back in every format: what is read, what is bad, and that one bad record spoils no other."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.formats._protobuf import _behind_indexes as behind_indexes
from spark_ckpt.formats._protobuf_registry import _indexes as indexes
from spark_ckpt.formats._protobuf_registry import _places as places_of
from spark_ckpt.formats.formats import FormatSpec
from spark_ckpt.sources._convert import arrow_schema
from spark_ckpt.sources.ddl import parse_ddl
from tests.formats.json_records import NASTY, SCHEMA

UTC = dt.timezone.utc
ORDER = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("inner", pa.struct([("x", pa.int32())])),
    ]
)
ORDERS: list[dict[str, Any] | None] = [
    {
        "id": 2**62,
        "name": 'a "quoted"\nname é',
        "price": 0.1,
        "at": dt.datetime(2020, 1, 1, 1, 2, 3, 4, UTC),
        "tags": ["x", "y"],
        "counts": [("k", 1)],
        "inner": {"x": -1},
    },
    None,
    {
        "id": 0,
        "name": "",
        "price": -1.5,
        "at": dt.datetime(1960, 1, 1, tzinfo=UTC),
        "tags": [],
        "counts": [],
        "inner": {"x": 5},
    },
]
SPARSE = {"id": None, "name": None, "price": None, "at": None, "tags": None, "counts": None, "inner": None}


def descriptors() -> bytes:
    """order.proto, which imports timestamp.proto, as protoc would write them, the importing file first."""
    order = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order.dependency.append("google/protobuf/timestamp.proto")
    message, kinds = order.message_type.add(name="Order"), descriptor_pb2.FieldDescriptorProto
    inner = message.nested_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=kinds.TYPE_INT32, label=1)
    entry = message.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=1)
    for n, (name, kind, label, of) in enumerate(
        [
            ("id", kinds.TYPE_INT64, 1, None),
            ("name", kinds.TYPE_STRING, 1, None),
            ("price", kinds.TYPE_DOUBLE, 1, None),
            ("at", kinds.TYPE_MESSAGE, 1, ".google.protobuf.Timestamp"),
            ("tags", kinds.TYPE_STRING, 3, None),
            ("counts", kinds.TYPE_MESSAGE, 3, ".shop.Order.CountsEntry"),
            ("inner", kinds.TYPE_MESSAGE, 1, ".shop.Order.Inner"),
        ],
        1,
    ):
        message.field.add(name=name, number=n, type=kind, label=label, type_name=of)
    imported = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(imported)
    return descriptor_pb2.FileDescriptorSet(file=[order, imported]).SerializeToString()


PROTOBUF = FormatSpec("protobuf", descriptors=descriptors(), message="shop.Order")


@pytest.mark.parametrize(
    ("message", "places"),
    [("shop.Order", b"\0"), ("shop.Order.Inner", b"\x04\0\0"), ("shop.Order.CountsEntry", b"\x04\0\x02")],
)
def test_places_of_a_message_are_those_in_its_file(message: str, places: bytes) -> None:
    (file,) = (f for f in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file if f.package == "shop")
    found = places_of(file, message)
    assert found is not None
    assert indexes(found) == places
    assert behind_indexes(places + b"rest") == b"rest"
    assert behind_indexes(indexes([0, 300, 1]) + b"rest") == b"rest"
    assert [places_of(file, m) for m in ("shop.Inner", "Order", "other.Order")] == [None, None, None]


def json_type(ddl: str) -> pa.DataType:
    return arrow_schema(parse_ddl(f"v struct<{ddl}>")).field("v").type


@pytest.mark.parametrize("spec", [FormatSpec("json"), FormatSpec("avro"), PROTOBUF], ids=lambda s: s.format)
def test_what_is_encoded_comes_back(spec: FormatSpec) -> None:
    values = pa.array(ORDERS, ORDER)
    encoded = pickle.loads(pickle.dumps(spec.encoder(ORDER))).encode(values)
    schema = json.dumps(_avro_schema()) if spec.format == "avro" else None
    reading = FormatSpec(spec.format, schema, spec.descriptors, spec.message)
    found = pickle.loads(pickle.dumps(reading.decoder(ORDER))).decode(encoded.to_pylist())
    assert found.bad == {}
    expected = [None if o is None else dict(o) for o in ORDERS]
    if spec.format == "protobuf":
        expected[2] = {**expected[2], "id": None, "name": None}  # zero is not written, as in proto3
    assert found.values.to_pylist() == expected


def _avro_schema() -> Any:
    from spark_ckpt.formats._avro import avro_schema

    return avro_schema(ORDER)


def test_numbers_in_json_are_spelt_alike_in_a_column_and_inside_of_values() -> None:
    """As Spark's ``to_json`` spells them: a double that is whole is no integer, a float is no double."""
    kind = json_type("d double, f float, ds array<double>, s struct<f:float>, m map<string,float>")
    row = {"d": 1.0, "f": 0.1, "ds": [1.0, -0.0, 2.5], "s": {"f": 0.1}, "m": {"k": -3.0}}
    expected = b'{"d":1.0,"f":0.1,"ds":[1.0,-0.0,2.5],"s":{"f":0.1},"m":{"k":-3.0}}'
    assert FormatSpec("json").encoder(kind).encode(pa.array([row], kind)).to_pylist() == [expected]
    row = {"d": -0.0, "f": 10000000.0, "ds": None, "s": None, "m": None}
    assert FormatSpec("json").encoder(kind).encode(pa.array([row], kind)).to_pylist() == [b'{"d":-0.0,"f":1.0E7}']


def test_nulls_are_left_out_of_json_and_not_set_in_protobuf() -> None:
    values = pa.array([SPARSE, {**SPARSE, "id": 1, "inner": {"x": None}}], ORDER)
    assert FormatSpec("json").encoder(ORDER).encode(values).to_pylist() == [b"{}", b'{"id":1,"inner":{}}']
    empty = PROTOBUF.encoder(ORDER).encode(values)
    assert empty.to_pylist()[0] == b""
    assert PROTOBUF.decoder().decode(empty.to_pylist()).values.to_pylist()[0] == {**SPARSE, "tags": [], "counts": []}


def test_text_is_text() -> None:
    decoder, records = FormatSpec("string").decoder(), ["é".encode(), None, b"\xff", b""]
    found = decoder.decode(records)
    assert (found.values.to_pylist(), list(found.bad)) == (["é", None, None, ""], [2])
    assert FormatSpec("string").encoder(pa.string()).encode(pa.array(["é", None])).to_pylist() == ["é".encode(), None]


@pytest.mark.parametrize("ddl", [SCHEMA, "l long, s string, t timestamp, d double, st struct<x:int,t:timestamp>"])
@given(st.lists(st.sampled_from(NASTY), max_size=90))
def test_whether_a_json_record_can_be_read_depends_on_no_other(ddl: str, records: list[str]) -> None:
    decoder = FormatSpec("json").decoder(json_type(ddl))
    together = decoder.decode([r.encode() for r in records])
    for at, record in enumerate(records):
        alone = decoder.decode([record.encode()])
        assert repr(together.values[at].as_py()) == repr(alone.values[0].as_py())
        assert (at in together.bad) == (0 in alone.bad)


def test_arrow_and_the_slow_way_read_the_same() -> None:
    decoder = FormatSpec("json").decoder(
        json_type(
            "i int, l long, f float, d double, s string, b boolean, dt date, t timestamp, n timestamp_ntz, a array<int>"
        )
    )
    for record in NASTY:
        found, slowly = (
            decoder._reader.read(pa.array([record.encode()])),
            decoder._reader._slowly(pa.array([record.encode()])),
        )
        assert repr(found.rows.to_pylist()) == repr(slowly.rows.to_pylist()), record


def test_decimals_of_too_many_digits_are_bad() -> None:
    decoder = FormatSpec("json").decoder(json_type("small decimal(10,2), large decimal(38,10)"))
    records = ['{"large":1e30}', '{"small":1234567890}', '{"large":"1e30"}', '{"small":12345678.90,"large":1e27}']
    found = decoder.decode([r.encode() for r in records])
    assert list(found.bad) == [0, 1, 2]
    assert found.values.to_pylist()[3] == {"small": Decimal("12345678.90"), "large": Decimal("1e27")}


POISON = [b"\x00", b"\xff" * 30, b"", b"[" * 100_000, b"\x00\x00\x00\x00\x07abc", b"{" * 5000, bytes(range(256))]


@pytest.mark.parametrize("spec", [FormatSpec("json"), FormatSpec("avro", '"long"'), PROTOBUF], ids=lambda s: s.format)
def test_poison_is_bad_and_spoils_nothing(spec: FormatSpec) -> None:
    good = {"json": b'{"id":5}', "avro": b"\x0a", "protobuf": b"\x08\x05"}[spec.format]
    found = spec.decoder(ORDER).decode([piece for poison in POISON for piece in (poison, good)])
    assert len(found.values) == 2 * len(POISON)
    read = found.values.to_pylist()[1::2]
    assert [v if isinstance(v, int) else v["id"] for v in read] == [5] * len(POISON)
    assert all(at % 2 == 0 for at in found.bad)
    assert len(found.bad) >= 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FormatSpec("json").decoder(), "valueFormat json needs option 'valueSchema'"),
        (lambda: FormatSpec("avro").decoder(), "valueFormat avro needs option 'valueSchema'"),
        (lambda: FormatSpec("avro", "{").decoder(), "option 'valueSchema': expected Avro's JSON"),
        (lambda: FormatSpec("avro", '["int","string"]').decoder(), "expected unions of null and one type"),
        (
            lambda: FormatSpec(
                "avro", '{"type":"record","name":"A","fields":[{"name":"a","type":["null","A"]}]}'
            ).decoder(),
            "expected no type that contains itself, found 'A'",
        ),
        (lambda: FormatSpec("avro", '"string"').encoder(pa.int64()), "expected a schema for values of type int64"),
        (lambda: FormatSpec("protobuf").decoder(), "needs options 'valueDescriptorFile'.*'valueMessageName'"),
        (
            lambda: FormatSpec("protobuf", descriptors=b"\xff", message="a").decoder(),
            "'valueDescriptorFile': expected what",
        ),
        (
            lambda: FormatSpec("protobuf", descriptors=descriptors(), message="Order").decoder(),
            "expected one of .*shop.Order",
        ),
        (lambda: PROTOBUF.encoder(pa.struct([("idd", pa.int64())])), "message shop.Order has no field 'idd'"),
        (lambda: PROTOBUF.encoder(pa.struct([("id", pa.string())])), "expected int64 for field 'id'"),
        (lambda: FormatSpec("string").encoder(pa.int64()), "expected a value of type string or binary, found int64"),
    ],
)
def test_what_cannot_work_is_refused_before_any_record(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_value_that_the_schema_cannot_hold_is_refused_when_it_is_written() -> None:
    schema = '{"type":"record","name":"A","fields":[{"name":"id","type":"long"}]}'
    encoder = FormatSpec("avro", schema).encoder(pa.struct([("id", pa.int64())]))
    with pytest.raises(InvalidInputError, match="expected a value of the Avro schema"):
        encoder.encode(pa.array([{"id": None}], pa.struct([("id", pa.int64())])))


def test_decimals_and_dates_go_through_avro() -> None:
    kind = pa.struct([("d", pa.decimal128(10, 2)), ("day", pa.date32()), ("local", pa.timestamp("us"))])
    row = {"d": Decimal("-12.30"), "day": dt.date(2020, 2, 29), "local": dt.datetime(2020, 1, 1, 1, 1)}
    from spark_ckpt.formats._avro import avro_schema

    spec = FormatSpec("avro", json.dumps(avro_schema(kind)))
    encoded = spec.encoder(kind).encode(pa.array([row], kind))
    assert spec.decoder().decode(encoded.to_pylist()).values.to_pylist() == [row]


@pytest.mark.parametrize(
    ("ddl", "record", "expected"),
    [
        ("i int", "null", "expected an object, found null"),
        ("d double", '{"d":"INF"}', "expected double, found the string 'INF'"),
        ("d double", '{"d":"+INF"}', {"d": float("inf")}),
        ("dec decimal(10,2)", '{"dec":"1_0"}', "expected decimal128(10, 2), found the string '1_0'"),
        ("dec decimal(10,2)", '{"dec":"1,234.565"}', {"dec": Decimal("1234.57")}),
        ("dec decimal(4,2)", '{"dec":123.4}', "expected decimal128(4, 2), found 123.4"),
        ("dt date", '{"dt":"2020"}', {"dt": dt.date(2020, 1, 1)}),
        ("s string", '{"s":{"a": [1, 2.50]}}', {"s": '{"a": [1, 2.50]}'}),
        ("m map<string,int>", '{"m":{"a":1,"b":null}}', {"m": [("a", 1), ("b", None)]}),
        ("bin binary", '{"bin":"aGk="}', {"bin": b"hi"}),
        ("t timestamp", '{"t":5}', {"t": dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)}),
        ("i int", "{'i':1}", {"i": 1}),
    ],
)
def test_json_is_read_by_the_rules_of_from_json(ddl: str, record: str, expected: Any) -> None:
    """By those of Spark's JacksonParser: https://github.com/apache/spark, catalyst/json."""
    found = FormatSpec("json").decoder(json_type(ddl)).decode([record.encode()])
    assert (found.bad.get(0) or found.values.to_pylist()[0]) == expected
