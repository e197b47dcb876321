"""A Delta table that is opened again and again at its newest version, without reading its whole log each time."""

from __future__ import annotations

from typing import Any

import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks.delta._log import Transactions


class OpenTable:
    """``transactions`` are those that were read of the table as it is now."""

    def __init__(self, path: str, storage: dict[str, str]) -> None:
        self._path = path
        self._storage = storage
        self._table: DeltaTable | None = None
        self._entry: tuple[str, Any, Any] | None = None
        self.transactions = Transactions()

    def files(self) -> pafs.FileSystem:
        return pafs.PyFileSystem(DeltaStorageHandler(self._path, self._storage))

    def open(self) -> DeltaTable:
        """At its newest version. Raises ``InvalidInputError`` if there is none any more."""
        try:
            known, self._table = self._table, None
            self._table = self._newer(known) or self._whole()
            return self._table
        except TableNotFoundError as error:
            raise InvalidInputError(
                f"Delta table {self._path} is gone; it was there when the query started. Restore it"
            ) from error

    def _whole(self) -> DeltaTable:
        table = DeltaTable(self._path, storage_options=self._storage)
        self._entry = _identity(self.files().get_file_info(_entry_name(table)))
        self.transactions = Transactions()
        return table

    def _newer(self, known: DeltaTable | None) -> DeltaTable | None:
        """``known`` at its newest version, without reading the whole log again; None if it has to be."""
        if known is None or self._entry is None:
            return None
        try:
            known.update_incremental()
            before, newest = self.files().get_file_info([self._entry[0], _entry_name(known)])
        except (DeltaError, OSError):
            return None
        # A table that was removed meanwhile has not got them; one that was made anew has others.
        if _identity(before) != self._entry or newest.type != pafs.FileType.File:
            return None
        self._entry = _identity(newest)
        return known


def _identity(entry: pafs.FileInfo) -> tuple[str, Any, Any]:
    return entry.path, entry.size, entry.mtime_ns


def _entry_name(table: DeltaTable) -> str:
    return f"_delta_log/{table.version():020d}.json"
