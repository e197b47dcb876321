"""Makes the history table anew, from what the records say and from rows that can still be read."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow.parquet as pq

from spark_ckpt.storage._delta_log import LOG
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.history import SCHEMA, History, HistoryRow, from_dict

_logger = logging.getLogger(__name__)


def rebuild_history(url: str, rows: Iterable[HistoryRow], storage_options: Mapping[str, Any] | None = None) -> int:
    """Make the table at ``url`` hold ``rows`` and those that its data files still tell; returns how many.

    Any process; a checkpoint that is recorded meanwhile may be missing then. Called again after a crash.
    """
    folder = Folder(url, storage_options)
    old = [name for name in folder.names() if name.endswith(".parquet")]
    found = {row.id: row for name in old for row in _readable(folder, name)}
    found.update({row.id: row for row in rows})
    # Stopped from here on: the data files are still there, so the next repair finds the same rows.
    for name in folder.names(LOG):
        folder.remove(f"{LOG}/{name}")
    History(url, storage_options).write_all([found[k] for k in sorted(found)])
    for name in old:
        folder.remove(name)
    return len(found)


def _readable(folder: Folder, name: str) -> list[HistoryRow]:
    try:
        data = folder.read(name) or b""
        return [from_dict(row) for row in pq.read_table(io.BytesIO(data), schema=SCHEMA).to_pylist()]
    except Exception as error:  # noqa: BLE001 - a damaged file makes Arrow raise many things; its rows are lost
        _logger.warning("Rows of %s are lost: %s", folder.shown(name), type(error).__name__)
        return []
