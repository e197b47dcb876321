"""A small writer of Delta log commits, for what delta-rs cannot write: deletion vectors.

One commit is one file ``_delta_log/<version>.json``, created if absent; who creates it owns the version.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import tempfile
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.protocol import codec
from spark_ckpt.storage.content import FileEntry
from spark_ckpt.storage.deletion_vectors import to_delta
from spark_ckpt.storage.delta_schema import table_features, to_delta_schema
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.object_options import DELTA_RS_SCHEMES, delta_rs_options, scheme_of

LOG = "_delta_log"
ENGINE = "spark_ckpt"
_COMMIT = re.compile(r"(\d{20})\.json")
_LOG_FILE = re.compile(r"(\d{20})\..*(json|parquet)")
_LEFT_OUT = 1000

_logger = logging.getLogger(__name__)


def commit_name(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


@dataclass(frozen=True)
class LogCommit:
    """One commit as it was read: its version and its actions."""

    version: int
    actions: tuple[dict[str, Any], ...]

    def first(self, kind: str) -> dict[str, Any] | None:
        """The first action of ``kind``, or None."""
        return next((a[kind] for a in self.actions if kind in a), None)

    @property
    def changes_files(self) -> bool:
        return any("add" in a or "remove" in a for a in self.actions)


class DeltaLog:
    """The log of one table. Driver; any number of writers, of which one wins each version."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def versions(self) -> list[int]:
        """Versions whose commit file is there, ascending."""
        found = (_COMMIT.fullmatch(name) for name in self._folder.names(LOG))
        return sorted(int(match.group(1)) for match in found if match)

    def newest(self, known: int | None = None) -> int | None:
        """The newest version, or None if there is no table. ``known`` (a version seen before) saves listing the log."""
        if known is None or not self._folder.exists(commit_name(known)):
            versions = self.versions()
            return versions[-1] if versions else None
        while self._folder.exists(commit_name(known + 1)):
            known += 1
        return known

    def gap(self, version: int) -> int | None:
        """The first commit that a reader of ``version`` needs and that is not there. Lists the log, reads nothing."""
        names = {n: int(m.group(1)) for n in self._folder.names(LOG) if (m := _LOG_FILE.fullmatch(n))}
        from_checkpoints = (v for n, v in names.items() if n.endswith(".checkpoint.parquet") and v <= version)
        there = {v for n, v in names.items() if _COMMIT.fullmatch(n)}
        first = max(from_checkpoints, default=-1) + 1
        return next((v for v in range(first, version + 1) if v not in there), None)

    def read(self, version: int) -> LogCommit | None:
        """Commit ``version``, or None if its file is absent. Raises ``CorruptStorageError`` if it is damaged."""
        data = self._folder.read(commit_name(version))
        if data is None:
            return None
        actions = _actions(data)
        if actions is None:
            raise CorruptStorageError(
                f"{self._folder.shown(commit_name(version))} is damaged: expected JSON lines, found"
                f" {len(data)} bytes of something else. Put back a good copy, or start the query again: the table's"
                f" log then begins anew."
            )
        return LogCommit(version, actions)

    def put(self, version: int, actions: Iterable[Mapping[str, Any]], durable: bool = True) -> bool:
        """Write commit ``version`` if nobody has; returns whether this call did. ``durable``: as of a folder."""
        lines = [json.dumps(action, separators=(",", ":")) for action in actions]
        data = ("\n".join(lines) + "\n").encode()
        # An object store's client may have repeated a put whose first answer was lost: then the version is ours.
        created = self._folder.create(commit_name(version), data, durable)
        return created or self._folder.read(commit_name(version)) == data

    def files(self, versions: Iterable[int]) -> dict[str, FileEntry]:
        """Names and sizes of the files that remain after replaying ``versions`` of a table without vectors.

        Raises ``CorruptStorageError``.
        """
        found: dict[str, FileEntry] = {}
        for commit in filter(None, map(self.read, versions)):
            where = self._folder.shown(commit_name(commit.version))
            for action in commit.actions:
                if "remove" in action:
                    found.pop(_path(action["remove"], where), None)
                elif "add" in action:
                    size = codec.read_as(codec.Count, action["add"].get("size"), where)
                    found[_path(action["add"], where)] = FileEntry(0, size)
        return found

    def checkpoint(self) -> None:
        """Write a log checkpoint of the newest version, so that readers need not replay all commits.

        Only an optimisation: a failure is logged, and the next attempt is made with a later version. Not on file
        systems that delta-rs does not know.
        """
        if not delta_rs_can_open(self._folder.url):
            return
        try:
            open_delta(self._folder).create_checkpoint()
        except (DeltaError, OSError) as error:
            _logger.warning("No Delta log checkpoint for %r this time: %s", self._folder, type(error).__name__)

    def begin_again(
        self, actions: Iterable[Mapping[str, Any]], definition: Iterable[Mapping[str, Any]], recorded: int = 0
    ) -> int:
        """Begin a new log of an empty table, ``definition``, in place of one that cannot be read; returns its version.

        It comes far behind the old versions and those up to ``recorded``, so that none that a checkpoint recorded
        comes to mean something else. Stopped on the way: what is there is the same when it is done again.
        """
        version = max(recorded, *self.versions(), 0) + _LEFT_OUT
        checkpoint, last = _empty_checkpoint(definition, version)
        self._folder.replace(f"{LOG}/{version:020d}.checkpoint.parquet", checkpoint)
        self._folder.replace(f"{LOG}/_last_checkpoint", last)
        self.put(version, [*actions, *definition])
        self.trim(version)
        return version

    def trim(self, oldest: int) -> list[str]:
        """Remove log files that no version from ``oldest`` on needs. Returns the removed names."""
        names = {n: int(m.group(1)) for n in self._folder.names(LOG) if (m := _LOG_FILE.fullmatch(n))}
        starts = [v for n, v in names.items() if n.endswith(".checkpoint.parquet") and v <= oldest]
        if not starts:
            return []
        removed = sorted(n for n, v in names.items() if v < max(starts))
        for name in removed:
            self._folder.remove(f"{LOG}/{name}")
        return removed


def _actions(data: bytes) -> tuple[dict[str, Any], ...] | None:
    """The actions of a commit; None if it is none: each is an object of objects."""
    try:
        found = tuple(json.loads(line) for line in data.splitlines() if line.strip())
    except (ValueError, RecursionError):  # lists within lists, thousands deep
        return None
    are = all(isinstance(a, dict) and all(isinstance(v, dict) for v in a.values()) for a in found)
    return found if are else None


def _path(action: Mapping[str, Any], where: str) -> str:
    return unquote(codec.read_as(str, action.get("path"), where))


def _empty_checkpoint(definition: Iterable[Mapping[str, Any]], version: int) -> tuple[bytes, bytes]:
    """A log checkpoint that says ``definition``, and what points to it; delta-rs writes it."""
    with tempfile.TemporaryDirectory() as place:
        log = DeltaLog(Folder(place))
        log.put(0, definition)
        DeltaTable(place).create_checkpoint()
        data = log._folder.read(f"{LOG}/{0:020d}.checkpoint.parquet")
        last = json.loads(log._folder.read(f"{LOG}/_last_checkpoint") or b"{}")
    assert data is not None
    return data, json.dumps({"version": version, "size": last["size"]}).encode()


def protocol_action(schema: pa.Schema, deletion_vectors: bool) -> dict[str, Any]:
    features = (["deletionVectors"] if deletion_vectors else []) + table_features(schema)
    if not features:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }
    }


def metadata_action(
    schema: pa.Schema, description: str, configuration: Mapping[str, str], now_ms: int
) -> dict[str, Any]:
    return {
        "metaData": {
            "id": str(uuid.uuid4()),
            "description": description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": to_delta_schema(schema),
            "partitionColumns": [],
            "configuration": dict(configuration),
            "createdTime": now_ms,
        }
    }


def add_action(file: str, entry: FileEntry, now_ms: int) -> dict[str, Any]:
    stats = {"numRecords": entry.rows, "tightBounds": entry.dv is None}
    add: dict[str, Any] = {
        "path": quote(file),
        "partitionValues": {},
        "size": entry.size_bytes,
        "modificationTime": now_ms,
        "dataChange": True,
        "stats": json.dumps(stats, separators=(",", ":")),
    }
    if entry.dv:
        add["deletionVector"] = to_delta(entry.dv)
    return {"add": add}


def remove_action(file: str, entry: FileEntry, now_ms: int) -> dict[str, Any]:
    # Readers tell file entries apart by path and vector: without the vector the old entry would stay.
    remove: dict[str, Any] = {
        "path": quote(file),
        "deletionTimestamp": now_ms,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": entry.size_bytes,
    }
    if entry.dv:
        remove["deletionVector"] = to_delta(entry.dv)
    return {"remove": remove}


def transaction_action(app_id: str, version: int, now_ms: int) -> dict[str, Any]:
    return {"txn": {"appId": app_id, "version": version, "lastUpdated": now_ms}}


def commit_info_action(operation: str, details: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """``details`` come back from :func:`own_details`; DESCRIBE HISTORY shows them as user metadata."""
    return {
        "commitInfo": {
            "timestamp": now_ms,
            "operation": operation,
            "operationParameters": {},
            "engineInfo": ENGINE,
            "userMetadata": json.dumps({ENGINE: dict(details)}, separators=(",", ":")),
        }
    }


def own_details(commit: LogCommit) -> dict[str, Any] | None:
    """The ``details`` of a commit that we wrote, None of one that somebody else did."""
    info = commit.first("commitInfo") or {}
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):  # somebody else's may be anything
        details = json.loads(info["userMetadata"])[ENGINE] if "userMetadata" in info else None
        return dict(details) if details is not None else None
    return None


def delta_rs_can_open(url: str) -> bool:
    return scheme_of(url) in DELTA_RS_SCHEMES


def open_delta(folder: Folder) -> DeltaTable:
    """The table in ``folder`` through delta-rs, which asks its store again for as long as the folder does."""
    options = delta_rs_options(folder.url, folder.storage_options, folder.retry.timeout_s)
    return DeltaTable(folder.url, storage_options=options or None)
