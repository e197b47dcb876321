"""Which files a Delta table's log has ever named: what gc and abort must leave alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow.fs as pafs
import pyarrow.parquet as pq

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


def _names_in_commit(files: pafs.FileSystem, path: str) -> Iterable[str]:
    with files.open_input_stream(path) as stream:
        lines = stream.read().splitlines()
    for line in lines:
        if line.strip():
            entry: dict[str, Any] = json.loads(line)
            yield from (unquote(entry[kind]["path"]) for kind in _FILE_ACTIONS if entry.get(kind))


def _names_in_checkpoint(files: pafs.FileSystem, path: str) -> Iterable[str]:
    with files.open_input_file(path) as stream:
        table = pq.ParquetFile(stream).read(columns=[f"{kind}.path" for kind in _FILE_ACTIONS])
    for kind in table.column_names:
        yield from (unquote(entry["path"]) for entry in table[kind].to_pylist() if entry and entry["path"])
