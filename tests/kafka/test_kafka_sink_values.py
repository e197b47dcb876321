"""Option ``valueFormat`` of the Kafka sink: what a consumer without Spark finds in the values."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from spark_ckpt.errors import ConfigError
from spark_ckpt.sinks.kafka.sink import KafkaSink
from spark_ckpt.testing.sink_harness import context, permit, stage_table
from tests.kafka.sink_target import KafkaTarget, committed, lose
from tests.kafka_server import shared_kafka

ROWS = [{"id": 1, "name": 'quotes " and \n', "amount": 1.5}, {"id": 2, "name": None, "amount": -0.25}, None]
KIND = pa.struct([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])


def written(folder: Path, values: pa.Array, **options: str) -> list[bytes | None]:
    """The values that a consumer gets, in order."""
    target = KafkaTarget(shared_kafka(), f"{folder}/staged", sink=KafkaSink, **options)
    rows = pa.table({"key": ["k"] * len(values), "value": values})
    sink = target.validated(rows.schema)
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=rows.schema), rows))
    return [m.value() for m in committed(target.server, target.topic)]


def test_json_is_what_to_json_writes(tmp_path: Path) -> None:
    found = written(tmp_path, pa.array(ROWS, KIND), valueFormat="json")
    assert found == [
        b'{"id":1,"name":"quotes \\" and \\n","amount":1.5}',
        b'{"id":2,"amount":-0.25}',
        None,
    ]
    assert json.loads(found[0] or b"") == ROWS[0]


def test_avro_is_read_by_another_librarys_schema(tmp_path: Path) -> None:
    schema: dict[str, Any] = {"type": "record", "name": "row", "fields": [
        {"name": "id", "type": ["null", "long"]}, {"name": "name", "type": ["null", "string"]},
        {"name": "amount", "type": ["null", "double"]}]}  # fmt: skip
    found = written(tmp_path, pa.array(ROWS, KIND), valueFormat="avro", valueSchema=json.dumps(schema))
    read = [None if v is None else fastavro.schemaless_reader(io.BytesIO(v), schema) for v in found]
    assert read == ROWS


def test_protobuf_is_read_by_the_message_that_the_descriptor_file_describes(tmp_path: Path) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="row.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Row")
    field = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind) in enumerate([("id", field.TYPE_INT64), ("name", field.TYPE_STRING)], 1):
        message.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
    (tmp_path / "row.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    values = pa.array(
        [{"id": 7, "name": "x"}, {"id": 8, "name": "y"}], pa.struct([("id", pa.int64()), ("name", pa.string())])
    )
    options = {"valueDescriptorFile": f"{tmp_path}/row.desc", "valueMessageName": "shop.Row"}
    found = written(tmp_path, values, valueFormat="protobuf", **options)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    row = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Row"))
    assert [(r.id, r.name) for r in map(row.FromString, filter(None, found))] == [(7, "x"), (8, "y")]


def test_rows_that_are_produced_again_have_the_same_values(tmp_path: Path) -> None:
    target = KafkaTarget(shared_kafka(), f"{tmp_path}/staged", sink=KafkaSink, valueFormat="json")
    rows = pa.table({"value": pa.array(ROWS, KIND)})
    sink = target.validated(rows.schema)
    staged = stage_table(sink, context(1, 1, schema=rows.schema), rows)
    lose(target, staged)
    sink.commit(permit(1), staged)
    assert sorted(str(m.value()) for m in committed(target.server, target.topic)) == sorted(
        map(str, [b'{"id":1,"name":"quotes \\" and \\n","amount":1.5}', b'{"id":2,"amount":-0.25}', None])
    )


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"valueFormat": "yaml"}, KIND, "one of avro, json, protobuf, string"),
        ({"valueSchema": "{}"}, KIND, r"valueSchema do not go with valueFormat \(none\)"),
        ({"valueFormat": "json", "valueMessageName": "x"}, KIND, "do not go with valueFormat json"),
        ({"valueFormat": "string"}, KIND, "expected a value of type string or binary"),
        ({"valueFormat": "protobuf"}, KIND, "valueDescriptorFile"),
        ({"valueFormat": "avro", "schemaRegistryUrl": "http://x", "topic": ""}, KIND, "needs option 'topic'"),
        ({"valueFormat": "avro", "schemaRegistryUrl": "http://u:p@x"}, KIND, "schemaRegistryPassword"),
    ],
)
def test_what_does_not_go_together_is_refused_at_start(
    tmp_path: Path, options: dict[str, str], kind: pa.DataType, said: str
) -> None:
    more = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "stagingPath": str(tmp_path), **options}
    with pytest.raises(ConfigError, match=said):
        KafkaSink(more).validate(pa.schema([("topic", pa.string()), ("value", kind)]))
