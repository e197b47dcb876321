"""State files: Parquet files of sorted runs, written once by one task and never changed."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_ckpt.errors import (
    RESTORE_ANOTHER,
    CorruptStorageError,
    InvalidInputError,
    NewerFormatError,
    ProtocolBugError,
)
from spark_ckpt.protocol.events import StateFile
from spark_ckpt.protocol.file_format import require_known
from spark_ckpt.storage.delta_schema import to_delta_schema
from spark_ckpt.storage.filesystem import Folder, sync_folder
from spark_ckpt.storage.retry import may_pass
from spark_ckpt.types import KEY_GROUP

ROW_GROUP_ROWS = 128 * 1024
"""Most rows of a row group: small enough that a restart decodes little, large enough to compress and scan well."""

# Speed before size: a restart decodes all state, and every flush writes what it merged. Rows of four longs and a key
# group, on 2 slow cores: LZ4 writes in 68 ns a row, reads in 20 and needs 20.4 bytes; zstd 111, 52 and 15.8; Snappy 69,
# 45 and 20.5. Dictionaries cost 40 ns more and save nothing here. Splitting bytes into streams (43 ns, 15.5 bytes)
# would be best, but Spark's vectorised reader does not know it.
_WRITE_OPTIONS: dict[str, Any] = {"compression": "lz4", "use_dictionary": False, "write_page_checksum": True}


_COLUMNS, _FORMAT_OF = "spark_ckpt.columns.crc32", "spark_ckpt.format"
FORMAT = 1
"""Of a state file; one that does not say it is of format 1."""


def run_file_name(epoch: int, partition: int, content: str) -> str:
    """The name of a state file. ``content``: the same for attempts at one task that write the same, only for those."""
    return f"e{epoch:010d}-p{partition:05d}-{content}.parquet"


def encode_run_file(table: pa.Table) -> pa.Buffer:
    """The bytes of a state file: the same for the same rows."""
    sink = pa.BufferOutputStream()
    with run_file_writer(sink, table.schema) as writer:
        for start, stop in row_groups(table):
            writer.write_table(table.slice(start, stop - start), row_group_size=max(1, stop - start))
    return sink.getvalue()


def write_run_file(
    target: str | Folder,
    name: str,
    table: pa.Table,
    storage_options: Mapping[str, Any] | None = None,
    data: pa.Buffer | None = None,
) -> StateFile:
    """Write ``table`` as state file ``name`` of the state table at ``target``. Executor, at the end of a task.

    ``data``: its bytes, if they are known. The file is durable and complete when this returns, and never seen
    half-written. Several attempts may write the same file, one after another or at once: the first one's stays. Raises
    ``ProtocolBugError`` if the name is taken by other content.
    """
    folder = target if isinstance(target, Folder) else Folder(target, storage_options)
    data = encode_run_file(table) if data is None else data
    # The same content: another attempt's, or this very put, which an object store's client repeated.
    if not folder.create(name, memoryview(data)):
        if folder.read(name) != data.to_pybytes():
            raise ProtocolBugError(
                f"State file {folder.shown(name)} exists with other content: expected a name of its own."
            )
        if folder.local:  # whoever wrote it may have died before the name was on stable storage
            sync_folder(folder.root)
    return StateFile(name, table.num_rows, data.size)


@contextlib.contextmanager
def run_file_writer(sink: pa.NativeFile, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Writes a state file's content. Pages carry checksums of their own; columns get one in the footer."""
    with pq.ParquetWriter(sink, schema.remove_metadata(), **_WRITE_OPTIONS) as writer:
        writer.add_key_value_metadata({_COLUMNS: _column_checksum(schema), _FORMAT_OF: str(FORMAT)})
        yield writer


def row_groups(table: pa.Table) -> Iterator[tuple[int, int]]:
    """Row ranges to write as row groups, cut between key groups where possible so that a run lies in few of them."""
    rows = table.num_rows
    starts = np.empty(0, np.int64)
    if KEY_GROUP in table.column_names:
        groups = table.column(KEY_GROUP).to_numpy()
        starts = np.flatnonzero(groups[1:] != groups[:-1]) + 1
    start = 0
    while start < rows:
        stop = min(start + ROW_GROUP_ROWS, rows)
        if stop < rows:
            cut = int(np.searchsorted(starts, stop, side="right")) - 1
            if cut >= 0 and starts[cut] > start:
                stop = int(starts[cut])
        yield start, stop
        start = stop


def checked_bytes(folder: Folder, name: str) -> tuple[bytes, int]:
    """All of state file ``name``, each page of which fits its checksum, and its rows. Raises ``CorruptStorageError`` if
    it is missing or damaged."""
    data = folder.read(name)
    if data is None:
        raise _unreadable(folder, name, FileNotFoundError("no such file"))
    return data, checked_rows(folder, name, data)


def checked_rows(folder: Folder, name: str, data: bytes | None = None) -> int:
    """How many rows state file ``name``, or its ``data`` if that was read, has in pages that fit their checksums.
    Raises ``CorruptStorageError`` if it is missing or damaged."""
    with open_run_file(folder, name, data) as file:
        return sum(read_row_group(folder, name, file, index).num_rows for index in range(file.num_row_groups))


def open_run_file(folder: Folder, name: str, data: bytes | None = None) -> pq.ParquetFile:
    """Open state file ``name``, or its ``data`` if that was read. Raises ``CorruptStorageError`` if it is missing or
    damaged."""

    def opened() -> pq.ParquetFile:
        if data is not None:
            return pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        source = folder.path(name) if folder.local else folder.fs.open(folder.path(name), "rb")
        return pq.ParquetFile(source, memory_map=folder.local, page_checksum_verification=True)

    try:
        file = folder.retry.call(opened)
        require_known(_format_of(file), FORMAT, f"State file {folder.shown(name)}")
        _check_footer(file)
    except NewerFormatError:
        raise
    except Exception as error:  # noqa: BLE001 - clients of object stores raise anything
        raise _unreadable(folder, name, error) from None
    return file


def read_row_group(folder: Folder, name: str, file: pq.ParquetFile, index: int) -> pa.Table:
    """Row group ``index`` of an open state file. Raises ``CorruptStorageError`` if it is damaged."""
    try:
        table = folder.retry.call(lambda: file.read_row_group(index, use_threads=False))
    except Exception as error:  # noqa: BLE001 - clients of object stores raise anything
        raise _unreadable(folder, name, error) from None
    return table.replace_schema_metadata(None)


def _format_of(file: pq.ParquetFile) -> int:
    said = (file.metadata.metadata or {}).get(_FORMAT_OF.encode(), b"1").decode(errors="replace")
    return int(said) if said.isdigit() else 0


def _check_footer(file: pq.ParquetFile) -> None:
    """Raises ``ValueError`` if the footer, which has no checksum, contradicts itself."""
    footer, columns = file.metadata, _column_checksum(file.schema_arrow)
    written = (footer.metadata or {}).get(_COLUMNS.encode(), b"none").decode()
    if columns != written:
        raise ValueError(f"columns with checksum {columns} instead of {written}")
    rows = sum(footer.row_group(index).num_rows for index in range(footer.num_row_groups))
    if rows != footer.num_rows:
        raise ValueError(f"row groups of {rows} rows instead of {footer.num_rows}")


def _column_checksum(schema: pa.Schema) -> str:
    return str(zlib.crc32(to_delta_schema(schema).encode()))


def _unreadable(folder: Folder, name: str, error: Exception) -> Exception:
    """What is to be raised for ``error``: that storage does not answer is no damage."""
    if may_pass(error):
        return folder.retry.unavailable(f"State file {folder.shown(name)} could not be read", error)
    if not isinstance(error, OSError | ValueError | pa.ArrowException | InvalidInputError):
        return error
    found = "no such file" if isinstance(error, FileNotFoundError) else f"{type(error).__name__}: {error}"
    return CorruptStorageError(
        f"State file {folder.shown(name)} cannot be read: expected a complete Parquet file, found {found[:200]};"
        f" {RESTORE_ANOTHER}."
    )
