"""The state of one operator as a Delta table whose recorded version is exactly the state at a checkpoint.

A checkpoint adds files and kills rows by deletion vectors in one Delta version. The table's *content* (every file, its
dead rows) is kept beside the log, so that a commit costs what changed and not the table.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from spark_ckpt.errors import CorruptStorageError, FencedError, InvalidInputError, TopologyError
from spark_ckpt.protocol.events import Flushed, GroupManifest
from spark_ckpt.storage import delta_log, savepoint_files
from spark_ckpt.storage.content import (
    FileEntry,
    Plan,
    TableContent,
    adopt_vectors,
    changed_files,
    check_live_rows,
    content_from_json,
    content_to_json,
    named_files,
    plan_content,
    with_dead,
)
from spark_ckpt.storage.deletion_vectors import read_vector, vector_payload, write_vectors
from spark_ckpt.storage.delta_log import DeltaLog
from spark_ckpt.storage.delta_schema import from_delta_schema, to_delta_schema
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.record_store import RecordStore

LOG_CHECKPOINT_VERSIONS = 20
"""After this many versions the Delta log gets a checkpoint."""

_OWN = "_ckpt"
_CONFIGURATION = {
    "delta.enableDeletionVectors": "true",
    # Removed files are named in every log checkpoint for this long; a checkpoint every few seconds makes many.
    "delta.deletedFileRetentionDuration": "interval 1 days",
}


@dataclass(frozen=True)
class TableCommit:
    """The Delta version that is exactly the state at a checkpoint, and what it holds."""

    version: int
    content: TableContent


@dataclass(frozen=True)
class _Head:
    version: int
    content: dict[str, FileEntry]
    schema: str
    details: dict[str, Any]


class StateTable:
    """One operator's state table. Driver; one writer at a time, and a writer of an older generation is fenced.

    Keep one object over many commits where possible: it remembers the head and saves reading it.
    """

    def __init__(self, url: str, uid: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.uid = uid
        self.folder = Folder(url, storage_options)
        self._log = DeltaLog(self.folder)
        self._records = RecordStore(url, storage_options)
        self._known: _Head | None = None

    @property
    def url(self) -> str:
        return self.folder.url

    def create_if_absent(self, schema: pa.Schema, description: str, replace: bool = False) -> None:
        """Make the table with version 0, empty. Driver, at start; again after each restart.

        Raises ``InvalidInputError`` for a schema that cannot be stored, and ``TopologyError`` if the table exists with
        another schema, unless ``replace`` (an explicit fresh start): then a new, empty version gets the new schema.
        """
        wanted = to_delta_schema(schema)
        head = self._read_head()
        while head is None:
            if self._write_first(schema, wanted, description):
                return
            head = self._read_head()
        if head.schema == wanted:
            return
        if not replace:
            raise TopologyError(
                f"The state of {self.uid!r} changed its columns: expected {_columns(head.schema)} as stored in"
                f" {self.folder.shown('')}, found {_columns(wanted)}. Give the changed operator a new uid, or start"
                f" fresh (spark.ckpt.restore=none)."
            )
        now_ms = _now_ms()
        extra = [
            delta_log.protocol_action(schema, deletion_vectors=True),
            delta_log.metadata_action(schema, description, _CONFIGURATION, now_ms),
        ]
        details = {"app_id": head.details["app_id"], "checkpoint": head.details["checkpoint"]}
        details["generation"] = head.details["generation"]
        self._publish(head, {}, wanted, details, "REPLACE TABLE", extra)

    def commit(
        self,
        app_id: str,
        checkpoint: int,
        base: TableContent | None,
        flushed: Sequence[Flushed],
        groups: Mapping[int, GroupManifest],
        generation: int = 0,
    ) -> TableCommit:
        """Make one version that is the state at ``checkpoint``. Driver; again with the same checkpoint after a crash.

        ``base`` is the content at the checkpoint that ``flushed`` builds on (None: empty). Whatever the head holds
        (an earlier attempt at this checkpoint, checkpoints behind a restored one), the new version holds ``base`` and
        ``flushed``, minus files that no run of ``groups`` names. If the head already is that, nothing is written.
        Costs what changed: vectors of untouched files are neither read nor written.

        Raises ``ProtocolBugError`` if rows and keys do not add up (nothing is written), ``FencedError`` if a newer
        generation, or this one with a newer checkpoint, wrote the head, and ``CorruptStorageError`` if somebody
        else changed the table's files.
        """
        plan = plan_content(base, flushed, groups)
        entries, payloads = self._kill_rows(plan)
        check_live_rows(entries, groups)
        details = {"app_id": app_id, "checkpoint": checkpoint, "generation": generation}
        while True:
            head = self._head()
            self._check_not_fenced(head, generation, checkpoint)
            wanted = adopt_vectors(entries, head.content)
            same = (head.details["app_id"], head.details["checkpoint"]) == (app_id, checkpoint)
            if same and wanted == head.content:
                return TableCommit(head.version, head.content)
            # A crash before the put leaves a vector file and a content file that nobody names: gc removes them.
            stored = self._store_vectors(wanted, payloads)
            written = self._publish(head, stored, head.schema, details, "CHECKPOINT", [])
            if written:
                return written

    def rollback(self, app_id: str, checkpoint: int, content: TableContent) -> TableCommit:
        """Make the head hold ``content`` of a completed checkpoint again. Only while the job is stopped.

        For gc after a crash between a state commit and its completion record: the head then names files that no
        manifest does. Does nothing if the head already holds it.
        """
        details = {"app_id": app_id, "checkpoint": checkpoint, "generation": self._head().details["generation"]}
        while True:
            head = self._head()
            if head.content == dict(content):
                return TableCommit(head.version, head.content)
            written = self._publish(head, dict(content), head.schema, details, "ROLLBACK", [])
            if written:
                return written

    def schema(self) -> pa.Schema:
        """The table's columns as they are stored."""
        return from_delta_schema(self._head().schema)

    def head(self) -> TableCommit:
        """The newest version and what it holds; of no meaning to recovery, which goes by manifests."""
        head = self._head()
        return TableCommit(head.version, head.content)

    def remove(self, names: Sequence[str]) -> None:
        """Remove files of the table folder by name. Idempotent. The caller knows that nobody needs them."""
        for name in names:
            self.folder.remove(name)

    def trim_log(self, oldest_version: int) -> list[str]:
        """Remove log files that no version from ``oldest_version`` on needs, so that the log stays short."""
        return self._log.trim(oldest_version)

    def gc(self, live: set[str], min_age_s: float = 0.0) -> list[str]:
        """Remove state, vector and content files that nobody names; returns their names. Only while the job is stopped.

        ``live`` is what retained checkpoints name (:func:`~spark_ckpt.storage.content.named_files`); what the table's
        head names stays too. Files younger than ``min_age_s`` stay. Idempotent.
        """
        self.folder.remove_temporaries()
        head = self._read_head()
        keep = live | (named_files(head.content, {}) | {f"{_OWN}/{head.details['content']}"} if head else set())
        found = [n for n in self.folder.names() if n.endswith((".parquet", ".bin"))]
        found += [f"{_OWN}/{n}" for n in self.folder.names(_OWN)]
        oldest = time.time() - min_age_s
        removed = [n for n in found if n not in keep and (not min_age_s or self.folder.modified_s(n) <= oldest)]
        self.remove(removed)
        return removed

    def export_savepoint(
        self,
        content: TableContent,
        groups: Mapping[int, GroupManifest],
        target_url: str,
        storage_options: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, FileEntry], dict[int, GroupManifest]]:
        """Copy the state at a checkpoint into ``<target_url>/state/<uid>/`` as a plain Delta table; see ``savepoint_files``."""
        target = Folder(f"{target_url}/state/{self.uid}", storage_options or self.folder.storage_options)
        return savepoint_files.export(self.folder, content, groups, target, self.schema())

    def import_state(
        self,
        source_url: str,
        content: TableContent,
        groups: Mapping[int, GroupManifest],
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Bring the files of ``content`` from the state table folder ``source_url`` into this one's; see ``savepoint_files``."""
        source = Folder(source_url, storage_options or self.folder.storage_options)
        savepoint_files.bring(source, named_files(content, groups), self.folder)

    def _kill_rows(self, plan: Plan) -> tuple[dict[str, FileEntry], dict[str, bytes]]:
        entries, payloads = dict(plan.entries), {}
        for file, rows in plan.newly_dead.items():
            entry = entries[file]
            if entry.dead == entry.rows:
                continue
            dead = rows | read_vector(self.folder, entry.dv) if entry.dv else rows
            payloads[file] = vector_payload(dead)
            entries[file] = with_dead(file, entry, dead, payloads[file])
        return entries, payloads

    def _store_vectors(self, wanted: Mapping[str, FileEntry], payloads: Mapping[str, bytes]) -> dict[str, FileEntry]:
        unstored = {file: entry for file, entry in wanted.items() if entry.dv and not entry.dv.file}
        stored = dict(wanted)
        if unstored:
            name, offsets = write_vectors(self.folder, {file: payloads[file] for file in unstored})
            for file, entry in unstored.items():
                assert entry.dv is not None
                stored[file] = replace(entry, dv=replace(entry.dv, file=name, offset=offsets[file]))
        return stored

    def _publish(
        self,
        head: _Head,
        content: dict[str, FileEntry],
        schema: str,
        details: Mapping[str, Any],
        operation: str,
        extra: Sequence[Mapping[str, Any]],
    ) -> TableCommit | None:
        """Turn ``head`` into ``content`` by one version; None if somebody else took that version first."""
        now_ms = _now_ms()
        details = {**details, "content": self._write_content(content, schema), "previous": head.details["content"]}
        lost, gained = changed_files(head.content, content)
        actions = [
            delta_log.commit_info_action(operation, details, now_ms),
            *extra,
            delta_log.transaction_action(details["app_id"], details["checkpoint"], now_ms),
            *(delta_log.remove_action(f, head.content[f], now_ms) for f in lost),
            *(delta_log.add_action(f, content[f], now_ms) for f in gained),
        ]
        version = head.version + 1
        if not self._log.put(version, actions):
            return None
        # The version is there: a crash from here on costs only what gc or the next commit tidies up.
        self._known = _Head(version, content, schema, dict(details))
        self.folder.remove(f"{_OWN}/{head.details.get('previous')}")
        if version % LOG_CHECKPOINT_VERSIONS == 0:
            self._log.checkpoint()
        return TableCommit(version, content)

    def _write_content(self, content: TableContent, schema: str) -> str:
        name = f"content-{uuid.uuid4().hex}.json"
        self._records.create(f"{_OWN}/{name}", "content", {"schema": schema, "content": content_to_json(content)})
        return name

    def _write_first(self, schema: pa.Schema, schema_string: str, description: str) -> bool:
        now_ms = _now_ms()
        details = {"app_id": "", "checkpoint": 0, "generation": 0, "content": self._write_content({}, schema_string)}
        actions = [
            delta_log.commit_info_action("CREATE TABLE", details, now_ms),
            delta_log.protocol_action(schema, deletion_vectors=True),
            delta_log.metadata_action(schema, description, _CONFIGURATION, now_ms),
        ]
        return self._log.put(0, actions)

    def _head(self) -> _Head:
        head = self._read_head()
        if head is None:
            raise CorruptStorageError(
                f"There is no state table at {self.folder.shown('')}: expected the one of uid {self.uid!r}, found no"
                f" Delta log. Restore another checkpoint into a new job folder."
            )
        return head

    def _read_head(self) -> _Head | None:
        """The newest version, with the content our newest commit says; foreign commits may only change no files."""
        newest = self._log.newest(self._known.version if self._known else None)
        if newest is None:
            return None
        for version in range(newest, -1, -1):
            if self._known and version == self._known.version:
                self._known = replace(self._known, version=newest)
                return self._known
            commit = self._log.read(version)
            details = delta_log.own_details(commit) if commit else None
            if commit is None or (details is None and commit.changes_files):
                raise self._foreign(version, "nothing" if commit is None else "somebody else's changes to its files")
            if details is not None:
                body = self._records.read(f"{_OWN}/{details['content']}", "content")
                if body is None:
                    if self._log.newest() != newest:
                        return self._read_head()  # a newer commit tidied up meanwhile
                    raise self._foreign(version, f"no file {_OWN}/{details['content']}")
                self._known = _Head(newest, content_from_json(body["content"]), body["schema"], details)
                return self._known
        raise self._foreign(0, "no commit of this library")

    def _foreign(self, version: int, found: str) -> CorruptStorageError:
        return CorruptStorageError(
            f"State table {self.folder.shown('')} was written by someone else: expected only commits of this library to"
            f" change its files, found {found} at version {version}. Undo that (Delta RESTORE does not help), or"
            f" restore a checkpoint into a new job folder; do not run OPTIMIZE, VACUUM or writes on state tables."
        )

    def _check_not_fenced(self, head: _Head, generation: int, checkpoint: int) -> None:
        theirs = (head.details["generation"], head.details["checkpoint"])
        if theirs > (generation, checkpoint):
            raise FencedError(
                f"State table {self.folder.shown('')} was written by a newer attempt: expected at most generation"
                f" {generation}, checkpoint {checkpoint}, found {theirs[0]}, {theirs[1]}. Stop this query."
            )


def _columns(schema_string: str) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in from_delta_schema(schema_string))


def _now_ms() -> int:
    return int(time.time() * 1000)


__all__ = ["FileEntry", "InvalidInputError", "StateTable", "TableCommit", "TableContent"]
