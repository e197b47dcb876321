"""Manifest records: one operator's state at one checkpoint, ``manifests/<uid>/<K>-<token>.json`` of the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_ckpt.errors import RESTORE_ANOTHER, CorruptStorageError
from spark_ckpt.names import is_plain_file
from spark_ckpt.protocol import codec
from spark_ckpt.protocol.events import GroupManifest, groups_from_json, groups_to_json
from spark_ckpt.storage.content import TableContent, content_from_json, content_to_json, named_files, run_files
from spark_ckpt.storage.job_paths import JobPaths
from spark_ckpt.storage.record_store import RecordStore

_KIND = "manifest"


@dataclass(frozen=True)
class StateManifest:
    """An operator's state at a checkpoint. ``schema`` is the Delta schema string of its table's columns."""

    uid: str
    checkpoint: int
    table_version: int
    schema: str
    content: TableContent
    groups: Mapping[int, GroupManifest]

    @property
    def files(self) -> set[str]:
        """Every file in the state table's folder that this manifest needs."""
        return named_files(self.content)

    @property
    def keys(self) -> int:
        return sum(group.keys for group in self.groups.values())

    @property
    def size_bytes(self) -> int:
        """Size of its state files, dead rows included."""
        return sum(entry.size_bytes for entry in self.content.values())


@dataclass(frozen=True)
class _Plain:
    """Of a manifest's record, what is not read by others."""

    uid: str
    checkpoint: int
    table_version: int
    schema: str


def write_manifest(store: RecordStore, manifest: StateManifest, token: str) -> str:
    """Write the manifest and return its path, which the completion record names. Driver.

    ``token`` tells attempts apart: two attempts at one checkpoint never share a file.
    """
    path = JobPaths.manifest(manifest.uid, manifest.checkpoint, token)
    body = {
        "uid": manifest.uid,
        "checkpoint": manifest.checkpoint,
        "table_version": manifest.table_version,
        "schema": manifest.schema,
        "content": content_to_json(manifest.content),
        "groups": groups_to_json(manifest.groups),
    }
    # Whatever is there: an attempt that was stopped left it, perhaps half of it, and nobody names it.
    store.replace(path, _KIND, body)
    return path


def read_manifest(store: RecordStore, path: str) -> StateManifest:
    """The manifest at ``path``. Raises ``CorruptStorageError`` if it is missing or damaged."""
    body = store.read(path, _KIND)
    if body is None:
        raise CorruptStorageError(
            f"Manifest {path} is missing: expected it because a completion record names it; {RESTORE_ANOTHER}."
        )
    plain = codec.read(_Plain, {name: value for name, value in body.items() if name not in ("content", "groups")}, path)
    manifest = StateManifest(
        plain.uid,
        plain.checkpoint,
        plain.table_version,
        plain.schema,
        content_from_json(body.get("content"), path),
        groups_from_json(body.get("groups"), path),
    )
    for name in (manifest.uid, *manifest.files, *run_files(manifest.groups)):
        if not is_plain_file(name):
            raise CorruptStorageError(
                f"Manifest {path} names {name!r}: expected files of its own folder. Do not use what it belongs to."
            )
    return manifest
