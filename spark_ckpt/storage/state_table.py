"""The state of one operator as a Delta table whose recorded version is exactly the state at a checkpoint.

A checkpoint adds files and kills rows by deletion vectors in one Delta version. What a version holds is kept beside
the log too (:mod:`spark_ckpt.storage._table_head`), so that a commit costs what changed and not the table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from spark_ckpt import clock
from spark_ckpt.errors import CorruptStorageError, FencedError, TopologyError
from spark_ckpt.protocol.events import Flushed, GroupManifest
from spark_ckpt.storage import _delta_log as delta_log
from spark_ckpt.storage import _savepoint_files as savepoint_files
from spark_ckpt.storage._table_head import OWN, Head, HeadLog, Writer
from spark_ckpt.storage.content import (
    FileEntry,
    Plan,
    TableContent,
    check_live_rows,
    keep_vectors,
    named_files,
    plan_content,
    with_dead,
)
from spark_ckpt.storage.deletion_vectors import read_vector, vector_payload, write_vectors
from spark_ckpt.storage.delta_schema import describe_columns, from_delta_schema, to_delta_schema
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.job_paths import JobPaths
from spark_ckpt.storage.retry import Retry

_logger = logging.getLogger(__name__)

_CONFIGURATION = {
    "delta.enableDeletionVectors": "true",
    # Removed files are named in every log checkpoint for this long, and a checkpoint every few seconds removes many.
    # For VACUUM, which here has nothing to do: the job removes its files itself.
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}


@dataclass(frozen=True)
class TableCommit:
    """The Delta version that is exactly the state at a checkpoint, and what it holds."""

    version: int
    content: TableContent


class StateTable:
    """One operator's state table. Driver; one writer at a time, and a writer of an older generation is fenced.

    Keep one object over many commits where possible: it remembers the head, which saves reading it.
    """

    def __init__(
        self, url: str, uid: str, storage_options: Mapping[str, Any] | None = None, retry: Retry | None = None
    ) -> None:
        self.uid = uid
        self.folder = Folder(url, storage_options, retry)
        self._heads = HeadLog(self.folder)

    @property
    def url(self) -> str:
        return self.folder.url

    def create_if_absent(
        self, schema: pa.Schema, description: str, reset: bool = False, recorded: int = -1, keep: bool = False
    ) -> None:
        """Make the table with version 0, empty. Driver, at start; again at each restart.

        ``reset`` is for an explicit fresh start only: a table with another schema gets a new, empty version with this
        one. ``keep`` is for columns that came or went: the new version has other columns and the same files, where a
        missing column is null to readers. ``recorded`` is the newest version that a checkpoint names. Raises
        ``InvalidInputError`` for a schema that cannot be stored, ``TopologyError`` if the table has another schema.
        """
        wanted = to_delta_schema(schema)
        now_ms = clock.now_ms()
        definition = [
            delta_log.protocol_action(schema, deletion_vectors=True),
            delta_log.metadata_action(schema, description, _CONFIGURATION, now_ms),
        ]
        try:
            head = self._heads.read()
            self._heads.require(head, recorded)
        except CorruptStorageError as damage:
            # A start goes by manifests; the log is for readers. Its files stay, for the manifests that name them.
            _logger.warning("The log of state table %s begins anew with the next checkpoint: %s", self.uid, damage)
            head = self._heads.begin_again(wanted, Writer(self.uid, 0, 0), definition, recorded)
        while head is None or head.schema != wanted:
            if head is not None and not (reset or keep):
                raise TopologyError(
                    f"The columns of the state of {self.uid!r} changed: expected {describe_columns(head.schema)}, as"
                    f" stored, found {describe_columns(wanted)}. Give the changed operator a new uid, or start fresh"
                    f" (spark.ckpt.restore=none)."
                )
            writer = head.writer if head else Writer(self.uid, 0, 0)
            content = head.content if head is not None and keep and not reset else {}
            head = self._heads.put(head, content, wanted, writer, definition) or self._heads.read()

    def commit(
        self,
        app_id: str,
        checkpoint: int,
        base: TableContent | None,
        flushed: Iterable[Flushed],
        groups: Mapping[int, GroupManifest],
        generation: int = 0,
    ) -> TableCommit:
        """Make one version that is the state at ``checkpoint``. Driver; again with the same checkpoint after a crash.

        ``base`` is the content at the checkpoint that ``flushed`` builds on (None: empty). Whatever the head holds
        (an earlier attempt at this checkpoint, or checkpoints behind a restored one), the new version holds ``base``
        and ``flushed``, minus dead rows and files that no run of ``groups`` names. If the head is that already,
        nothing is written. Costs what changed: vectors of untouched files are neither read nor written.

        Raises ``ProtocolBugError`` if rows and keys do not add up (nothing is written then), ``FencedError`` if the
        head is of a newer generation, or of this one and a newer checkpoint, and ``CorruptStorageError`` if somebody
        else changed the table's files.
        """
        entries, payloads = self._kill_rows(plan_content(base, flushed, groups))
        check_live_rows(entries, groups)
        return self._publish(Writer(app_id, checkpoint, generation), entries, payloads, fenced=True)

    def rollback(self, app_id: str, checkpoint: int, content: TableContent) -> TableCommit:
        """Make the head hold ``content`` of a completed checkpoint again. Only while the job is stopped.

        For gc after a crash between a state commit and its completion record: the head then names files that no
        manifest does. Writes nothing if the head holds it already.
        """
        head = self._head()
        if dict(head.content) == dict(content):
            return TableCommit(head.version, head.content)
        return self._publish(Writer(app_id, checkpoint, head.writer.generation), content, {}, fenced=False)

    def schema(self, known: bool = False) -> pa.Schema:
        """The table's columns as they are stored; ``known``: as this object last saw or wrote them."""
        head = self._heads.known if known else None
        return from_delta_schema((head or self._head()).schema)

    def head(self) -> TableCommit:
        """The newest version and what it holds. Means nothing to recovery, which goes by manifests."""
        head = self._head()
        return TableCommit(head.version, head.content)

    def require(self, recorded: int) -> None:
        """Raise ``CorruptStorageError`` if the table cannot be read up to version ``recorded``, or its head."""
        self._heads.require(self._heads.read(), recorded)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files of the table folder by name. Idempotent. The caller knows that nobody needs them."""
        for name in names:
            self.folder.remove(name)

    def trim_log(self, oldest_version: int) -> list[str]:
        """Remove log files that no version from ``oldest_version`` on needs, so that the log stays short."""
        return self._heads.log.trim(oldest_version)

    def gc(self, live: Iterable[str], min_age_s: float = 0.0) -> list[str]:
        """Remove state, vector and content files that nobody names; returns their names. Only while the job is stopped.

        ``live`` is what retained checkpoints name (``StateManifest.files``); what the table's head names stays too.
        Files younger than ``min_age_s`` stay. Idempotent.
        """
        self.folder.remove_temporaries()
        head = self._heads.read()
        keep = set(live)
        if head:
            keep |= {f"{OWN}/{head.record}"} | named_files(head.content)
        found = [n for n in self.folder.names() if n.endswith((".parquet", ".bin"))]
        found += [f"{OWN}/{n}" for n in self.folder.names(OWN)]
        oldest_s = time.time() - min_age_s
        removed = [n for n in found if n not in keep and (not min_age_s or self.folder.modified_s(n) <= oldest_s)]
        self.remove(removed)
        return removed

    def export_savepoint(
        self,
        content: TableContent,
        groups: Mapping[int, GroupManifest],
        target_url: str,
        storage_options: Mapping[str, Any] | None = None,
        schema: pa.Schema | None = None,
    ) -> tuple[dict[str, FileEntry], dict[int, GroupManifest]]:
        """Copy the state at a checkpoint into ``<target_url>/state/<uid>/``; returns content and groups of the copy.

        See :func:`spark_ckpt.storage._savepoint_files.export_files`. ``storage_options`` default to the table's,
        and so does ``schema``: an older checkpoint may have other columns than the table has now.
        """
        options = self.folder.storage_options if storage_options is None else storage_options
        target = Folder(JobPaths(target_url).state(self.uid), options, self.folder.retry)
        return savepoint_files.export_files(self.folder, content, groups, target, schema or self.schema())

    def import_state(
        self,
        source_url: str,
        content: TableContent,
        groups: Mapping[int, GroupManifest],
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Bring the files that ``groups`` name from the state table folder ``source_url`` into this one's folder.

        They become part of the table by the next :meth:`commit` with this content as its base, or by
        :meth:`rollback`. See
        :func:`spark_ckpt.storage._savepoint_files.import_files`.
        """
        options = self.folder.storage_options if storage_options is None else storage_options
        needed = plan_content(content, (), groups).entries
        savepoint_files.import_files(Folder(source_url, options), named_files(needed), self.folder)

    def _publish(
        self, writer: Writer, entries: TableContent, payloads: Mapping[str, bytes], fenced: bool
    ) -> TableCommit:
        while True:
            head = self._head()
            if fenced:
                self._check_not_fenced(head.writer, writer)
            wanted = keep_vectors(entries, head.content)
            same = (head.writer.app_id, head.writer.checkpoint) == (writer.app_id, writer.checkpoint)
            if same and wanted == head.content:
                return TableCommit(head.version, head.content)
            written = self._heads.put(head, self._store_vectors(wanted, payloads), head.schema, writer)
            if written:
                return TableCommit(written.version, written.content)

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
        new = {file: entry.dv for file, entry in wanted.items() if entry.dv and not entry.dv.file}
        stored = dict(wanted)
        if new:
            name, offsets = write_vectors(self.folder, {file: payloads[file] for file in new})
            for file, dv in new.items():
                stored[file] = replace(wanted[file], dv=replace(dv, file=name, offset=offsets[file]))
        return stored

    def _head(self) -> Head:
        head = self._heads.read()
        if head is None:
            raise CorruptStorageError(
                f"There is no state table at {self.folder.shown('')}: expected the one of uid {self.uid!r}, found no"
                f" Delta log. Start the query again: the table's log then begins anew."
            )
        return head

    def _check_not_fenced(self, theirs: Writer, ours: Writer) -> None:
        # A newer checkpoint of an older generation is no fence: it was committed here, but never completed.
        if (theirs.generation, theirs.checkpoint) > (ours.generation, ours.checkpoint):
            raise FencedError(
                f"State table {self.folder.shown('')} was written by a newer attempt: expected at most generation"
                f" {ours.generation}, checkpoint {ours.checkpoint}, found generation {theirs.generation}, checkpoint"
                f" {theirs.checkpoint}. Stop this query."
            )


def savepoint_table_files(folder: Folder) -> set[str]:
    """The files that Delta readers see in a savepoint's table. Raises ``CorruptStorageError``."""
    log = delta_log.DeltaLog(folder)
    return set(log.files(log.versions()))


def publish_written(folder: Folder, content: TableContent, schema: pa.Schema) -> None:
    """Make the Delta table in ``folder`` hold ``content``, files that are there without deletion vectors. Driver; again
    after a crash. For the table of a savepoint."""
    savepoint_files.publish(folder, content, schema)
