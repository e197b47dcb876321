"""The job's records: small JSON files that are created once or replaced as a whole, each with a checksum.

Facts of the protocol live here; :mod:`spark_ckpt.protocol` decides what they mean.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from spark_ckpt.errors import (
    RESTORE_ANOTHER,
    CorruptStorageError,
    StorageNotWritableError,
)
from spark_ckpt.protocol.file_format import FIELD, require_known
from spark_ckpt.storage.create_if_absent import require_create_if_absent
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.job_paths import JOB_RECORD
from spark_ckpt.storage.retry import Retry, may_pass

FORMAT = 1
"""The checksum of a newer format has to cover its number, too: so a 1 that became another digit is known for damage."""

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Created:
    """This call created the record."""


@dataclass(frozen=True)
class Exists:
    """Somebody had created the record before; ``body`` is what it says."""

    body: dict[str, Any]


class RecordStore:
    """Records below one folder. Driver and executors; any number of processes at a time.

    Each has its format; one of a newer version of this package raises ``NewerFormatError``, whatever is asked for.
    A record is complete or absent for every reader, also while it is written and after a crash. ``create`` has
    exactly one winner among concurrent callers. ``durable`` (default) makes a record survive a power loss before
    the call returns; it costs a sync to disk on a local file system and nothing on an object store.

    What fails in a way that may pass is tried again as ``retry`` says; what fails for longer than that raises
    ``StorageUnavailableError``, whatever is asked for.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None, retry: Retry | None = None) -> None:
        self._folder = Folder(url, storage_options, retry)

    @property
    def folder(self) -> Folder:
        return self._folder

    @property
    def url(self) -> str:
        return self._folder.url

    @property
    def storage_options(self) -> dict[str, Any]:
        return dict(self._folder.storage_options)

    def create(self, path: str, kind: str, body: Mapping[str, Any], durable: bool = True) -> Created | Exists:
        """Create the record if nobody has.

        Raises ``CorruptStorageError`` if the record that exists is damaged or of another kind, and
        ``StorageNotWritableError`` if the folder cannot be written.
        """
        writer = uuid.uuid4().hex
        data = encode_record(kind, body, writer)
        while True:
            if self._tried("written", path, lambda: self._folder.create(path, data, durable)):
                return Created()
            found = self._load(path, kind)
            # An object store's client may have repeated a put whose first answer was lost: the record is then ours.
            if found is not None:
                return Created() if found["writer"] == writer else Exists(found["body"])

    def replace(self, path: str, kind: str, body: Mapping[str, Any], durable: bool = True) -> None:
        """Write the record whatever was there before. Raises ``StorageNotWritableError``."""
        data = encode_record(kind, body, uuid.uuid4().hex)
        self._tried("written", path, lambda: self._folder.replace(path, data, durable))

    def read(self, path: str, kind: str) -> dict[str, Any] | None:
        """The record's body, or None if there is none. Raises ``CorruptStorageError`` if it is damaged."""
        found = self._load(path, kind)
        return None if found is None else dict(found["body"])

    def names(self, folder: str) -> list[str]:
        """Names of the records in ``folder``, sorted, without the folder; empty if there is no such folder."""
        return self._tried("read", folder, lambda: self._folder.names(folder))

    def exists(self, path: str) -> bool:
        return self._tried("read", path, lambda: self._folder.exists(path))

    def delete(self, path: str) -> None:
        """Remove the record. Nothing happens if it is not there."""
        self._tried("removed", path, lambda: self._folder.remove(path))

    def remove_temporaries(self) -> None:
        """Remove what writers that were killed left behind. Only while nobody writes."""
        self._folder.remove_temporaries()

    def check_writable(self, job: str) -> None:
        """Claim the folder for ``job`` and try a write. Driver, when a query starts.

        Raises ``StorageNotWritableError`` if it cannot be written, belongs to another job, or is on a store that
        cannot create if absent.
        """
        require_create_if_absent(self._folder)
        try:
            answer = self.create(JOB_RECORD, "job", {"job": job})
        except CorruptStorageError as damage:
            raise CorruptStorageError(
                f"{str(damage).split('; put back')[0]}. It says which job the folder belongs to, and nothing else: if"
                f" this is the folder of job {job!r}, remove the file, and the next start writes it again."
            ) from None
        owner = answer.body.get("job") if isinstance(answer, Exists) else job
        if owner != job:
            raise StorageNotWritableError(
                f"{self._folder.shown('')} belongs to another job: expected job {job!r}, found {owner!r} in"
                f" {JOB_RECORD}. Set spark.ckpt.job or spark.ckpt.dir to a place of this job's own."
            )
        if self._folder.local:
            probe = f"probe-{uuid.uuid4().hex}.json"
            self.create(probe, "probe", {}, durable=False)
            self.delete(probe)

    def _tried(self, done: str, path: str, action: Callable[[], _Result]) -> _Result:
        try:
            return action()
        except Exception as error:
            if may_pass(error):
                what = f"{self._folder.shown(path)} could not be {done}"
                raise self._folder.retry.unavailable(what, error) from None
            raise

    def _load(self, path: str, kind: str) -> dict[str, Any] | None:
        data = self._tried("read", path, lambda: self._folder.read(path))
        return None if data is None else _decode(data, kind, lambda: self._folder.shown(path))


def _checksum(body: Any) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())


def encode_record(kind: str, body: Mapping[str, Any], writer: str) -> bytes:
    """A record as it is stored. ``writer`` tells who wrote it from all others."""
    text = json.dumps(body, separators=(",", ":"))
    head = {FIELD: FORMAT, "kind": kind, "crc32": _checksum(json.loads(text)), "writer": writer}
    return f'{json.dumps(head, separators=(",", ":"))[:-1]},"body":{text}}}'.encode()


def _decode(data: bytes, kind: str, shown: Callable[[], str]) -> dict[str, Any]:
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):  # lists within lists, thousands deep
        raise _corrupt(shown, "a JSON record", f"{len(data)} bytes that are not JSON") from None
    if not isinstance(record, dict) or not isinstance(record.get("body"), dict):
        raise _corrupt(shown, "a record with a body", f"JSON of another shape ({len(data)} bytes)")
    if record.get("crc32") != _checksum(record["body"]):
        require_known(record.get(FIELD), FORMAT, shown())
    if record.get(FIELD) != FORMAT:
        raise _corrupt(shown, f"format {FORMAT}", f"format {record.get(FIELD)!r}")
    if record.get("kind") != kind:
        raise _corrupt(shown, f"a record of kind {kind!r}", f"kind {record.get('kind')!r}")
    checksum = _checksum(record["body"])
    if record.get("crc32") != checksum:
        raise _corrupt(shown, f"checksum {record.get('crc32')}", f"checksum {checksum}")
    return record


def _corrupt(shown: Callable[[], str], expected: str, found: str) -> CorruptStorageError:
    return CorruptStorageError(f"{shown()} is damaged: expected {expected}, found {found}; {RESTORE_ANOTHER}.")
