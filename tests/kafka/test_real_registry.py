"""Source and sink with a real schema registry: Avro both ways, Protobuf in its wire format, and what it refuses."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from spark_ckpt.errors import BadRecordError, ConfigError, InvalidInputError, RetryableError
from spark_ckpt.formats._schema_registry import SchemaRegistry
from spark_ckpt.sinks.kafka.sink import KafkaSink
from spark_ckpt.sources.base import open_source
from spark_ckpt.testing.sink_harness import context, permit, stage_table
from spark_ckpt.testing.source_harness import read
from tests.kafka.sink_target import committed
from tests.kafka_server import shared_kafka
from tests.schema_registry import RegistryServer

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    server = RegistryServer().start()
    yield server
    server.stop()


def write(folder: Path, topic: str, url: str, values: pa.Array, checkpoint: int, **options: str) -> None:
    given = {"kafka.bootstrap.servers": shared_kafka().bootstrap, "topic": topic, "stagingPath": f"{folder}/staged"}
    plain = {"valueFormat": "avro", "schemaRegistryUrl": url, "ledgerTopic": f"l-{topic}"}
    sink = KafkaSink({**given, **plain, **options})
    rows = pa.table({"value": values})
    sink.validate(rows.schema)
    sink.commit(permit(checkpoint), stage_table(sink, context(checkpoint, checkpoint, schema=rows.schema), rows))


def values(folder: Path, topic: str, **options: str) -> list[Any]:
    given = {"kafka.bootstrap.servers": shared_kafka().bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    opened = open_source(
        "kafka", {**given, "kafka.isolation.level": "read_committed", **options}, None, f"{folder}/source"
    )
    reader = opened.reader(opened.schema())
    start = reader.initial()
    return [row[1] for split in reader.splits(start, reader.latest(start, True)) for row in read(reader, split)]


def test_avro_is_registered_written_read_and_read_by_another_client_also_when_a_column_is_added(
    tmp_path: Path, registry: RegistryServer
) -> None:
    topic = shared_kafka().new_topic()
    first = pa.array([{"id": 1, "who": "ä"}, None], pa.struct([("id", pa.int64()), ("who", pa.string())]))
    more = pa.array([{"id": 2, "who": None, "n": 7}],
                    pa.struct([("id", pa.int64()), ("who", pa.string()), ("n", pa.int32())]))  # fmt: skip
    write(tmp_path, topic, registry.url, first, 1)
    registry.ask(f"/config/{topic}-value", {"compatibility": "FULL_TRANSITIVE"}, "PUT")
    assert values(tmp_path, topic, valueFormat="avro", schemaRegistryUrl=registry.url) == first.to_pylist()
    write(tmp_path, topic, registry.url, more, 2)
    assert registry.ask(f"/subjects/{topic}-value/versions") == [1, 2]
    found = values(tmp_path, topic, valueFormat="avro", schemaRegistryUrl=registry.url)
    assert found == [{"id": 1, "who": "ä", "n": None}, None, {"id": 2, "who": None, "n": 7}]
    records = [m.value() for m in committed(shared_kafka(), topic)]
    assert [None if r is None else by_fastavro(registry, r) for r in records] == [*first.to_pylist(), *more.to_pylist()]


def by_fastavro(registry: RegistryServer, record: bytes) -> Any:
    assert record[0] == 0
    schema = json.loads(registry.ask(f"/schemas/ids/{int.from_bytes(record[1:5], 'big')}")["schema"])
    return fastavro.schemaless_reader(io.BytesIO(record[5:]), fastavro.parse_schema(schema), None)


def test_a_schema_that_the_registry_finds_incompatible_is_refused_at_the_start(
    tmp_path: Path, registry: RegistryServer
) -> None:
    topic = shared_kafka().new_topic()
    write(tmp_path, topic, registry.url, pa.array([{"id": 1}], pa.struct([("id", pa.int64())])), 1)
    registry.ask(f"/config/{topic}-value", {"compatibility": "BACKWARD"}, "PUT")
    with pytest.raises(InvalidInputError, match=f"refused /subjects/{topic}-value/versions with HTTP 409"):
        write(tmp_path, topic, registry.url, pa.array([{"id": "x"}], pa.struct([("id", pa.string())])), 2)


def test_an_id_that_the_registry_has_not_makes_a_bad_record_and_a_missing_subject_ends_the_start(
    tmp_path: Path, registry: RegistryServer
) -> None:
    topic = shared_kafka().new_topic()
    options = {"valueFormat": "avro", "schemaRegistryUrl": registry.url}
    with pytest.raises(ConfigError, match=f"has no /subjects/{topic}-value/versions/latest; give option 'valueSchema'"):
        values(tmp_path, topic, **options)
    write(tmp_path, topic, registry.url, pa.array([{"id": 1}], pa.struct([("id", pa.int64())])), 1)
    producer = Producer({"bootstrap.servers": shared_kafka().bootstrap})
    producer.produce(topic, b"\0" + (424242).to_bytes(4, "big") + b"\2")
    assert producer.flush(60) == 0
    with pytest.raises(BadRecordError, match="has no /schemas/ids/424242"):
        values(tmp_path, topic, **options)
    assert values(tmp_path, topic, badRecords="skip", **options) == [{"id": 1}]


def test_protobuf_in_the_registrys_wire_format_is_read(tmp_path: Path, registry: RegistryServer) -> None:
    text = 'syntax = "proto3"; package shop; message Other {} message Order { int64 id = 1; string who = 2; }'
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="who", number=2, type=9, label=1)
    (tmp_path / "order.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(id=5, who="b")
    topic = shared_kafka().new_topic()
    made = registry.ask(f"/subjects/{topic}-value/versions", {"schemaType": "PROTOBUF", "schema": text})
    producer = Producer({"bootstrap.servers": shared_kafka().bootstrap})
    # Behind the id: how many indexes, and that of the message in its file, as zigzag numbers.
    producer.produce(topic, b"\0" + made["id"].to_bytes(4, "big") + b"\x02\x02" + message.SerializeToString())
    assert producer.flush(60) == 0
    options = {"valueFormat": "protobuf", "valueMessageName": "shop.Order", "schemaRegistryUrl": registry.url}
    assert values(tmp_path, topic, valueDescriptorFile=f"{tmp_path}/order.desc", **options) == [{"id": 5, "who": "b"}]


def shop(folder: Path, more: bool = False) -> tuple[str, descriptor_pb2.FileDescriptorSet]:
    """A descriptor file: orders, whose lines are a message inside of another, and whose money is in a file of its own;
    ``more``: with another field."""
    kinds = descriptor_pb2.FieldDescriptorProto
    money = descriptor_pb2.FileDescriptorProto(name="shop/money.proto", package="shop", syntax="proto3")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=kinds.TYPE_INT64, label=1)
    orders = descriptor_pb2.FileDescriptorProto(name="shop/orders.proto", package="shop", syntax="proto3")
    orders.dependency.extend(["shop/money.proto", "google/protobuf/timestamp.proto"])
    orders.message_type.add(name="Other")
    order = orders.message_type.add(name="Order")
    order.nested_type.add(name="Note")
    line = order.nested_type.add(name="Line")
    line.field.add(name="what", number=1, type=kinds.TYPE_STRING, label=1)
    line.field.add(name="price", number=2, type=kinds.TYPE_MESSAGE, label=1, type_name=".shop.Money")
    line.field.add(name="at", number=3, type=kinds.TYPE_MESSAGE, label=1, type_name=".google.protobuf.Timestamp")
    if more:
        line.field.add(name="n", number=4, type=kinds.TYPE_INT32, label=1)
    time = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(time)
    made = descriptor_pb2.FileDescriptorSet(file=[time, money, orders])
    (folder / f"shop{more}.desc").write_bytes(made.SerializeToString())
    return f"{folder}/shop{more}.desc", made


def test_protobuf_is_registered_with_what_it_imports_written_and_read(tmp_path: Path, registry: RegistryServer) -> None:
    topic, (file, made) = shared_kafka().new_topic(), shop(tmp_path)
    options = {"valueFormat": "protobuf", "valueDescriptorFile": file, "valueMessageName": "shop.Order.Line"}
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)
    money, time = pa.struct([("cents", pa.int64())]), pa.timestamp("us", "UTC")
    kind = pa.struct([("what", pa.string()), ("price", money), ("at", time)])
    rows = [{"what": "ä", "price": {"cents": 250}, "at": at}, None, {"what": None, "price": None, "at": None}]
    write(tmp_path, topic, registry.url, pa.array(rows, kind), 1, **options)
    assert values(tmp_path, topic, **options, schemaRegistryUrl=registry.url) == rows
    pool = descriptor_pool.DescriptorPool()
    for one in made.file:
        pool.Add(one)
    parse = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order.Line")).FromString
    first, none, empty = (m.value() for m in committed(shared_kafka(), topic))
    registered = registry.ask(f"/subjects/{topic}-value/versions/1")
    # Two places: the second message of the file, and the second inside of that.
    head = b"\0" + registered["id"].to_bytes(4, "big") + b"\x04\x02\x02"
    assert (first[: len(head)], none, empty) == (head, None, head)
    assert (parse(first[len(head) :]).what, parse(first[len(head) :]).price.cents) == ("ä", 250)
    assert registered["schemaType"] == "PROTOBUF"
    assert registered["references"] == [{"name": "shop/money.proto", "subject": "shop/money.proto", "version": 1}]
    write(tmp_path, topic, registry.url, pa.array(rows[:1], kind), 2, **options)
    assert registry.ask(f"/subjects/{topic}-value/versions") == [1]
    wider = pa.array([{"what": "b", "n": 7}], pa.struct([("what", pa.string()), ("n", pa.int32())]))
    write(tmp_path, topic, registry.url, wider, 3, **{**options, "valueDescriptorFile": shop(tmp_path, True)[0]})
    assert registry.ask(f"/subjects/{topic}-value/versions") == [1, 2]
    found = values(tmp_path, topic, **options, schemaRegistryUrl=registry.url)
    assert found == [*rows, rows[0], {"what": "b", "price": None, "at": None}]


def test_a_registry_that_went_away_ends_the_query_and_the_next_start_goes_on(tmp_path: Path) -> None:
    server = RegistryServer().start()
    topic = shared_kafka().new_topic()
    write(tmp_path, topic, server.url, pa.array([{"id": 1}], pa.struct([("id", pa.int64())])), 1)
    server.stop()
    with pytest.raises(RetryableError, match=r"expected the schema registry at .* to answer within 0.5 s.*start the"):
        SchemaRegistry(server.url, timeout_s=0.5).schema(1)
