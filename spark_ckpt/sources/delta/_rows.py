"""From a file of the table to record batches. Executor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql.datasource import InputPartition

from spark_ckpt.arrow_layouts import ordinary_rows
from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.sources._convert import MAX_BATCH_ROWS
from spark_ckpt.sources.delta._actions import Vector
from spark_ckpt.sources.delta._changes import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, Entry
from spark_ckpt.sources.delta._log import read_vector_bytes
from spark_ckpt.sources.delta._partition_values import repeated
from spark_ckpt.sources.delta._schema import physical_name
from spark_ckpt.sources.delta._shape import find, shaped
from spark_ckpt.sources.old_calendar import Modes, rebase_of

_MAGIC = 1681511377
_MAGIC_BYTES = 4
_SIZE_BYTES = 4


@dataclass(frozen=True)
class TableColumns:
    """How the table's files are read: its schema in Delta's JSON."""

    schema: Mapping[str, Any]
    partition_columns: frozenset[str]
    by_id: bool


class DeltaSplit(InputPartition):
    """Part ``part`` of ``parts``, by row groups, of an entry's file. ``size_bytes`` weighs it."""

    def __init__(self, entry: Entry, columns: TableColumns, part: int = 0, parts: int = 1) -> None:
        self.entry, self.columns, self.part, self.parts = entry, columns, part, parts
        self.size_bytes = max(1, entry.file.size_bytes // parts)


def rows_of(
    split: DeltaSplit, target: pa.Schema, files: pafs.FileSystem, shown: str, modes: Modes
) -> Iterator[pa.RecordBatch]:
    """The rows of ``split`` as batches of ``target``. Raises ``InvalidInputError``, ``CorruptStorageError``."""
    entry = split.entry
    where = f"{shown}, file {entry.file.path}"
    try:
        without, among = (_numbers(files, vector, where) for vector in (entry.without, entry.among))
        with files.open_input_file(entry.file.path) as raw:
            file = pq.ParquetFile(raw, coerce_int96_timestamp_unit="us")
            maker, rebase = _Maker(split, file.schema_arrow, target, where), rebase_of(file, modes, where)
            for first, batch in _numbered(file, split, maker.names):
                kept = _of_kinds(_kept(batch, first, without, among), entry.kinds)
                if kept.num_rows:
                    yield maker.made(kept if rebase is None else rebase(kept))
    except FileNotFoundError:
        raise _vacuumed(where) from None
    except pa.ArrowInvalid as error:
        raise CorruptStorageError(f"{where} is damaged: expected a Parquet file, found: {error}") from None


class _Maker:
    """Makes batches of the stream's columns from a file's."""

    def __init__(self, split: DeltaSplit, there: pa.Schema, target: pa.Schema, where: str) -> None:
        self._entry, self._columns, self._target, self._where = split.entry, split.columns, target, where
        self._fields = {field["name"]: field for field in split.columns.schema["fields"]}
        self._places: dict[str, str] = {}
        for name, field in self._fields.items():
            place = None if name in split.columns.partition_columns else find(field, list(there), split.columns.by_id)
            if place is not None:
                self._places[name] = there.names[place]
        if split.entry.change == "":
            self._places[CHANGE_TYPE] = CHANGE_TYPE
        self.names = list(self._places.values()) or there.names[:1]

    def made(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [self._column(field, batch) for field in self._target]
        return pa.RecordBatch.from_arrays(columns, schema=self._target)

    def _column(self, wanted: pa.Field, batch: pa.RecordBatch) -> pa.Array:
        rows, entry = batch.num_rows, self._entry
        if wanted.name not in self._fields:
            return self._of_the_change(wanted, batch)
        field, where = self._fields[wanted.name], f"{self._where}, column {wanted.name}"
        if wanted.name in self._columns.partition_columns:
            return repeated(entry.file.partition.get(physical_name(field)), wanted.type, rows, where)
        if wanted.name not in self._places:
            return pa.nulls(rows, wanted.type)
        found = batch.column(batch.schema.names.index(self._places[wanted.name]))
        return shaped(found, field["type"], wanted.type, self._columns.by_id, where)

    def _of_the_change(self, wanted: pa.Field, batch: pa.RecordBatch) -> pa.Array:
        entry = self._entry
        if wanted.name == CHANGE_TYPE and entry.change == "":
            return pc.cast(batch.column(batch.schema.names.index(CHANGE_TYPE)), wanted.type)
        values = {CHANGE_TYPE: entry.change, COMMIT_VERSION: entry.version, COMMIT_TIMESTAMP: entry.time_ms * 1000}
        return pa.repeat(pa.scalar(values[wanted.name]).cast(wanted.type), batch.num_rows)


def _numbered(file: pq.ParquetFile, split: DeltaSplit, names: list[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches of the split, each with the number of its first row in the file."""
    count, first = file.metadata.num_row_groups, 0
    wanted = range(split.part * count // split.parts, (split.part + 1) * count // split.parts)
    for group in range(count):
        if group in wanted:
            at = first
            for batch in file.iter_batches(MAX_BATCH_ROWS, row_groups=[group], columns=names):
                yield at, ordinary_rows(batch)
                at += batch.num_rows
        first += file.metadata.row_group(group).num_rows


def _kept(batch: pa.RecordBatch, first: int, without: Any, among: Any) -> pa.RecordBatch:
    if without is None and among is None:
        return batch
    mask = np.ones(batch.num_rows, dtype=bool)
    if among is not None:
        mask &= _is_in(among, first, batch.num_rows)
    if without is not None:
        mask &= ~_is_in(without, first, batch.num_rows)
    return batch.filter(pa.array(mask))


def _of_kinds(batch: pa.RecordBatch, kinds: tuple[str, ...]) -> pa.RecordBatch:
    if not kinds:
        return batch
    told = batch.column(batch.schema.names.index(CHANGE_TYPE))
    return batch.filter(pc.is_in(told, value_set=pa.array(kinds, told.type)))


def _is_in(numbers: Any, first: int, rows: int) -> Any:
    mask = np.zeros(rows, dtype=bool)
    low, high = np.searchsorted(numbers, [first, first + rows])
    mask[(numbers[low:high] - first).astype(np.int64)] = True
    return mask


def _numbers(files: pafs.FileSystem, vector: Vector | None, where: str) -> Any:
    """The row numbers in a deletion vector, ascending; None for no vector. Raises ``FileNotFoundError``."""
    if vector is None:
        return None
    if vector.inline is not None:
        payload = vector.inline
    else:
        assert vector.file is not None
        payload = read_vector_bytes(files, vector.file, vector.offset + _SIZE_BYTES, vector.size_bytes)
    if len(payload) != vector.size_bytes or int.from_bytes(payload[:_MAGIC_BYTES], "little") != _MAGIC:
        raise CorruptStorageError(f"{where}: its deletion vector is damaged: expected {vector.size_bytes} bytes of one")
    return np.array(BitMap64.deserialize(payload[_MAGIC_BYTES:]), dtype=np.uint64)


def _vacuumed(where: str) -> CorruptStorageError:
    return CorruptStorageError(
        f"{where} is gone: expected every file that the stream has not read yet, found none: VACUUM removed it "
        "(delta.deletedFileRetentionDuration). Put it back, or begin anew, behind it: another queryName, a "
        "new, empty checkpointLocation, and option startingVersion or none"
    )
