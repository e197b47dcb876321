"""From a file split to record batches: Parquet by rows and row groups, JSON and CSV by records. Executor.

The driver uses :func:`cut` of the same readers to learn how many rows a file holds when ``maxRowsPerTrigger`` asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from spark_ckpt.errors import BadRecordError
from spark_ckpt.formats.json_texts import json_texts
from spark_ckpt.sources._bad_records import Bad, MalformedFileError, OtherHeader, Unread, salvage
from spark_ckpt.sources._compressed import opened
from spark_ckpt.sources._convert import MAX_BATCH_ROWS, conform
from spark_ckpt.sources._file_lenient import Lenient, lenient_parser
from spark_ckpt.sources._file_listing import FileEntry, InputFolder
from spark_ckpt.sources._file_plan import Cut, FileSplit, Position
from spark_ckpt.sources._parquet_schema import schema_in
from spark_ckpt.sources._text_records import FAILFAST, PERMISSIVE, Records, TextFormat, chunks, content_ends, data_start
from spark_ckpt.sources.file_text import TextParser, require_values
from spark_ckpt.sources.old_calendar import Modes, rebase_of


class FileRows(Protocol):
    """Reads one format. Malformed data raises nothing: ``read`` yields ``Bad`` for it, ``cut`` counts it as no rows."""

    def read(self, split: FileSplit, schema: pa.Schema) -> Iterator[pa.RecordBatch | Bad | Unread | OtherHeader]:
        """The rows of ``split``. Raises ``FileNotFoundError``."""
        ...

    def cut(self, entry: FileEntry, at: Position, max_rows: int) -> Cut:
        """What at most ``max_rows`` rows from ``at`` on are. Raises ``FileNotFoundError``."""
        ...


class ParquetRows:
    """Row ranges read only the row groups they touch."""

    def __init__(self, folder: InputFolder, stream: bool, modes: Modes | None = None) -> None:
        self._folder = folder
        self._stream = stream
        self._modes = modes or Modes()

    def cut(self, entry: FileEntry, at: Position, max_rows: int) -> Cut:
        try:
            with self.open(entry) as file:
                return cut_by_rows(file.metadata.num_rows, entry, at, max_rows)
        except MalformedFileError:
            return Cut(0, None)

    def read(self, split: FileSplit, schema: pa.Schema) -> Iterator[pa.RecordBatch | Bad]:
        try:
            with self.open(split.entry) as file:
                columns = columns_of(file.schema_arrow, schema)
                rebase = rebase_of(file, self._modes, self._folder.shown(split.entry.path))
                for group, first, low, high in _row_groups(file, split):
                    for found in self._group(file, group, (first, low, high), columns):
                        if isinstance(found, Bad):
                            yield found
                        else:
                            number, batch = found
                            yield from converted(batch if rebase is None else rebase(batch), number, schema)
        except MalformedFileError as error:
            yield Bad("the file as a whole", "a Parquet file", "something else", str(error))

    def schema(self, entry: FileEntry) -> StructType:
        """Raises ``MalformedFileError``, ``FileNotFoundError``, ``ConfigError`` for a type that Spark lacks."""
        with self.open(entry) as file:
            return schema_in(file)

    @contextmanager
    def open(self, entry: FileEntry) -> Iterator[pq.ParquetFile]:
        with self._folder.open(entry.path) as raw:
            with malformed():
                file = pq.ParquetFile(raw, coerce_int96_timestamp_unit="us")
            yield file

    def _group(
        self, file: pq.ParquetFile, group: int, rows: tuple[int, int, int], columns: list[str]
    ) -> Iterator[tuple[int, pa.RecordBatch] | Bad]:
        """``rows``: the number of the group's first row in the file, and which rows are wanted, ``[low, high)``. Each
        batch comes with the number of its first.

        If bad data is skipped, a group is decoded as a whole before any of it counts: whether its rows are skipped
        must not depend on the range that a batch asks for.
        """
        first, begin, end = rows
        try:
            batches = file.iter_batches(MAX_BATCH_ROWS, row_groups=[group], columns=columns)
            with malformed():
                found = batches if self._stream else list(batches)
            for batch in _guarded(found):
                if first >= end:
                    break
                low, high = max(begin - first, 0), min(end - first, batch.num_rows)
                if low < high:
                    yield first + low, batch.slice(low, high - low)
                first += batch.num_rows
        except MalformedFileError as error:
            yield Bad(f"row group {group}", "a readable row group", "damaged data", str(error))


class TextRows:
    """JSON lines, CSV and plain text, compressed or not."""

    def __init__(self, folder: InputFolder, fmt: TextFormat) -> None:
        self._folder = folder
        self._fmt = fmt

    def cut(self, entry: FileEntry, at: Position, max_rows: int) -> Cut:
        """Reads as far as the batch will: the driver sees every byte of a file that is split by rows once."""
        rows, stop = 0, 0
        try:
            with self.open(entry) as file:
                begin = max(at.byte, data_start(file, self._fmt)[0])
                for place, data in chunks(file, begin, None, self._fmt):
                    _, ends = content_ends(data, self._fmt)
                    if rows + ends.size > max_rows:
                        stop = place + int(ends[max_rows - rows - 1]) if rows < max_rows else stop
                        return Cut(max_rows, Position(at.file, at.row + max_rows, stop))
                    rows, stop = rows + int(ends.size), place + len(data)
        except MalformedFileError:
            pass  # what is readable before the damage counts; reading reports the rest
        return Cut(rows, None)

    def read(self, split: FileSplit, schema: pa.Schema) -> Iterator[pa.RecordBatch | Bad | Unread | OtherHeader]:
        row = split.row_start
        try:
            with self.open(split.entry) as file:
                begin, header = data_start(file, self._fmt)
                if header == []:
                    return
                parser = TextParser(self._fmt, schema, header)
                lenient = lenient_parser(self._fmt, schema, parser.names)
        except MalformedFileError as error:
            yield Bad("at its beginning", f"a {self._fmt.kind} file", "something else", str(error))
            return
        if parser.other_header is not None:
            yield parser.other_header
        unread = [0]
        try:
            with self.open(split.entry) as file:
                for place, data in chunks(file, max(begin, split.byte_start), split.byte_end, self._fmt):
                    records = Records(data, *content_ends(data, self._fmt))
                    if lenient is not None:
                        yield from self._by_sparks_rules(lenient, parser, records, place, row, unread)
                    else:
                        yield from self._convert(parser, records, place, row)
                    row += len(records)
        except MalformedFileError as error:
            yield Bad(f"behind record {row}", f"a {self._fmt.kind} file", "something else", str(error))
        if unread[0]:
            kept = self._fmt.sparks is not None and self._fmt.sparks.mode == PERMISSIVE
            yield Unread(unread[0], row - split.row_start, tuple(schema.names), kept)

    def _by_sparks_rules(
        self, lenient: Lenient, parser: TextParser, records: Records, place: int, row: int, unread: list[int]
    ) -> Iterator[pa.RecordBatch | Bad | Unread]:
        found = lenient.read(records)
        mode = self._fmt.sparks.mode if self._fmt.sparks is not None else PERMISSIVE
        if not found.count_of_bad():
            yield found.rows
        elif mode == FAILFAST:

            def attempt(low: int, high: int) -> pa.RecordBatch:
                part = lenient.read(records.part(low, high))
                if part.count_of_bad():
                    raise pa.ArrowInvalid("mode FAILFAST, and it does not fit")
                return part.rows

            yield from salvage(len(records), attempt, describer(parser, records, place, row))
        else:
            unread[0] += found.count_of_bad()
            yield found.rows if mode == PERMISSIVE else found.rows.filter(pc.invert(found.bad))

    def open(self, entry: FileEntry) -> AbstractContextManager[IO[bytes]]:
        return opened(lambda: self._folder.fs.open(entry.path, "rb"), entry.path)

    def _convert(
        self, parser: TextParser, records: Records, place: int, row: int
    ) -> Iterator[pa.RecordBatch | Bad | Unread]:
        data, starts, ends = records.data, records.starts.tolist(), records.ends.tolist()

        def attempt(low: int, high: int) -> pa.RecordBatch:
            return parser.parse(data[starts[low] : ends[high - 1]], high - low)

        for found in salvage(len(starts), attempt, describer(parser, records, place, row)):
            if not (isinstance(found, Bad) and not found.found.strip()):  # a line of blanks is no record
                yield found


def describer(parser: TextParser, records: Records, place: int, row: int) -> Callable[[int, str], Bad]:
    """Tells of a bad record, the how manieth of ``records``, which begin at byte ``place`` behind ``row`` others."""

    def describe(record: int, reason: str) -> Bad:
        start = int(records.starts[record])
        found = records.data[start : int(records.ends[record])].decode(errors="backslashreplace").rstrip("\r\n")
        return Bad(f"record {row + record + 1} (byte {place + start})", parser.expected(), found, reason)

    return describe


def cut_by_rows(total: int, entry: FileEntry, at: Position, max_rows: int) -> Cut:
    """Of a file of ``total`` rows, whose place between them is told in rows."""
    if total - at.row <= max_rows:
        return Cut(max(0, total - at.row), None)
    row = at.row + max_rows
    return Cut(max_rows, Position(at.file, row, entry.size * row // total))


def converted(
    batch: pa.RecordBatch, first: int, schema: pa.Schema, require: Callable[[pa.RecordBatch], None] = lambda _: None
) -> Iterator[pa.RecordBatch | Bad]:
    """``batch``, whose first row is number ``first`` of its file, as ``schema``.

    ``require`` raises ``pyarrow.ArrowInvalid``.
    """

    def attempt(low: int, high: int) -> pa.RecordBatch:
        found = conform(batch.slice(low, high - low), schema, fill_missing=True)
        require_values(found)
        require(found)
        return found

    def describe(row: int, reason: str) -> Bad:
        expected = f"columns ({', '.join(f'{f.name} {f.type}' for f in schema)})"
        return Bad(f"row {first + row + 1}", expected, _shown(batch.slice(row, 1)), reason)

    yield from salvage(batch.num_rows, attempt, describe)


def _shown(row: pa.RecordBatch) -> str:
    try:
        return str(row.to_pylist()[0])
    except (OverflowError, ValueError):  # a day or a moment that Python has no object for
        return str(json_texts(row.to_struct_array())[0])


def columns_of(found: pa.Schema, schema: pa.Schema) -> list[str]:
    """The file's columns that the schema names. Raises ``MalformedFileError`` if it cannot be a file of that schema."""
    wanted = {name.lower(): name for name in reversed(schema.names)}
    columns = [name for name in found.names if name in schema.names or name.lower() in wanted]
    if not columns:
        raise MalformedFileError(f"it has columns {found.names}, none of {schema.names}")
    try:
        nothing = [pa.nulls(0, found.field(name).type) for name in columns]
        conform(pa.RecordBatch.from_arrays(nothing, names=columns), schema, fill_missing=True)
    except (BadRecordError, pa.ArrowInvalid) as error:
        raise MalformedFileError(str(error)) from None
    return columns


def _row_groups(file: pq.ParquetFile, split: FileSplit) -> Iterator[tuple[int, int, int, int]]:
    """Group, its first row, and the rows ``[low, high)`` wanted of it, for every group the split touches."""
    count, first = file.metadata.num_row_groups, 0
    groups = range(split.part * count // split.parts, (split.part + 1) * count // split.parts)
    stop = file.metadata.num_rows if split.row_end is None else split.row_end
    for group in range(count):
        rows = file.metadata.row_group(group).num_rows
        low, high = max(first, split.row_start), min(first + rows, stop)
        if group in groups and low < high:
            yield group, first, low, high
        first += rows


@contextmanager
def malformed() -> Iterator[None]:
    """Arrow's word for a damaged file is ArrowInvalid, or an OSError without a number; one with a number is real."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise MalformedFileError(str(error)) from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise MalformedFileError(str(error)) from None


def _guarded(batches: Any) -> Iterator[pa.RecordBatch]:
    iterator = iter(batches)
    while True:
        with malformed():
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch
