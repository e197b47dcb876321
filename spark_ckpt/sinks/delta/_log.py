"""What a Delta table's log tells: transactions, and all files it ever named, which gc and abort must leave alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable

_LOG = "_delta_log"
_FILE_ACTIONS = ("add", "remove")


def logged_names(files: pafs.FileSystem, candidates: Sequence[str]) -> set[str]:
    """Those of ``candidates`` that any entry of the log adds or removes, at any version the log still has.

    A removed file counts too: older versions still read it. ``files`` is rooted at the table.
    """
    wanted = set(candidates)
    selector = pafs.FileSelector(_LOG, allow_not_found=True, recursive=True)
    found: set[str] = set()
    for info in files.get_file_info(selector):
        if info.path.endswith(".json"):
            found |= wanted.intersection(_names_in_commit(files, info.path))
        elif info.path.endswith(".parquet"):  # checkpoints of the log, and their sidecars
            found |= wanted.intersection(_names_in_checkpoint(files, info.path))
    return found


class Transactions:
    """The newest application transactions of one table. delta-rs looks through its whole log for one, and what was
    looked through does not change: only commits since then are read."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int | None]] = {}

    def newest(self, table: DeltaTable, files: pafs.FileSystem, app: str) -> int | None:
        """That of ``app`` in ``table`` at its version, or None. ``files`` is rooted at the table."""
        at = table.version()
        looked, found = self._known.get(app, (at + 1, None))
        if looked <= at:
            try:
                for version in range(looked + 1, at + 1):
                    found = _transaction_in(files, version, app, found)
            except OSError:  # the log was tidied up
                looked = at + 1
        if looked > at:
            found = table.transaction_version(app)
        self._known[app] = (at, found)
        return found


def _transaction_in(files: pafs.FileSystem, version: int, app: str, before: int | None) -> int | None:
    actions = commit_actions(files, version)
    return next((a["txn"]["version"] for a in actions if "txn" in a and a["txn"]["appId"] == app), before)


def commit_actions(files: pafs.FileSystem, version: int) -> list[dict[str, Any]]:
    """Raises ``FileNotFoundError`` where the log was tidied up."""
    return _actions(files, f"{_LOG}/{version:020d}.json")


def torn_entry(files: pafs.FileSystem) -> str | None:
    """The newest entry of the log that is not whole, as a writer or a disk that died in it leaves it; None: all are."""
    found = files.get_file_info(pafs.FileSelector(_LOG, allow_not_found=True))
    for info in sorted(found, key=lambda info: info.path, reverse=True):
        if info.path.endswith(".json"):
            try:
                _actions(files, info.path)
            except ValueError:
                return str(info.path)
    return None


def _actions(files: pafs.FileSystem, path: str) -> list[dict[str, Any]]:
    with files.open_input_stream(path) as stream:
        return [json.loads(line) for line in stream.read().splitlines() if line.strip()]


def _names_in_commit(files: pafs.FileSystem, path: str) -> Iterable[str]:
    for entry in _actions(files, path):
        yield from (unquote(entry[kind]["path"]) for kind in _FILE_ACTIONS if entry.get(kind))


def _names_in_checkpoint(files: pafs.FileSystem, path: str) -> Iterable[str]:
    with files.open_input_file(path) as stream:
        table = pq.ParquetFile(stream).read(columns=[f"{kind}.path" for kind in _FILE_ACTIONS])
    for kind in table.column_names:
        yield from (unquote(entry["path"]) for entry in table[kind].to_pylist() if entry and entry["path"])
