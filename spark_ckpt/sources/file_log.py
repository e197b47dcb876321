"""The discovery log: which files the ``files`` source knows, in the order in which it found them.

A file's place in the log is its ordinal, and an offset is a position in the log, so the log is what gives an offset its
meaning: append-only, one record a discovery, created if absent. Records are named by the ordinal of their first
file. Of two drivers that discover at the same time one wins each record and the other takes it over, so all agree on
every ordinal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.sources.file_listing import FileEntry
from spark_ckpt.storage.filesystem import redact
from spark_ckpt.storage.record_store import Exists, RecordStore

FOLDER = "files"
COMPACT_AFTER = 100
_KIND = "discovered_files"
_COMPACT = "upto-"


class DiscoveryLog:
    """Driver. Everything is loaded once; later only what is appended."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._ordinals: dict[str, int] = {}
        self.entries: list[FileEntry] = []
        self._compacted = 0  # files in the newest compacted record
        self._singles = 0  # records behind it
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
                f"the log of discovered files in {redact(self._store.url)}/{FOLDER} ends too early: expected at least "
                f"{count} files, which a source offset counts, found {len(self.entries)}. Put the missing records "
                "back, or restore another checkpoint"
            )

    def append(self, files: Sequence[FileEntry]) -> None:
        """Add those of ``files`` that are not there yet, in their order."""
        while fresh := [file for file in files if file.path not in self._ordinals]:
            rows = [[f.path, f.size, f.mtime_us, f.etag] for f in fresh]
            answer = self._store.create(_name(len(self.entries)), _KIND, {"first": len(self.entries), "files": rows})
            # Exists: another driver of this job discovered at the same time. Its record stands.
            self._absorb(answer.body if isinstance(answer, Exists) else {"first": len(self.entries), "files": rows})
            self._singles += 1

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
        self._store.replace(f"{FOLDER}/{_COMPACT}{len(rows):010d}.json", _KIND, {"first": 0, "files": rows})
        for name in self._store.names(FOLDER):
            if _number(name) < self._compacted:
                self._store.delete(f"{FOLDER}/{name}")
        self._compacted, self._singles = len(rows), 0

    def _load(self) -> None:
        for name in self._relevant(self._store.names(FOLDER)):
            compacted = name.startswith(_COMPACT)
            if _number(name) <= len(self.entries) - (0 if compacted else 1):
                continue
            body = self._store.read(f"{FOLDER}/{name}", _KIND)
            if body is not None:
                self._absorb(body)
                self._compacted, self._singles = (
                    (_number(name), 0) if compacted else (self._compacted, self._singles + 1)
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
                f"the log of discovered files in {redact(self._store.url)}/{FOLDER} has a gap: expected a record that "
                f"begins with file {known}, found {body['first']}. Put the missing record back, or restore another "
                "checkpoint"
            )
        for path, size, mtime_us, etag in body["files"][known - body["first"] :]:
            self._ordinals.setdefault(path, len(self.entries))
            self.entries.append(FileEntry(path, size, mtime_us, etag))


def _name(first: int) -> str:
    return f"{FOLDER}/{first:010d}.json"


def _number(name: str) -> int:
    """Of a record: its first file's ordinal; of a compacted one: how many files it holds."""
    return int(name.removeprefix(_COMPACT).split(".")[0])
