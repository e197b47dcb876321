"""Makes what sinks write to local disks survive a power loss. Object stores keep what they acknowledged."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from fsspec.implementations.local import LocalFileSystem

from spark_ckpt.storage.filesystem import make_folder, sync_file, sync_folder


def is_local(files: Any) -> bool:
    return isinstance(files, LocalFileSystem)


def make_folders(path: str) -> None:
    """Make local folder ``path`` and those above it, for good."""
    make_folder(os.path.abspath(path))


def sync(paths: Iterable[str]) -> None:
    """Sync local files, and then the folders they are in: one sync a file and a folder. A missing file is passed over:
    the other of two drivers that commit the same has moved it on."""
    found = [os.path.abspath(path) for path in paths]
    for path in found:
        with suppress(FileNotFoundError):
            _sync_file(path)
    for folder in sorted({os.path.dirname(path) for path in found}):
        sync_folder(folder)


def sync_folders(*folders: str) -> None:
    """Sync the names in local ``folders``."""
    for folder in folders:
        with suppress(FileNotFoundError):
            sync_folder(folder)


def sync_delta(table: str, app: str, checkpoint: int) -> None:
    """Sync the commit of a local Delta table that ``app`` wrote for ``checkpoint``, and first the files it adds.

    delta-rs syncs neither. Those behind it are synced, too: a log with a gap cannot be read.
    """
    for path in reversed(_commits(table)):
        actions = _actions(path)
        sync(os.path.join(table, unquote(action["add"]["path"])) for action in actions if "add" in action)
        sync([path])
        if any((a["txn"]["appId"], a["txn"]["version"]) == (app, checkpoint) for a in actions if "txn" in a):
            return


def sync_new_delta(table: str) -> None:
    """Sync a local Delta table that was made right now; another one is left as it is."""
    commits = _commits(table)
    if len(commits) == 1:
        sync(commits)
        sync_folders(table)


def sync_newest_delta(table: str) -> None:
    """Sync the newest commit of a local Delta table, which adds no file that is new."""
    sync(_commits(table)[-1:])


def _commits(table: str) -> list[str]:
    log = os.path.join(table, "_delta_log")
    return [os.path.join(log, n) for n in sorted(os.listdir(log)) if n.endswith(".json") and n[:-5].isdigit()]


def _actions(commit: str) -> list[dict[str, Any]]:
    with open(commit, "rb") as file:
        return [json.loads(line) for line in file if line.strip()]


def _sync_file(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)
