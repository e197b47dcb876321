"""Each decoder of stored or received bytes, with inputs that are whole to begin from. docs/security.md names them.

A target takes bytes and returns a value or raises one of our errors; anything else is a mistake of ours.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2
from pyroaring import BitMap

from spark_ckpt.errors import CkptError
from spark_ckpt.formats._avro import AvroDecoder
from spark_ckpt.formats._json_decode import JsonDecoder
from spark_ckpt.formats._protobuf import ProtobufDecoder, message_class
from spark_ckpt.formats._schema_registry import said, wrapped
from spark_ckpt.jobs.savepoint import savepoint
from spark_ckpt.protocol import codec
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.aligner import AlignerState
from spark_ckpt.protocol.records import AbortedRecord, BatchRecord, CompletionRecord, GenerationRecord, TriggerRecord
from spark_ckpt.protocol.source_offset import SourceOffset, SourcePosition, initial_offset
from spark_ckpt.runtime.operator._subtask_meta import OWN, STATE_STORE, SubtaskMeta, known_states
from spark_ckpt.state.envelope import Controls, pack, unpack
from spark_ckpt.state.ipc import compress, decompress
from spark_ckpt.state.keys.spark_hash import xxhash64
from spark_ckpt.state.lsm.keyed_state import KeyedState
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.state.lsm.ranges import KeyRange
from spark_ckpt.state.narrow import from_narrow, narrow_messages
from spark_ckpt.state.subtasks import Subtasks
from spark_ckpt.storage._delta_log import LOG
from spark_ckpt.storage._table_head import OWN as OWN_FOLDER
from spark_ckpt.storage._table_head import HeadLog, Writer
from spark_ckpt.storage.content import FileEntry
from spark_ckpt.storage.deletion_vectors import DvRef, decode_rows, encode_rows, read_vector, vector_payload
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.manifest import read_manifest
from spark_ckpt.storage.record_store import RecordStore, encode_record
from spark_ckpt.storage.run_files import encode_run_file, open_run_file, read_row_group
from spark_ckpt.storage.state_table import savepoint_table_files
from spark_ckpt.testing.memory_runs import MemoryRuns
from spark_ckpt.types import KEY_HASH

SAVEPOINT = Path(__file__).parents[1] / "savepoints" / "0.1.0" / "updated"
ROWS = pa.schema([("k", pa.int64()), ("v", pa.string()), (KEY_HASH, pa.int64())])
_RECORDS: dict[str, Any] = {
    "checkpoint": CompletionRecord,
    "trigger": TriggerRecord,
    "generation": GenerationRecord,
    "aborted": AbortedRecord,
    "batch": BatchRecord,
}


@dataclass(frozen=True)
class Target:
    """``is_json``: inputs are JSON, and some are changed as that."""

    decode: Callable[[bytes], Any]
    seeds: Callable[[], list[bytes]]
    is_json: bool = False


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="fuzz-"))


def _rows(count: int = 3) -> pa.Table:
    keys = pa.array(range(count), pa.int64())
    values = pa.array(["x" * (i % 5) if i % 3 else None for i in range(count)])
    return pa.table([keys, values, pa.array(xxhash64([keys]))], schema=ROWS)


# --- records -------------------------------------------------------------------------------------------------------


def _record(data: bytes) -> Any:
    """A record's file as it is."""
    (_folder() / "record.json").write_bytes(data)
    return RecordStore(str(_folder())).read("record.json", "checkpoint")


def _records() -> list[bytes]:
    return [path.read_bytes() for path in SAVEPOINT.rglob("savepoint.json")] + [encode_record("checkpoint", {}, "w")]


def _body(data: bytes) -> Any:
    """A record whose checksum is right, whatever it says: who can write it can write that, too."""
    kind, _, text = data.partition(b" ")
    cls = _RECORDS.get(kind.decode(errors="replace"), CompletionRecord)
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cls.from_json(body)


def _bodies() -> list[bytes]:
    records = [
        ("trigger", {"checkpoint": 1, "kind": "checkpoint", "by": "interval", "triggered_ms": 1, "generation": 1}),
        ("aborted", {"checkpoint": 1, "cause": "expired", "reason": "", "generation": 1}),
    ]
    found = [f"{kind} {json.dumps(body)}".encode() for kind, body in records]
    for path in SAVEPOINT.rglob("savepoint.json"):
        body = json.loads(path.read_bytes())["body"]
        found.append(b"checkpoint " + json.dumps(body.get("record", body)).encode())
    return found


def _manifest(data: bytes) -> Any:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    (_folder() / "manifest.json").write_bytes(encode_record("manifest", body, "w"))
    return read_manifest(RecordStore(str(_folder())), "manifest.json")


def _manifests() -> list[bytes]:
    paths = sorted(SAVEPOINT.rglob("manifests/*/*.json"))[:4]
    return [json.dumps(json.loads(path.read_bytes())["body"]).encode() for path in paths]


def _offset(data: bytes) -> Any:
    """Spark has read the JSON."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return SourceOffset.from_json(value)


def _offsets() -> list[bytes]:
    made = initial_offset(3, 1, None, SourcePosition({"at": [1, 2]}))
    plain = {k: v for k, v in made.to_json().items() if k != "crc32"}
    return [json.dumps(made.to_json()).encode(), json.dumps(plain).encode()]


# --- between stages ------------------------------------------------------------------------------------------------


def _events() -> list[bytes]:
    group = ev.GroupManifest((ev.Run("e1.parquet", 0, 3, 1),), 3) if hasattr(ev, "Run") else None
    found: list[Any] = [
        ev.Barrier(1, 4, 0), ev.Cancel(2), ev.Watermark("s#1", 5, 1), ev.Completed(1), ev.RowsRead("s", 3),
        ev.Flushed("t", 1, (), {"f.parquet": bytes(BitMap([1, 2]).serialize())}),
        ev.OperatorAck("t", 1, 0, {0: group} if group else {}, {"rows": 1}),
    ]  # fmt: skip
    return [ev.encode(event) for event in found]


def _envelope(data: bytes) -> Any:
    size = int.from_bytes(data[:4], "big") % (len(data) + 1)
    return unpack(data[4 : 4 + size], data[4 + size :], ROWS)


def _envelopes() -> list[bytes]:
    subtasks = Subtasks(4, 1)
    event = ev.encode(ev.Barrier(1, 4, 0))
    controls = Controls(broadcast=[ev.decode(event)]) if "broadcast" in Controls.__dataclass_fields__ else Controls()
    found = pack([(1, _rows())], subtasks, controls, ROWS)
    return [len(head).to_bytes(4, "big") + head + (body or b"") for _, head, body in found]


def _narrow(data: bytes) -> Any:
    rows = from_narrow(data, ROWS)
    rows.validate()  # what its offsets say is within its bytes
    return rows


def _narrows() -> list[bytes]:
    found = []
    for count in (3, 2000):
        batch = _rows(count).combine_chunks().to_batches()[0]
        found += [b"".join(bytes(part) for part in message) for message in narrow_messages(batch, 1 << 20)]
    return found


# --- what Spark's state store keeps of a subtask ----------------------------------------------------------------------

_LAYOUT = StateLayout(pa.schema([ROWS.field("k")]), pa.schema([ROWS.field("v")]), with_timeout=True)
_GROUPS = KeyRange(0, 4, 4)


def _subtask(data: bytes) -> Any:
    """Its JSON on one line, and its memtables behind it."""
    text, _, memtables = data.partition(b"\n")
    parsed = codec.parsed(text, STATE_STORE)
    meta, known = SubtaskMeta.from_json(parsed), known_states(parsed, memtables or None, [OWN, "seen"])
    states = [KeyedState.open(_LAYOUT, _GROUPS, *state, MemoryRuns()) for state in known.values()]
    return meta, [(state.keys, state.next_due_ms()) for state in states]


def _subtasks() -> list[bytes]:
    own, seen = _sealed(), _sealed()
    group = ev.GroupManifest((ev.Run("e1.parquet", 0, 3, 1),), 3)
    meta = SubtaskMeta(AlignerState(3), {"s#0": 5}, 4, {3: {"s#0": 9}}, {OWN: (2, {0: group})}, {"seen": 1}, {3: 2})
    body = {**meta.to_json(), "keyed": own[0], "generation": 1}
    families = {"seen": {"keyed": seen[0], "bytes": len(seen[1])}}
    return [
        json.dumps(body).encode() + b"\n" + own[1],
        json.dumps({**body, "families": families}).encode() + b"\n" + own[1] + seen[1],
    ]


def _sealed() -> tuple[dict[str, Any], bytes]:
    """A state with a file, dead rows of that, and a memtable."""
    runs = MemoryRuns()
    state, timeouts = KeyedState(_LAYOUT, _GROUPS, runs), np.full(6, 7)
    for value in "ab":
        keys = pa.table([pa.array(range(6), pa.int64())], names=["k"])
        hashes = np.sort(xxhash64([keys["k"].combine_chunks()]))
        values, every = pa.table({"v": [value] * 6}), np.ones(6, bool)
        state.write(state.touch(hashes, keys), values, every, ~every, timeouts)
        if value == "a":
            appender = runs.appender("f1")
            state.flush(appender, 1)
            appender.close()
    meta, memtable = state.seal()
    assert memtable is not None
    return meta, memtable


# --- state tables and savepoints -------------------------------------------------------------------------------------


def _log(data: bytes) -> Any:
    """A commit of a state table's log and the content file that it names; or of a savepoint's log, and nothing."""
    commit, _, content = data.rpartition(b"\n")
    folder = Folder(str(_folder() / "table"))
    folder.replace(f"{LOG}/{0:020d}.json", commit)
    folder.replace(f"{OWN_FOLDER}/content-1.json", encode_record("content", _object(content), "w"))
    found = []
    for read in (HeadLog(folder).read, lambda: savepoint_table_files(folder)):
        try:
            found.append(read())
        except CkptError as error:  # the other may read it
            found.append(error)
    return found


def _logs() -> list[bytes]:
    folder = Folder(tempfile.mkdtemp(prefix="fuzz-log-"))
    head = HeadLog(folder).put(None, {"a.parquet": FileEntry(3, 99)}, "{}", Writer("job/u", 1, 1))
    assert head is not None
    commit, content = (folder.read(name) or b"" for name in (f"{LOG}/{0:020d}.json", f"{OWN_FOLDER}/{head.record}"))
    own = commit.replace(head.record.encode(), b"content-1.json") + json.dumps(json.loads(content)["body"]).encode()
    tables = sorted(SAVEPOINT.rglob("_delta_log/*.json"))[:3]
    return [own, *(path.read_bytes() + b"{}" for path in tables)]


def _savepoint(data: bytes) -> Any:
    """A savepoint's own record, whose checksum is right, as ``describe`` and ``verify`` read it."""
    to = _folder() / "savepoint"
    if not to.exists():
        shutil.copytree(SAVEPOINT, to)
    record = next(to.rglob("savepoint.json"))
    record.write_bytes(encode_record("savepoint", _object(data), "w"))
    return savepoint(str(to)).describe()


def _savepoints() -> list[bytes]:
    return [json.dumps(json.loads(path.read_bytes())["body"]).encode() for path in SAVEPOINT.rglob("savepoint.json")]


def _object(data: bytes) -> dict[str, Any]:
    """The JSON object; none becomes an empty one."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# --- files of state ------------------------------------------------------------------------------------------------


def _vector(data: bytes) -> Any:
    (_folder() / "dv.bin").write_bytes(b"\0\0\0\0" + data)
    return len(read_vector(Folder(str(_folder())), DvRef("dv.bin", 0, len(data), 1, zlib.crc32(data))))


def _vectors() -> list[bytes]:
    return [vector_payload(BitMap(rows)) for rows in ([], [1, 5], range(10_000), range(0, 100_000, 7))]


def _run_file(data: bytes) -> Any:
    folder = Folder(str(_folder()))
    (_folder() / "run.parquet").write_bytes(data)
    file = open_run_file(folder, "run.parquet")
    return [read_row_group(folder, "run.parquet", file, i).num_rows for i in range(file.num_row_groups)]


def _run_files() -> list[bytes]:
    return [bytes(encode_run_file(_rows(count))) for count in (1, 300)]


# --- messages ------------------------------------------------------------------------------------------------------

_AVRO = (
    '{"type":"record","name":"r","fields":[{"name":"a","type":"long"},{"name":"b","type":["null",'
    '{"type":"array","items":"string"}],"default":null},{"name":"c","type":{"type":"map","values":"double"}}]}'
)


@dataclass
class _Registry:
    """One schema for every id."""

    text: str = _AVRO

    def schema(self, _schema_id: int) -> str:
        return self.text


def _avro(data: bytes) -> Any:
    registry: Any = _Registry()
    return AvroDecoder(_AVRO, registry).decode([data])


def _answer(data: bytes) -> Any:
    """What a registry says by itself, and a schema that it gives."""
    registry: Any = _Registry(data.decode(errors="replace"))
    decoded = AvroDecoder(_AVRO, registry).decode(_avros())
    return decoded, [said(data, wanted) for wanted in ("schema", "id", "version")]


def _answers() -> list[bytes]:
    return [b'{"schema": "\\"long\\"", "id": 3, "version": 1}', _AVRO.encode(), _AVRO.replace("long", "int").encode()]


def _avros() -> list[bytes]:
    out = io.BytesIO()
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(json.loads(_AVRO)), {"a": 1, "b": ["x", "y"], "c": {"z": 1.5}}
    )
    return [wrapped(1, out.getvalue())]


@cache
def _descriptors() -> bytes:
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="row.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Row")
    message.field.add(name="id", number=1, type=kind.TYPE_INT64, label=kind.LABEL_OPTIONAL)
    message.field.add(name="names", number=2, type=kind.TYPE_STRING, label=kind.LABEL_REPEATED)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def _protobuf(data: bytes) -> Any:
    return ProtobufDecoder(_descriptors(), "shop.Row", True).decode([data])


def _protobufs() -> list[bytes]:
    made: Any = message_class(_descriptors(), "shop.Row")
    return [wrapped(1, b"\0" + made(id=5, names=["a", "b"]).SerializeToString())]


_JSON = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string())), ("c", pa.timestamp("us", "UTC"))])


def _json(data: bytes) -> Any:
    return JsonDecoder(_JSON, True, None).decode([data])


TARGETS: dict[str, Target] = {
    "record": Target(_record, _records, is_json=True),
    "record-body": Target(_body, _bodies),
    "manifest": Target(_manifest, _manifests, is_json=True),
    "offset": Target(_offset, _offsets, is_json=True),
    "subtask": Target(_subtask, _subtasks, is_json=True),
    "delta-log": Target(_log, _logs, is_json=True),
    "savepoint": Target(_savepoint, _savepoints, is_json=True),
    "registry-answer": Target(_answer, _answers, is_json=True),
    "event": Target(ev.decode, _events, is_json=True),
    "envelope": Target(_envelope, _envelopes),
    "narrow-rows": Target(_narrow, _narrows),
    "held-rows": Target(decompress, lambda: [compress(b"some rows" * 50)]),
    "dead-rows": Target(decode_rows, lambda: [encode_rows([1, 5]), encode_rows(range(9000))]),
    "deletion-vector": Target(_vector, _vectors),
    "run-file": Target(_run_file, _run_files),
    "confluent-avro": Target(_avro, _avros),
    "confluent-protobuf": Target(_protobuf, _protobufs),
    "confluent-json": Target(_json, lambda: [wrapped(1, b'{"a": 1, "b": ["x"], "c": "2024-01-01T00:00:00Z"}')]),
}
