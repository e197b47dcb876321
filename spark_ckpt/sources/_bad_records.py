"""What happens to data that a source cannot read: stop, skip, or keep it in a folder."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_ckpt.errors import BadRecordError, writable
from spark_ckpt.sources._file_listing import FileEntry
from spark_ckpt.storage.filesystem import Folder

_log = logging.getLogger("spark_ckpt")
_told: set[tuple[str, str, type]] = set()
"""In this process: jobs and files, and what was told of them."""
_MOST_TOLD = 10_000
FAIL = "fail"
SKIP = "skip"
_SHOWN = 200
_LONGEST_NAME = 200
"""Bytes. File systems take 255; some 30 stand behind it."""


class MalformedFileError(Exception):
    """A file, from some place on, is not what its format asks for. Internal: becomes a :class:`Bad`."""


@dataclass(frozen=True)
class Bad:
    """One piece of bad data: where in its file, what was expected, what is there, and what is wrong with it."""

    place: str
    expected: str
    found: str
    reason: str


@dataclass(frozen=True)
class Unread:
    """So many of ``records`` records had values that do not fit ``columns`` and are null, or were left out (``kept`` is
    false)."""

    count: int
    records: int
    columns: tuple[str, ...]
    kept: bool

    def __str__(self) -> str:
        left_out = "were left out, also where the query does not select what does not fit, and Spark would keep them"
        became = "what does not fit is null" if self.kept else left_out
        return (
            f"of {self.records} record(s) read, {self.count} did not fit the columns ({', '.join(self.columns)}) and "
            f"{became}, as in Spark's mode {'PERMISSIVE' if self.kept else 'DROPMALFORMED'}. A column for corrupt "
            "records in the schema would keep their text; mode=FAILFAST ends the query, and badRecords set to a folder "
            "keeps them there"
        )


@dataclass(frozen=True)
class OtherHeader:
    """The header of a file of csv does not name the columns that its values are read as: the first that differs is
    ``column``, at ``place``, from 1."""

    place: int
    column: str

    def __str__(self) -> str:
        return (
            f"the header names other columns than the schema, or the same in another order: number {self.place} is not "
            f"{self.column!r}. Values are read by their places, as in Spark; enforceSchema=false ends the query instead"
        )


class BadRecords:
    """Executor. ``policy`` is ``fail``, ``skip``, or the URL of a folder that keeps one JSON file a bad record.

    The kept file's name depends only on the input file and the place in it, so a replay writes nothing twice.
    """

    def __init__(self, policy: str, storage_options: Mapping[str, Any], job: str = "") -> None:
        self.policy = policy
        self._storage_options = dict(storage_options)
        self._job = job

    def tell(self, shown: str, found: Unread | OtherHeader) -> None:
        """A warning, of a file once for each process and job: names and numbers, nothing of a record."""
        if (self._job, shown, type(found)) in _told:
            return
        if len(_told) >= _MOST_TOLD:
            _told.clear()
        _told.add((self._job, shown, type(found)))
        _log.warning("%s: %s", shown, found)

    def handle(self, entry: FileEntry, shown: str, bad: Bad) -> None:
        """Raises ``BadRecordError`` if the policy is to fail; otherwise the record is kept, once, or dropped."""
        if self.policy == FAIL:
            raise BadRecordError(
                f"{shown}, {bad.place}: expected {bad.expected}, found {_short(bad.found)} ({bad.reason}). Nothing of "
                "this batch was committed. Set the option badRecords to 'skip', or to a folder that keeps what cannot "
                "be read, and start again; or correct the file and start once with changedFiles=accept"
            )
        if self.policy != SKIP:
            self._keep(entry, shown, bad)

    def _keep(self, entry: FileEntry, shown: str, bad: Bad) -> None:
        identity = json.dumps([entry.path, entry.size, entry.mtime_us, entry.etag, bad.place])
        name = f"{_start_of_name(entry.path)}-{hashlib.sha256(identity.encode()).hexdigest()[:24]}.json"
        body = {"file": shown, "place": bad.place, "expected": bad.expected, "record": bad.found, "reason": bad.reason}
        Folder(self.policy, self._storage_options).create(name, json.dumps(body).encode())


def salvage(
    count: int, attempt: Callable[[int, int], pa.RecordBatch], describe: Callable[[int, str], Bad]
) -> Iterator[pa.RecordBatch | Bad]:
    """Convert ``count`` records, in order, in pieces as large as possible, and each bad one by itself.

    ``attempt(low, high)`` converts a range or raises ``pyarrow.ArrowInvalid``; a bad record costs about
    ``2 log2(count)`` attempts.
    """
    pending = [(0, count)]
    while pending:
        low, high = pending.pop()
        if low == high:
            continue
        try:
            yield attempt(low, high)
        except pa.ArrowInvalid as error:
            if high - low == 1:
                yield describe(low, _reason(error))
            else:
                middle = (low + high) // 2
                pending += [(middle, high), (low, middle)]


def _start_of_name(path: str) -> str:
    """The file's own name, as far as a name may be long with what stands behind it."""
    return writable(path.rsplit("/", 1)[-1]).encode()[:_LONGEST_NAME].decode(errors="ignore")


def _reason(error: Exception) -> str:
    return str(error).split("\n")[0].replace(" in row 0", "").strip()


def _short(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
