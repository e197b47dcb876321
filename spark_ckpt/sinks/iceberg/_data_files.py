"""Data files: written by tasks, described in committables, added to the table by the driver.

A task writes a file with the table's field ids and says what Iceberg wants to know of it: partition, counts and
bounds. So a commit adds it without opening it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.typedef import Record

from spark_ckpt.errors import BadRowError
from spark_ckpt.sinks import _durable as durable
from spark_ckpt.sinks import staging
from spark_ckpt.sinks._parquet import open_parquet
from spark_ckpt.sinks._partitions import MOST_BYTES
from spark_ckpt.sinks.base import SinkWriter, WriterContext
from spark_ckpt.sinks.iceberg._partitions import split
from spark_ckpt.sinks.iceberg._statistics import file_statistics
from spark_ckpt.sinks.iceberg._types import file_schema

if TYPE_CHECKING:
    from pyiceberg.table import Table

KIND = "iceberg"
_BUFFER_ROWS = 1024 * 1024
_BUFFER_BYTES = 256 * 1024 * 1024
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


def told_of(table: Table) -> dict[str, Any]:
    """What a committable says of the table that its file is for."""
    metadata = table.metadata
    return {"table": str(metadata.table_uuid), "name": ".".join(table.name()), "schema": metadata.current_schema_id}


def refuse_others(table: Table, staged: Sequence[Mapping[str, Any]], shown: str) -> None:
    """Raises ``InvalidInputError`` for files of another table.

    One that was made anew has the name, and one that was renamed the UUID. Earlier releases did not say.
    """
    own = told_of(table)
    for s in staged:
        if {"name", "table"} <= s.keys() and s["name"] != own["name"] and s["table"] != own["table"]:
            raise staging.waits_elsewhere(f"table {s['name']}", shown)


def local_path(location: str) -> str | None:
    """The path of a file on a local disk; None for any other."""
    if location.startswith("file:"):
        return "/" + location[5:].lstrip("/")
    return None if "://" in location else location


class ParquetFile(staging.FileWriter):
    """One Parquet file at ``location`` with the columns of ``schema`` in it, in their order."""

    def __init__(self, table: Table, location: str, ctx: WriterContext, schema: pa.Schema, shown: str) -> None:
        super().__init__(f"staging rows in {shown}", ctx)
        self._table, self._location, self._schema = table, location, schema
        self.footers: list[Any] = []
        self.size_bytes = 0

    def _open(self, rows: pa.Table) -> tuple[Any, Any]:
        stream = self._table.io.new_output(self._location).create()
        codec = self._table.properties.get("write.parquet.compression-codec", "zstd")
        compression = "none" if codec == "uncompressed" else codec
        return stream, open_parquet(
            stream, self._schema, self._cast(rows),
            metadata_collector=self.footers, compression=compression, store_decimal_as_integer=True,
        )  # fmt: skip

    def _cast(self, rows: pa.Table) -> pa.Table:
        return rows.select(self._schema.names).cast(self._schema)

    def _put(self, rows: pa.Table) -> None:
        self._writer.write_table(self._cast(rows))

    def _finish(self) -> bytes:
        self._stream.flush()
        self.size_bytes = self._stream.tell()
        self._stream.close()
        path = local_path(self._location)
        if path is not None:
            durable.sync([path])
        return b""


class DataFiles(SinkWriter):
    """Rows as files of ``table``, one for each partition that a buffer of rows has. Executor; in a merge, driver.

    Without partitions the rows of a task go to one file, whatever their number.
    """

    def __init__(self, table: Table, stem: str, ctx: WriterContext, shown: str) -> None:
        self._table, self._stem, self._ctx, self._shown = table, stem, ctx, shown
        self._spec, self._of_table = table.spec(), table.schema()
        self._file_schema, self._arrow = file_schema(self._of_table, ctx.schema.names)
        self._chunks = staging.Chunks(_BUFFER_ROWS, _BUFFER_BYTES)
        self._made: list[bytes] = []
        self._files = 0
        self._single = self._opened(Record()) if self._spec.is_unpartitioned() else None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._single is not None:
            self._single[1].write(batch)
        else:
            self._put(self._chunks.add(batch))

    def prepare_commit(self) -> Sequence[bytes]:
        if self._single is not None:
            return self._described(*self._single)
        self._put(self._chunks.rest())
        if self._ctx.replacing and not self._made:
            self._part(Record(*[None] * len(self._spec.fields)), self._ctx.schema.empty_table())
        return self._made

    def close(self) -> None:
        if self._single is not None:
            self._single[1].close()

    def _put(self, rows: pa.Table | None) -> None:
        if rows is not None:
            for partition, part in split(rows, self._spec, self._of_table):
                self._part(partition, part)

    def _part(self, partition: Record, rows: pa.Table) -> None:
        opened = self._opened(partition)
        try:
            for batch in rows.to_batches():
                opened[1].write(batch)
            self._made += self._described(*opened)
        finally:
            opened[1].close()

    def _opened(self, partition: Record) -> tuple[str, ParquetFile, Record]:
        name = f"{self._stem}-{self._files:05d}.parquet"
        self._files += 1
        if not self._spec.is_unpartitioned():
            name = f"{_folder(self._spec, partition, self._of_table)}/{name}"
        location = self._table.location_provider().new_data_location(name)
        return location, ParquetFile(self._table, location, self._ctx, self._arrow, self._shown), partition

    def _described(self, location: str, file: ParquetFile, partition: Record) -> list[bytes]:
        if not file.prepare_commit():
            return []
        found = file_statistics(file.footers[0], self._file_schema, self._table.properties)
        what = {"file": location, "size": file.size_bytes, "spec": self._spec.spec_id, "rows": found["record_count"]}
        what |= {**told_of(self._table), "ids": sorted(index_by_id(self._file_schema))}
        return [staging.encode(KIND, **what, partition=_texts(partition, self._spec, self._of_table), **_plain(found))]


def refuse_folders(table: Table, rows: pa.Table) -> None:
    """Raises ``BadRowError`` for values that no folder of ``table`` can be named by."""
    for partition, _ in split(rows, table.spec(), table.schema()):
        _folder(table.spec(), partition, table.schema())


def _plain(found: Mapping[str, Any]) -> dict[str, Any]:
    """Statistics as JSON has them."""
    bounds = {name: {str(k): b64encode(v).decode() for k, v in found[name].items()} for name in _BOUNDS}
    return {**{name: {str(k): v for k, v in found[name].items()} for name in _COUNTS}, **bounds,
            "split_offsets": found["split_offsets"]}  # fmt: skip


def _folder(spec: PartitionSpec, partition: Record, schema: Schema) -> str:
    """Raises ``BadRowError`` for values that pyiceberg cannot name a folder by: the task finds it, and not a
    commit."""
    columns = ", ".join(f"'{schema.find_column_name(f.source_id)}'" for f in spec.fields)
    try:
        folder = spec.partition_to_path(partition, schema)
    except (OverflowError, ValueError):
        raise BadRowError(
            f"partition column {columns}: a date or a timestamp outside of the years 1 to 9999, which pyiceberg cannot "
            "name a partition by; filter such rows out"
        ) from None
    longest = max(len(part.encode()) for part in folder.split("/"))
    if longest > MOST_BYTES:
        raise BadRowError(
            f"partition column {columns}: a value makes a name of {longest} bytes, where a folder's has at most "
            f"{MOST_BYTES}; filter such rows out, or partition by truncate(n, column) or bucket(n, column)"
        )
    return folder


def _texts(partition: Record, spec: PartitionSpec, schema: Schema) -> list[str | None]:
    kinds: list[Any] = [f.field_type for f in spec.partition_type(schema).fields]
    values = [partition[i] for i in range(len(kinds))]
    return [None if v is None else b64encode(to_bytes(k, v)).decode() for k, v in zip(kinds, values, strict=True)]


def fits_as_it_is(table: Table, staged: Mapping[str, Any]) -> bool:
    """Whether a reader of ``table``, who finds columns by their ids, finds all that the file has where it belongs.

    One that was dropped and added again has another id, and a table that was made anew has its own.
    """
    if staged["spec"] != table.metadata.default_spec_id:
        return False
    if "ids" not in staged:
        return True  # staged by a release that did not say
    ids, nulls = set(staged["ids"]), staged["null_value_counts"]
    filled = all(f.field_id in ids and not nulls.get(str(f.field_id)) for f in table.schema().fields if f.required)
    same = staged["table"] == str(table.metadata.table_uuid)
    return same and filled and index_by_id(table.schema()).keys() >= ids


def data_file(table: Table, staged: Mapping[str, Any]) -> DataFile:
    """What a committable describes, as a manifest has it."""
    spec = table.specs()[staged["spec"]]
    kinds: list[Any] = [f.field_type for f in spec.partition_type(table.schema()).fields]
    pairs = zip(kinds, staged["partition"], strict=True)
    values = [None if text is None else from_bytes(kind, b64decode(text)) for kind, text in pairs]
    statistics: dict[str, Any] = {name: {int(k): v for k, v in staged[name].items()} for name in _COUNTS}
    statistics |= {name: {int(k): b64decode(v) for k, v in staged[name].items()} for name in _BOUNDS}
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=staged["file"],
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        record_count=staged["rows"],
        file_size_in_bytes=staged["size"],
        split_offsets=staged["split_offsets"],
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **statistics,
    )
    made.spec_id = staged["spec"]
    return made
