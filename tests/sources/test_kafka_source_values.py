"""Values in a format: columns of the source, records that cannot be read, a schema registry that answers or not."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pytest
from confluent_kafka import Producer

from spark_ckpt.errors import BadRecordError, ConfigError, InvalidInputError
from spark_ckpt.formats._schema_registry import SchemaRegistry
from spark_ckpt.formats.formats import FormatSpec
from spark_ckpt.sources.base import InnerReader, open_source
from spark_ckpt.testing.source_harness import read
from tests.kafka_server import shared_kafka

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
OLD = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
_FIELDS = '{"name":"id","type":"long"},{"name":"n","type":["null","int"],"default":null}'
NEW = f'{{"type":"record","name":"Order","fields":[{_FIELDS}]}}'


class Registry(BaseHTTPRequestHandler):
    """The few answers of a schema registry that are needed, for a user with a password."""

    answers: ClassVar[dict[str, Any]] = {}
    failures: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        pair = base64.b64encode(b"me:hunter2").decode()
        answer = self.answers.get(self.path)
        if self.headers.get("Authorization") != f"Basic {pair}":
            self._send(401, {"message": "no"})
        elif self.failures:
            self._send(self.failures.pop(), {})
        else:
            self._send(200 if answer else 404, answer or {"error_code": 40403})

    def do_POST(self) -> None:
        schema = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["schema"]
        self.answers["/schemas/ids/9"] = {"schema": schema}
        self._send(200, {"id": 9})

    def _send(self, code: int, body: Any) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: Any) -> None:
        """Nothing into the test's output."""


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    Registry.answers = {"/schemas/ids/1": {"schema": OLD}, "/schemas/ids/2": {"schema": NEW}}
    Registry.failures = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield SchemaRegistry(f"http://127.0.0.1:{server.server_port}", "me", "hunter2", timeout_s=2)
    server.shutdown()
    server.server_close()


def in_wire_format(schema_id: int, schema: str, row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(schema)), row)
    return b"\0" + schema_id.to_bytes(4, "big") + stream.getvalue()


def reader(tmp_path: Path, topic: str, **options: str) -> InnerReader:
    given = {"kafka.bootstrap.servers": shared_kafka().bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    opened = open_source("kafka", {**given, **options}, None, str(tmp_path / "metadata"))
    return opened.reader(opened.schema())


def rows(found: InnerReader) -> list[tuple[Any, ...]]:
    start = found.initial()
    return [row for split in found.splits(start, found.latest(start, True)) for row in read(found, split)]


def topic_of(*values: bytes | None) -> str:
    topic = shared_kafka().new_topic()
    producer = Producer({"bootstrap.servers": shared_kafka().bootstrap})
    for value in values:
        producer.produce(topic, value, b"k")
    assert producer.flush(60) == 0
    return topic


def test_json_values_that_do_not_fit_are_null_in_mode_permissive_with_their_text_beside(tmp_path: Path) -> None:
    topic = topic_of(b'{"id":1,"name":"a"}', None, b'{"id":"x","name":"b"}', b"\xff", b'{"id":4', b" ")
    options = {"valueFormat": "json", "valueSchema": "_bad string, id long, name string"}
    read = [(r[4], r[1]) for r in rows(reader(tmp_path, topic, **options, columnNameOfCorruptRecord="_bad"))]
    assert read == [
        (0, {"_bad": None, "id": 1, "name": "a"}),
        (1, None),
        (2, {"_bad": '{"id":"x","name":"b"}', "id": None, "name": "b"}),
        (3, {"_bad": "\ufffd", "id": None, "name": None}),
        (4, {"_bad": '{"id":4', "id": None, "name": None}),
        (5, None),
    ]
    plain = reader(tmp_path, topic, **{**options, "valueSchema": "id long, name string"}, mode="permissive")
    assert [r[1] for r in rows(plain)][2:4] == [{"id": None, "name": "b"}, {"id": None, "name": None}]


def test_json_values_are_a_struct_and_bad_ones_stop_are_skipped_or_kept_once(tmp_path: Path) -> None:
    topic = topic_of(b'{"id":1,"name":"a"}', None, b'{"id":"x"}', b"\xff", b'{"id":4}')
    options = {"valueFormat": "json", "valueSchema": "id long, name string NOT NULL"}
    good = [(0, {"id": 1, "name": "a"}), (1, None), (4, {"id": 4, "name": None})]
    with pytest.raises(BadRecordError, match=f"{topic}-0, offset 2: expected struct.*found b.*badRecords"):
        rows(reader(tmp_path, topic, **options))
    assert [(r[4], r[1]) for r in rows(reader(tmp_path, topic, **options, badRecords="skip"))] == good
    assert [(r[4], r[1]) for r in rows(reader(tmp_path, topic, **options, mode="DROPMALFORMED"))] == good
    with pytest.raises(BadRecordError):
        rows(reader(tmp_path, topic, **options, mode="failFast"))
    keeping = reader(tmp_path, topic, **options, badRecords=str(tmp_path / "bad"))
    assert [(r[4], r[1]) for r in rows(keeping)] == good
    assert rows(keeping) == rows(keeping)
    kept = [json.loads(path.read_text()) for path in sorted((tmp_path / "bad").glob("*.json"))]
    assert [(k["offset"], k["record"]) for k in kept] == [(2, '{"id":"x"}'), (3, "\\xff")]
    assert base64.b64decode(kept[1]["recordBase64"]) == b"\xff"


def test_avro_of_a_registry_is_read_by_what_each_record_was_written_with(
    tmp_path: Path, registry: SchemaRegistry
) -> None:
    topic = topic_of(in_wire_format(1, OLD, {"id": 1}), in_wire_format(2, NEW, {"id": 2, "n": 3}), b"\0\0\0\0\7x", b"x")
    Registry.answers[f"/subjects/{topic}-value/versions/latest"] = {"schema": NEW}
    user = {"schemaRegistryUrl": registry.url, "schemaRegistryUser": "me", "schemaRegistryPassword": "hunter2"}
    found = reader(tmp_path, topic, valueFormat="avro", badRecords="skip", **user)
    assert [r[1] for r in rows(found)] == [{"id": 1, "n": None}, {"id": 2, "n": 3}]


def test_a_registry_that_fails_for_a_moment_is_asked_again(registry: SchemaRegistry) -> None:
    Registry.failures = [503, 500]
    record = in_wire_format(1, OLD, {"id": 5})
    assert FormatSpec("avro", NEW, registry=registry).decoder().decode([record]).values.to_pylist() == [
        {"id": 5, "n": None}
    ]
    assert Registry.failures == []


def test_a_registry_that_refuses_or_is_away_is_an_error_without_the_password(registry: SchemaRegistry) -> None:
    wrong = SchemaRegistry(registry.url, "me", "hunter3", timeout_s=1)
    with pytest.raises(InvalidInputError, match="refused /schemas/ids/1 with HTTP 401") as refused:
        wrong.schema(1)
    away = SchemaRegistry("http://127.0.0.1:1", "me", "hunter3", timeout_s=0.3)
    with pytest.raises(Exception, match=r"expected the schema registry.*start the query again when it is up") as gone:
        away.schema(1)
    for error in (refused, gone):
        assert "hunter3" not in str(error.value) + repr(away)


def test_what_is_written_with_a_registry_is_read_with_it(registry: SchemaRegistry) -> None:
    import pyarrow as pa

    values = pa.array([{"id": 1}, None], pa.struct([("id", pa.int64())]))
    spec = FormatSpec("avro", OLD, registry=SchemaRegistry(registry.url, "me", "hunter2"), subject="s-value")
    encoded = spec.encoder(values.type).encode(values).to_pylist()
    assert encoded[0] is not None
    assert encoded[0][:5] == b"\0\0\0\0\x09"
    assert spec.decoder().decode(encoded).values.equals(values)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"valueFormat": "json", "valueSchema": "id long", "mode": "lenient"},
            "expected PERMISSIVE, FAILFAST or DROPMALFORMED, found 'lenient'",
        ),
        ({"valueFormat": "json", "mode": "FAILFAST", "columnNameOfCorruptRecord": "_c"}, "goes with mode PERMISSIVE"),
        ({"valueFormat": "json", "mode": "FAILFAST", "badRecords": "skip"}, "found both; leave one out"),
        ({"valueFormat": "json", "columnNameOfCorruptRecord": "_c", "badRecords": "skip"}, "found both; leave one out"),
        ({"mode": "DROPMALFORMED"}, "option 'mode' of source 'kafka' needs option 'valueFormat'.*stay bytes"),
        ({"badRecords": "skip"}, "option 'badRecords' of source 'kafka' needs option 'valueFormat'.*stay bytes"),
        ({"valueFormat": "string", "mode": "PERMISSIVE"}, "'mode'.*does not go with valueFormat string"),
        (
            {"valueFormat": "json", "valueSchema": "id long, _corrupt_record int", "mode": "PERMISSIVE"},
            "The column `_corrupt_record` for corrupt records must have the nullable STRING type, but got",
        ),
        ({"valueFormat": "json"}, "valueFormat json needs option 'valueSchema'"),
        ({"valueFormat": "xml"}, "option 'valueFormat'.*avro, json, protobuf, string"),
        ({"valueSchema": "id long"}, "option 'valueSchema'.*needs option 'valueFormat'"),
        ({"valueFormat": "string", "valueSchema": "id long"}, "'valueSchema'.*does not go with valueFormat string"),
        ({"valueFormat": "protobuf", "valueDescriptorFile": "/no/such", "valueMessageName": "a"}, "readable file"),
        (
            {"valueFormat": "avro", "schemaRegistryUrl": "http://u:hunter2@h", "valueSchema": '"int"'},
            "without user and password",
        ),
    ],
)
def test_formats_that_cannot_work_are_refused_when_the_stream_is_built(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        open_source("kafka", {**GIVEN, **options}, None, "").schema()
    assert "hunter2" not in str(refused.value)
