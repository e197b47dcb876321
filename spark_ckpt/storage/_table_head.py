"""The newest version of a state table and what it holds, found without replaying the Delta log."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_ckpt import clock
from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.names import is_plain_file
from spark_ckpt.protocol import codec
from spark_ckpt.storage import _delta_log as delta_log
from spark_ckpt.storage._delta_log import DeltaLog, LogCommit
from spark_ckpt.storage.content import FileEntry, TableContent, changed_files, content_to_json
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.record_store import RecordStore

OWN = "_ckpt"
"""Below the table's folder: content files. Delta readers and VACUUM pass over names with an underscore."""

LOG_CHECKPOINT_VERSIONS = 20
"""After this many versions the Delta log gets a checkpoint."""


@dataclass(frozen=True)
class Writer:
    """Who wrote a version, and for which checkpoint."""

    app_id: str
    checkpoint: int
    generation: int


@dataclass(frozen=True)
class _Details:
    """What a commit of ours says of itself: the fields of :class:`Writer`, and the names of two content files."""

    app_id: str
    checkpoint: int
    generation: int
    content: str
    previous: str | None


@dataclass(frozen=True)
class _Content:
    """What a content file says."""

    schema: str
    content: Mapping[str, FileEntry]


@dataclass(frozen=True)
class Head:
    """The newest version, what it holds, and who wrote that.

    ``record`` is its content file; ``previous`` that of the version before.
    """

    version: int
    content: Mapping[str, FileEntry]
    schema: str
    writer: Writer
    record: str
    previous: str | None


class HeadLog:
    """Reads a table's head and puts the next version on top of it. Driver.

    Each of our commits names a content file, so that reading the head costs one small file and not the log.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._records = RecordStore(folder.url, folder.storage_options, folder.retry)
        self._known: Head | None = None
        self.log = DeltaLog(folder)

    @property
    def known(self) -> Head | None:
        """The head as this object last read or wrote it."""
        return self._known

    def read(self) -> Head | None:
        """The head, or None if there is no table. Foreign commits that change no files are passed over.

        Raises ``CorruptStorageError`` if somebody else changed the table's files, or a content file is gone.
        """
        while True:
            newest = self.log.newest(self._known.version if self._known else None)
            if self._known and (newest is None or newest < self._known.version):
                self.require(None if newest is None else replace(self._known, version=newest), self._known.version)
            if newest is None:
                return None
            head = self._read_at(newest)
            if head is not None:
                self._known = head
                return head

    def require(self, head: Head | None, recorded: int) -> None:
        """Raise ``CorruptStorageError`` if commits up to version ``recorded``, or up to ``head``, are missing.

        Otherwise the next commit would take a version that a checkpoint recorded, and make it mean something else.
        """
        newest = max(recorded, head.version if head else -1)
        missing = self.log.gap(newest) if head is None or recorded <= head.version else head.version + 1
        if missing is not None:
            raise CorruptStorageError(
                f"{self._folder.shown(delta_log.commit_name(missing))} is missing: expected the log of the state table"
                f" to go on to version {newest}. Put it back, or start the query again: the table's log then begins"
                " anew."
            )

    def begin_again(
        self, schema: str, writer: Writer, definition: Sequence[Mapping[str, Any]], recorded: int = 0
    ) -> Head:
        """An empty table in place of one whose head cannot be read. The next commit adds what the job's state is."""
        record = self._write_content({}, schema)
        details = {**vars(writer), "content": record, "previous": None}
        version = self.log.begin_again(
            [delta_log.commit_info_action("CREATE TABLE", details, clock.now_ms())], definition, recorded
        )
        self._known = Head(version, {}, schema, writer, record, None)
        return self._known

    def put(
        self,
        head: Head | None,
        content: TableContent,
        schema: str,
        writer: Writer,
        actions: Sequence[Mapping[str, Any]] = (),
    ) -> Head | None:
        """Put the version that turns ``head`` into ``content``; None if somebody else took that version first.

        ``actions`` (a new protocol or schema) go ahead of the file actions.
        """
        record = self._write_content(content, schema)
        details = {**vars(writer), "content": record, "previous": head.record if head else None}
        version = head.version + 1 if head else 0
        # A crash before the put leaves a content file, and perhaps a vector file, that nobody names: gc removes them.
        if not self.log.put(version, _commit(head, content, details, writer, actions)):
            self._folder.remove(f"{OWN}/{record}")
            return None
        # The version is there. What a crash from here on leaves undone only costs space and readers' time.
        self._known = Head(version, content, schema, writer, record, details["previous"])
        if head and head.previous:
            self._folder.remove(f"{OWN}/{head.previous}")
        if version and version % LOG_CHECKPOINT_VERSIONS == 0:
            self.log.checkpoint()
        return self._known

    def _read_at(self, newest: int) -> Head | None:
        """The head if ``newest`` is the newest version; None if a newer one came meanwhile."""
        for version in range(newest, -1, -1):
            if self._known and version == self._known.version:
                return replace(self._known, version=newest)
            commit = self.log.read(version)
            details = delta_log.own_details(commit) if commit else None
            if commit is None or (details is None and commit.changes_files):
                raise self._foreign(version, commit)
            if details is not None:
                return self._own(newest, version, details)
        raise self._foreign(0, None)

    def _own(self, newest: int, version: int, details: Mapping[str, Any]) -> Head | None:
        said = self._checked(version, details)
        name = f"{OWN}/{said.content}"
        body = self._records.read(name, "content")
        if body is None:
            if self.log.newest(newest) != newest:
                return None  # a newer commit tidied the file up
            raise CorruptStorageError(
                f"{self._folder.shown(name)} is missing: expected it because version {version} of the state table names"
                f" it. Put it back, or start the query again: the table's log then begins anew."
            )
        held = codec.read(_Content, body, self._folder.shown(name))
        writer = Writer(said.app_id, said.checkpoint, said.generation)
        return Head(newest, held.content, held.schema, writer, said.content, said.previous)

    def _checked(self, version: int, details: Mapping[str, Any]) -> _Details:
        """Who may write the log may say anything. A name with a folder in it would be read, and removed, elsewhere."""
        shown = self._folder.shown(delta_log.commit_name(version))
        said = codec.read(_Details, details, shown)
        if not is_plain_file(said.content) or not (said.previous is None or is_plain_file(said.previous)):
            raise CorruptStorageError(
                f"{shown} names {codec.shown([said.content, said.previous])}: expected files of the table's own folder."
                f" Start the query again: the table's log then begins anew."
            )
        return said

    def _write_content(self, content: TableContent, schema: str) -> str:
        name = f"content-{uuid.uuid4().hex}.json"
        self._records.create(f"{OWN}/{name}", "content", {"schema": schema, "content": content_to_json(content)})
        return name

    def _foreign(self, version: int, commit: LogCommit | None) -> CorruptStorageError:
        found = "changes to its files by another writer" if commit else "no commit"
        return CorruptStorageError(
            f"State table {self._folder.shown('')} was written by someone else: expected that only this library changes"
            f" its files, found {found} at version {version}. Start the query again: the table's log"
            f" then begins anew; and do not run OPTIMIZE, VACUUM, DELETE or other writes on state tables."
        )


def _commit(
    head: Head | None,
    content: TableContent,
    details: Mapping[str, Any],
    writer: Writer,
    actions: Sequence[Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
    """The actions of the version that turns ``head`` into ``content``."""
    before, now_ms = head.content if head else {}, clock.now_ms()
    lost, gained = changed_files(before, content)
    return [
        delta_log.commit_info_action("CHECKPOINT" if head else "CREATE TABLE", details, now_ms),
        *actions,
        delta_log.transaction_action(writer.app_id, writer.checkpoint, now_ms),
        *(delta_log.remove_action(file, before[file], now_ms) for file in lost),
        *(delta_log.add_action(file, content[file], now_ms) for file in gained),
    ]
