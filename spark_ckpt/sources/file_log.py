"""The discovery log: which files the ``files`` source knows, in the order in which it found them.

A file's place in the log is its ordinal, and an offset is a position in the log, so the log is what gives an offset its
meaning: append-only, one record a discovery, created if absent. Records are named by the ordinal of their first
file. Of two drivers that discover at the same time one wins each record and the other takes it over, so all agree on
every ordinal.

No other file says what a record does, so each has a copy, and one that is lost costs nothing. A compacted record needs
none: what it was made of stays until the next one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.redaction import redact_url
from spark_ckpt.sources._file_listing import FileEntry
from spark_ckpt.storage.record_store import Exists, RecordStore

FOLDER, COPIES = "files", "copies"
COMPACT_AFTER = 100
KIND = "discovered_files"
_COMPACT = "upto-"

_logger = logging.getLogger(__name__)


class DiscoveryLog:
    """Driver. Everything is loaded once; later only what is appended."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._ordinals: dict[str, int] = {}
        self.entries: list[FileEntry] = []
        self._compacted = 0  # files in the newest compacted record
        self._singles = 0  # records behind it
        self._uncopied: str | None = None
        self._load()

    def __len__(self) -> int:
        return len(self.entries)

    def find(self, path: str) -> FileEntry | None:
        ordinal = self._ordinals.get(path)
        return None if ordinal is None else self.entries[ordinal]

    def require(self, count: int) -> None:
        """Make sure that the first ``count`` files, which an offset counts, are known.

        Raises ``CorruptStorageError`` if the log ends before.
        """
        if count > len(self.entries):
            self._load()  # another process may have appended
        if count > len(self.entries):
            raise CorruptStorageError(
                f"the log of discovered files in {redact_url(self._store.url)}/{FOLDER} ends too early: expected at "
                f"least {count} files, which a source offset counts, found {len(self.entries)}. {self._way_out()}"
            )

    def append(self, files: Sequence[FileEntry]) -> None:
        """Add those of ``files`` that are not there yet, in their order."""
        self._copy_last()
        while fresh := [file for file in files if file.path not in self._ordinals]:
            name, rows = _name(len(self.entries)), [[f.path, f.size, f.mtime_us, f.etag] for f in fresh]
            answer = self._store.create(f"{FOLDER}/{name}", KIND, {"first": len(self.entries), "files": rows})
            # Stopped here: the record stands, and the next process that appends makes its copy.
            # Exists: another driver of this job discovered at the same time. Its record stands.
            body = answer.body if isinstance(answer, Exists) else {"first": len(self.entries), "files": rows}
            self._copy(name, body)
            self._absorb(body)
            self._singles += 1

    def _copy_last(self) -> None:
        """What whoever wrote it did not come to."""
        name, self._uncopied = self._uncopied, None
        body = None if name is None else self._store.read(f"{FOLDER}/{name}", KIND)
        if name is not None and body is not None:
            self._copy(name, body)

    def _copy(self, name: str, body: Mapping[str, Any]) -> None:
        """Only after the record: of two drivers' records one counts, and it is that one's copy."""
        # Not synced: a copy that a power loss takes is not needed, as the record is.
        self._store.replace(f"{COPIES}/{name}", KIND, body, durable=False)

    def records_upto(self, count: int) -> list[str]:
        """Names of the records, relative to the metadata folder, that hold the first ``count`` files."""
        found = []
        for name in self._relevant(self._store.names(FOLDER)):
            if name.startswith(_COMPACT) or _number(name) < count:
                found.append(f"{FOLDER}/{name}")
        return found if count else []

    def compact(self) -> None:
        """Once many small records have come together, put everything into one, so that a restart reads few.

        Driver. Removes only what the compaction before this one made superfluous: a savepoint may be copying the
        rest at this moment. A crash in between leaves records that nobody reads and the next compaction removes.
        """
        if self._singles < max(COMPACT_AFTER, len(self.entries) // 100):
            return
        rows = [[f.path, f.size, f.mtime_us, f.etag] for f in self.entries]
        self._store.replace(f"{FOLDER}/{_COMPACT}{len(rows):010d}.json", KIND, {"first": 0, "files": rows})
        for folder in (FOLDER, COPIES):
            for name in self._store.names(folder):
                if _number(name) < self._compacted:
                    self._store.delete(f"{folder}/{name}")
        self._compacted, self._singles = len(rows), 0

    def _load(self) -> None:
        names, copies = self._store.names(FOLDER), self._store.names(COPIES)
        self._load_compacted(name for name in reversed(names) if name.startswith(_COMPACT))
        singles = sorted(name for name in {*names, *copies} if not name.startswith(_COMPACT))
        for name in singles:
            if _number(name) >= len(self.entries):
                self._absorb(self._single(name))
                self._singles += 1
        if singles and singles[-1] not in copies:
            self._uncopied = singles[-1]

    def _load_compacted(self, newest_first: Iterable[str]) -> None:
        """The newest that is whole. Behind an older one, all that the newer was made of is still there."""
        for name in newest_first:
            if _number(name) <= len(self.entries):
                return
            body = self._whole(f"{FOLDER}/{name}")
            if body is not None:
                self._absorb(body)
                self._compacted, self._singles = _number(name), 0
                return

    def _single(self, name: str) -> Mapping[str, Any]:
        body = self._whole(f"{FOLDER}/{name}") or self._whole(f"{COPIES}/{name}")
        if body is None:
            raise CorruptStorageError(
                f"the log of discovered files in {redact_url(self._store.url)}/{FOLDER} is damaged: expected the "
                f"record {name} or its copy in {COPIES}, found neither whole. {self._way_out()}"
            )
        return body

    def _whole(self, path: str) -> Mapping[str, Any] | None:
        try:
            return self._store.read(path, KIND)
        except CorruptStorageError as damage:
            _logger.warning("Passed over: %s", str(damage).split(";")[0])
            return None

    def _way_out(self) -> str:
        """Followed literally, it works."""
        return (
            f"Put back good copies. If there are none: in {redact_url(self._store.url)} remove from {FOLDER} and "
            f"{COPIES} every file whose number is {len(self.entries)} or more; then set spark.ckpt.restore=<id> of a "
            "checkpoint that does not count these files (this message comes again if it does), or to none, to begin "
            "from nothing, and a new, empty checkpointLocation; what later checkpoints committed is then written once "
            "more (to sinks that append: twice)"
        )

    def _relevant(self, names: Sequence[str]) -> list[str]:
        """The newest compacted record, if any, and those behind it, in order."""
        compacted = max((name for name in names if name.startswith(_COMPACT)), default="")
        first = _number(compacted) if compacted else 0
        single = sorted(name for name in names if not name.startswith(_COMPACT) and _number(name) >= first)
        return [compacted, *single] if compacted else single

    def _absorb(self, body: Mapping[str, Any]) -> None:
        known = len(self.entries)
        if body["first"] > known:
            raise CorruptStorageError(
                f"the log of discovered files in {redact_url(self._store.url)}/{FOLDER} has a gap: expected a record "
                f"that begins with file {known}, found {body['first']}. {self._way_out()}"
            )
        for path, size, mtime_us, etag in body["files"][known - body["first"] :]:
            self._ordinals.setdefault(path, len(self.entries))
            self.entries.append(FileEntry(path, size, mtime_us, etag))


def is_record(name: str) -> bool:
    """Whether a file's name is that of a record of the log."""
    return re.fullmatch(rf"({_COMPACT})?\d{{10}}\.json", name) is not None


def _name(first: int) -> str:
    return f"{first:010d}.json"


def _number(name: str) -> int:
    """Of a record: its first file's ordinal; of a compacted one: how many files it holds."""
    return int(name.removeprefix(_COMPACT).split(".")[0])
