"""What a Delta log says, as values. Pure: from JSON, or from a row of a checkpoint, to dataclasses."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from spark_ckpt.errors import InvalidInputError

_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_UUID_LENGTH = 20  # of a UUID in Z85


@dataclass(frozen=True)
class Vector:
    """A deletion vector: in a file below the table (at ``offset``), or in the log itself (``inline``)."""

    file: str | None
    inline: bytes | None
    offset: int
    size_bytes: int

    @classmethod
    def of(cls, found: Mapping[str, Any] | None) -> Vector | None:
        if found is None:
            return None
        kind, where, size = found["storageType"], found["pathOrInlineDv"], found["sizeInBytes"]
        if kind == "i":
            return cls(None, z85_decode(where)[:size], 0, size)
        if kind == "u":
            prefix, name = where[:-_UUID_LENGTH], uuid.UUID(bytes=z85_decode(where[-_UUID_LENGTH:]))
            folder = f"{prefix}/" if prefix else ""
            return cls(f"{folder}deletion_vector_{name}.bin", None, found.get("offset") or 0, size)
        raise elsewhere(f"a deletion vector at {where}")


@dataclass(frozen=True)
class DataFile:
    """A file of the table: ``path`` below its folder, ``partition`` by physical column name, as text."""

    path: str
    size_bytes: int
    partition: Mapping[str, str | None]
    modified_ms: int = 0
    vector: Vector | None = None
    data_change: bool = True

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> DataFile:
        path = unquote(found["path"])
        if path.startswith("/") or ":/" in path:
            raise elsewhere(f"the file {path}")
        values = found.get("partitionValues") or {}
        return cls(
            path,
            found.get("size") or 0,
            dict(values),
            found.get("modificationTime") or 0,
            Vector.of(found.get("deletionVector")),
            found.get("dataChange") is not False,
        )

    @property
    def identity(self) -> tuple[str, Vector | None]:
        """What a later action removes."""
        return self.path, self.vector


@dataclass(frozen=True)
class Metadata:
    """Of the table, as a version sets it. ``schema`` is Delta's JSON of it."""

    table: str
    schema: Mapping[str, Any]
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Metadata:
        columns, configuration = found.get("partitionColumns") or (), found.get("configuration") or {}
        return cls(found["id"], json.loads(found["schemaString"]), tuple(columns), dict(configuration))

    @property
    def records_changes(self) -> bool:
        return self.configuration.get("delta.enableChangeDataFeed", "false").lower() == "true"

    @property
    def mapping(self) -> str:
        return self.configuration.get("delta.columnMapping.mode", "none").lower()


@dataclass(frozen=True)
class Protocol:
    """What who reads the table must be able to."""

    reader_version: int
    reader_features: frozenset[str]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Protocol:
        return cls(found["minReaderVersion"], frozenset(found.get("readerFeatures") or ()))


@dataclass(frozen=True)
class Commit:
    """One version: its actions, in their order, and what was noted about it."""

    version: int
    adds: tuple[DataFile, ...] = ()
    removes: tuple[DataFile, ...] = ()
    changes: tuple[DataFile, ...] = ()
    """Files of the change data feed."""
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    time_ms: int | None = None
    """Where the table keeps times in its commits."""
    copies_only: bool = False
    """A MERGE that rewrote files and changed no row: it has no rows in a change data feed."""

    @classmethod
    def of(cls, version: int, actions: Iterable[Mapping[str, Any]]) -> Commit:
        by_kind: dict[str, list[Any]] = {}
        for action in actions:
            for kind, body in action.items():
                by_kind.setdefault(kind, []).append(body)
        info: Mapping[str, Any] = next(iter(by_kind.get("commitInfo", [])), {})
        metadata, protocol = by_kind.get("metaData", [None])[-1], by_kind.get("protocol", [None])[-1]
        adds, removes, changes = (tuple(map(DataFile.of, by_kind.get(kind, ()))) for kind in ("add", "remove", "cdc"))
        return cls(
            version,
            adds,
            removes,
            changes,
            None if metadata is None else Metadata.of(metadata),
            None if protocol is None else Protocol.of(protocol),
            info.get("inCommitTimestamp"),
            _copies_only(info),
        )


def _copies_only(info: Mapping[str, Any]) -> bool:
    metrics = info.get("operationMetrics") or {}
    counts = [metrics.get(f"numTargetRows{what}") for what in ("Inserted", "Updated", "Deleted")]
    return info.get("operation") == "MERGE" and counts == ["0", "0", "0"]


def z85_decode(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(bytes.maketrans(_Z85, _B85)))


def elsewhere(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"source 'delta': expected files below the table's own folder, found {what}: the table is a shallow clone or "
        "was imported in place, which this source does not read; stream the table it was cloned from, or a deep clone"
    )
