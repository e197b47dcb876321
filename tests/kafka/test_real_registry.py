"""Source and sink with a real schema registry: Avro both ways, Protobuf in its wire format, and what it refuses."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

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


def write(folder: Path, topic: str, url: str, values: pa.Array, checkpoint: int) -> None:
    given = {"kafka.bootstrap.servers": shared_kafka().bootstrap, "topic": topic, "stagingPath": f"{folder}/staged"}
    sink = KafkaSink({**given, "valueFormat": "avro", "schemaRegistryUrl": url, "ledgerTopic": f"l-{topic}"})
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


def test_a_registry_that_went_away_ends_the_query_and_the_next_start_goes_on(tmp_path: Path) -> None:
    server = RegistryServer().start()
    topic = shared_kafka().new_topic()
    write(tmp_path, topic, server.url, pa.array([{"id": 1}], pa.struct([("id", pa.int64())])), 1)
    server.stop()
    with pytest.raises(RetryableError, match=r"expected the schema registry at .* to answer within 0.5 s.*start the"):
        SchemaRegistry(server.url, timeout_s=0.5).schema(1)
