"""Delta tables for tests, action by action: what delta-rs does not write, and no session of Spark is needed for."""

from __future__ import annotations

import base64
import json
import struct
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_MAGIC = struct.pack("<I", 1681511377)


def z85(data: bytes) -> str:
    padded = data + b"\0" * (-len(data) % 5 if len(data) % 4 else 0)
    return base64.b85encode(padded).translate(bytes.maketrans(_B85, _Z85)).decode()


def field(name: str, kind: Any, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


ID_V = (field("id", "long"), field("v", "string"))


class HandMade:
    """A table whose log is written here. ``commit`` takes actions, and the other methods make them."""

    rows_a_group = 4

    def __init__(
        self, path: Path, *fields: dict[str, Any], partition_by: Sequence[str] = (), **properties: str
    ) -> None:
        self.path, self.version, self.files = path, -1, 0
        (path / "_delta_log").mkdir(parents=True)
        self.id = str(uuid.uuid4())
        self.commit(self.protocol(), self.metadata(*(fields or ID_V), partition_by=partition_by, **properties))

    def protocol(self, *features: str, reader_version: int = 3) -> dict[str, Any]:
        body = {"minReaderVersion": reader_version, "minWriterVersion": 7}
        return {"protocol": {**body, "readerFeatures": list(features), "writerFeatures": list(features)}}

    def metadata(self, *fields: dict[str, Any], partition_by: Sequence[str] = (), **properties: str) -> dict[str, Any]:
        schema = json.dumps({"type": "struct", "fields": list(fields)})
        configuration = {f"delta.{name.replace('_', '.')}": value for name, value in properties.items()}
        body = {"id": self.id, "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
        return {"metaData": {**body, "partitionColumns": list(partition_by), "configuration": configuration}}

    def commit(self, *actions: dict[str, Any], operation: str = "WRITE", **info: Any) -> int:
        self.version += 1
        lines = [{"commitInfo": {"timestamp": 1, "operation": operation, **info}}, *actions]
        self.log(self.version).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return self.version

    def log(self, version: int) -> Path:
        return self.path / "_delta_log" / f"{version:020d}.json"

    def add(self, rows: pa.Table, *, data_change: bool = True, **partition: str | None) -> dict[str, Any]:
        """The file is written, too."""
        name, self.files = f"part-{self.files:05d}.parquet", self.files + 1
        return {"add": self._file(name, rows, partition) | {"dataChange": data_change}}

    def change(self, rows: pa.Table, **partition: str | None) -> dict[str, Any]:
        """A file of the change data feed."""
        (self.path / "_change_data").mkdir(exist_ok=True)
        name, self.files = f"_change_data/cdc-{self.files:05d}.parquet", self.files + 1
        return {"cdc": self._file(name, rows, partition) | {"dataChange": False}}

    def remove(self, added: dict[str, Any], *, data_change: bool = True) -> dict[str, Any]:
        kept = {k: v for k, v in added["add"].items() if k in ("path", "partitionValues", "size", "deletionVector")}
        return {"remove": {**kept, "deletionTimestamp": 1, "dataChange": data_change, "extendedFileMetadata": True}}

    def with_vector(self, added: dict[str, Any], rows: Sequence[int], *, inline: bool = False) -> dict[str, Any]:
        """The same file without these rows."""
        payload = _MAGIC + bytes(BitMap64(rows).serialize())
        if inline:
            found = {"storageType": "i", "pathOrInlineDv": z85(payload), "sizeInBytes": len(payload)}
        else:
            name = uuid.uuid4()
            body = b"\1" + struct.pack(">I", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))
            (self.path / f"deletion_vector_{name}.bin").write_bytes(body)
            found = {"storageType": "u", "pathOrInlineDv": z85(name.bytes), "offset": 1, "sizeInBytes": len(payload)}
        return {"add": {**added["add"], "deletionVector": {**found, "cardinality": len(rows)}}}

    def _file(self, name: str, rows: pa.Table, partition: dict[str, str | None]) -> dict[str, Any]:
        path = self.path / name
        pq.write_table(rows, path, row_group_size=self.rows_a_group)
        return {
            "path": name, "partitionValues": partition, "size": path.stat().st_size, "modificationTime": self.files,
        }  # fmt: skip


def id_v(ids: Sequence[int], text: str = "text") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"{text} {n}" for n in ids]})
