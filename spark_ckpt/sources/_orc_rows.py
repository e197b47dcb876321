"""From a split of an ORC file to record batches, by rows and stripes. Executor; the driver asks for counts and schemas.

A timestamp in ORC is what a clock showed, and Spark reads it by the clock of its JVM: here that has to be UTC. Days
ahead of the Gregorian calendar are written in another one, which the file does not say, so they are bad records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc
from pyspark.sql.types import DataType, StructField, StructType

from spark_ckpt.errors import ConfigError
from spark_ckpt.sources._bad_records import Bad, MalformedFileError
from spark_ckpt.sources._convert import spark_schema
from spark_ckpt.sources._file_listing import FileEntry, InputFolder
from spark_ckpt.sources._file_plan import Cut, FileSplit, Position
from spark_ckpt.sources._file_rows import columns_of, converted, cut_by_rows, malformed

_KIND = b"spark.sql.catalyst.type"
_GREGORIAN = -141_427
"""1582-10-15, in days since 1970."""


def check_schema(schema: pa.Schema) -> None:
    """Raises ``ConfigError`` if timestamps would not be Spark's."""
    if time.tzname[0] not in ("UTC", "GMT") and any(_has_moments(field.type) for field in schema):
        raise ConfigError(
            "source 'files' of fileFormat orc: timestamps in ORC are what the clock of a machine showed, and are read "
            f"as UTC; expected a machine whose zone is UTC, found {time.tzname[0]}; set TZ=UTC for driver and "
            "executors, or read them with readStream.spark.format('orc')"
        )


class OrcRows:
    """Row ranges read the file's stripes from its beginning on; parts of a whole file read their own."""

    def __init__(self, folder: InputFolder) -> None:
        self._folder = folder

    def cut(self, entry: FileEntry, at: Position, max_rows: int) -> Cut:
        try:
            with self._open(entry) as file:
                return cut_by_rows(file.nrows, entry, at, max_rows)
        except MalformedFileError:
            return Cut(0, None)

    def schema(self, entry: FileEntry) -> StructType:
        """As :meth:`ParquetRows.schema`."""
        with self._open(entry) as file:
            found = spark_schema(pa.schema([_as_in_spark(field) for field in file.schema]))
            noted = ((field.metadata or {}).get(_KIND, b"").decode() for field in file.schema)
            kinds = (f.dataType if n is None else n for f, n in zip(found, map(_interval, noted), strict=True))
            return StructType([StructField(name, kind) for name, kind in zip(found.names, kinds, strict=True)])

    def read(self, split: FileSplit, schema: pa.Schema) -> Iterator[pa.RecordBatch | Bad]:
        try:
            with self._open(split.entry) as file:
                columns = columns_of(file.schema, schema)
                # To Arrow a dot in a name leads into a struct: it reads that, or nothing, and conform() takes by name.
                chosen = None if any("." in name for name in columns) else columns
                yield from self._stripes(file, split, chosen, schema)
        except MalformedFileError as error:
            yield Bad("the file as a whole", "an ORC file", "something else", str(error))

    def _stripes(
        self, file: orc.ORCFile, split: FileSplit, columns: list[str] | None, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch | Bad]:
        first, stop = 0, file.nrows if split.row_end is None else split.row_end
        begin, end = (part * file.nstripes // split.parts for part in (split.part, split.part + 1))
        for stripe in range(begin, end):
            if first >= stop:
                return
            try:
                with _damaged():
                    batch = file.read_stripe(stripe, columns=columns)
            except MalformedFileError as error:
                # How many rows it had is not known, so neither is where others begin.
                yield Bad(f"stripe {stripe} and what follows", "a readable stripe", "damaged data", str(error))
                return
            low, high = max(split.row_start - first, 0), min(stop - first, batch.num_rows)
            if low < high:
                yield from converted(batch.slice(low, high - low), first + low, schema, _require_days)
            first += batch.num_rows

    @contextmanager
    def _open(self, entry: FileEntry) -> Iterator[orc.ORCFile]:
        with self._folder.open(entry.path) as raw:
            with _damaged():
                file = orc.ORCFile(raw)
            yield file


@contextmanager
def _damaged() -> Iterator[None]:
    """What ORC's own library finds, such as data that cannot be decompressed, Arrow has no word for."""
    with malformed():
        try:
            yield
        except pa.ArrowException as error:
            if type(error) is not pa.ArrowException:
                raise
            raise MalformedFileError(str(error)) from None


def _as_in_spark(field: pa.Field) -> pa.Field:
    """What Spark notes of a column that ORC has no type for; clocks are moments."""
    kind, noted = field.type, (field.metadata or {}).get(_KIND, b"")
    if noted == b"timestamp_ntz":
        return pa.field(field.name, pa.timestamp("us"))
    if noted.startswith((b"interval day", b"interval hour", b"interval minute", b"interval second")):
        return pa.field(field.name, pa.duration("us"))
    if pa.types.is_timestamp(kind):
        return pa.field(field.name, pa.timestamp("us", "UTC"))
    if pa.types.is_struct(kind):
        return pa.field(field.name, pa.struct([_as_in_spark(f) for f in kind]))
    if pa.types.is_list(kind):
        return pa.field(field.name, pa.list_(_as_in_spark(kind.value_field)))
    return pa.field(field.name, kind)


def _interval(noted: str) -> DataType | None:
    """The type of intervals that Spark notes, if it is one."""
    field = {"name": "c", "type": noted, "nullable": True, "metadata": {}}
    return StructType.fromJson({"fields": [field]})["c"].dataType if noted.startswith("interval") else None


def _has_moments(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_moments(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _require_days(rows: pa.RecordBatch) -> None:
    """Raises ``pyarrow.ArrowInvalid`` for days of another calendar."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        _require_gregorian(name, column)


def _require_gregorian(name: str, column: pa.Array) -> None:
    kind = column.type
    if pa.types.is_date32(kind):
        least = pc.min(column.cast(pa.int32())).as_py()
        if least is not None and least < _GREGORIAN:
            raise pa.ArrowInvalid(f"column '{name}': expected days from 1582-10-15 on, found one of the older calendar")
    elif pa.types.is_struct(kind) or pa.types.is_list(kind):
        for part in column.flatten() if pa.types.is_struct(kind) else [column.flatten()]:
            _require_gregorian(name, part)
    elif pa.types.is_map(kind):
        _require_gregorian(name, column.keys)
        _require_gregorian(name, column.items)
