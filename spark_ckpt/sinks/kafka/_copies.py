"""The second copy of rows that wait in Kafka's transactions: a file for each, in the job's folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.sinks import _durable as durable
from spark_ckpt.sinks import staging
from spark_ckpt.sinks.base import WriterContext
from spark_ckpt.storage.filesystem import Folder, make_on


class CopyWriter(staging.FileWriter):
    """One task's rows of one epoch. ``name`` is that of its transaction."""

    def __init__(self, folder: Folder, ctx: WriterContext, schema: pa.Schema, name: str) -> None:
        super().__init__(f"staging rows in {folder.shown('')}", ctx)
        self._folder, self._schema, self._name = folder, schema, file_of(name)

    def _open(self, rows: pa.Table) -> tuple[Any, Any]:
        make_on(self._folder.fs, self._folder.root)
        stream = self._folder.fs.open(self._folder.path(self._name), "wb")
        return stream, pa.ipc.new_stream(stream, self._schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))

    def _put(self, rows: pa.Table) -> None:
        self._writer.write_table(rows.combine_chunks())

    def _finish(self) -> bytes:
        self._stream.close()
        if self._folder.local:
            durable.sync([self._folder.path(self._name)])
        return self._name.encode()


def file_of(transaction: str) -> str:
    return f"{transaction}.arrow"


def transaction_in(file: str) -> str:
    return file.removesuffix(".arrow")


def read_copy(folder: Folder, transaction: str) -> Iterator[pa.RecordBatch]:
    """Its rows. Raises ``CorruptStorageError`` if they are missing."""
    path = folder.path(file_of(transaction))
    try:
        with folder.fs.open(path, "rb") as stream, pa.ipc.open_stream(stream) as rows:
            yield from rows
    except FileNotFoundError:
        raise CorruptStorageError(
            f"{folder.shown(file_of(transaction))} is missing: the rows of a transaction that the broker aborted. "
            "Put it back"
        ) from None
