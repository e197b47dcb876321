"""CSV by Spark's mode PERMISSIVE: missing values are null, more of them are passed over, both make a record corrupt."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from spark_ckpt.expressions.time_texts import TimeTexts
from spark_ckpt.formats.csv_values import csv_column
from spark_ckpt.sources._text_records import TextFormat

_FEW = 16


class CsvRecords:
    """Executor. ``names`` are those of the values of a record, in order; a column that is not among them is null."""

    def __init__(self, fmt: TextFormat, schema: pa.Schema, names: list[str], times: TimeTexts) -> None:
        self._fmt, self._schema, self._names, self._times = fmt, schema, names, times

    def read(self, lines: pa.BinaryArray) -> pa.RecordBatch:
        """The rows of ``lines``, records without their line breaks, in order; a record of blanks is no row."""
        lines = lines.filter(pc.match_substring_regex(lines, r"[^\x00-\x20]"))
        values, corrupt = self._values(lines)
        columns: list[pa.Array | None] = []
        for field in self._schema:
            if field.name == self._fmt.corrupt:
                columns.append(None)
            elif field.name not in self._names:
                columns.append(pa.nulls(len(lines), field.type))
            else:
                texts = values[self._names.index(field.name)]
                found = csv_column(texts, field.type, self._times)
                columns.append(found)
                corrupt = pc.or_(corrupt, pc.and_(found.is_null(), texts.is_valid()))
        said = pc.if_else(corrupt, _texts(lines), pa.scalar(None, pa.string()))
        arrays = [said if column is None else column for column in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _values(self, lines: pa.BinaryArray) -> tuple[list[pa.Array], pa.Array]:
        """Texts column by column, and which records have too few of them or too many."""
        try:
            return self._by_arrow(lines), pa.array([False] * len(lines), pa.bool_())
        except pa.ArrowInvalid:
            pass
        if len(lines) <= _FEW:
            return self._slowly(lines)
        middle = len(lines) // 2
        (first, odd), (second, odder) = self._values(lines[:middle]), self._values(lines[middle:])
        return [pa.concat_arrays(pair) for pair in zip(first, second, strict=True)], pa.concat_arrays([odd, odder])

    def _by_arrow(self, lines: pa.BinaryArray) -> list[pa.Array]:
        if not len(lines):
            return [pa.nulls(0, pa.string()) for _ in self._names]
        places = [str(n) for n in range(len(self._names))]
        table = pa_csv.read_csv(
            io.BytesIO(b"\n".join(lines.to_pylist())),
            read_options=pa_csv.ReadOptions(use_threads=False, block_size=1 << 30, column_names=places),
            parse_options=pa_csv.ParseOptions(
                delimiter=self._fmt.sep, quote_char=self._fmt.quote, newlines_in_values=self._fmt.multi_line
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(places, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        if table.num_rows != len(lines):
            raise pa.ArrowInvalid(f"{table.num_rows} rows in {len(lines)} record(s)")
        return [self._with_nulls(column.combine_chunks()) for column in table.columns]

    def _slowly(self, lines: pa.BinaryArray) -> tuple[list[pa.Array], pa.Array]:
        count = len(self._names)
        found = [self._split(line) for line in _texts(lines).to_pylist()]
        rows = [(one + [None] * count)[:count] for one in found]
        columns = [self._with_nulls(pa.array([row[n] for row in rows], pa.string())) for n in range(count)]
        return columns, pa.array([len(one) != count for one in found], pa.bool_())

    def _split(self, line: str) -> list[str | None]:
        """The values of a record; None for one of which nothing is written."""
        sep, quote = self._fmt.sep, self._fmt.quote
        found: list[str | None] = []
        at = 0
        while True:
            if line[at : at + 1] == quote:
                value, at = _quoted(line, at + 1, quote)
                end = line.find(sep, at)
                end = len(line) if end < 0 else end
                found.append(value + line[at:end])
            else:
                end = line.find(sep, at)
                end = len(line) if end < 0 else end
                found.append(line[at:end] or None)
            if end == len(line):
                return found
            at = end + 1

    def _with_nulls(self, texts: pa.Array) -> pa.Array:
        return pc.if_else(pc.equal(texts, self._fmt.null_value), pa.scalar(None, pa.string()), texts)


def _quoted(line: str, at: int, quote: str) -> tuple[str, int]:
    """What stands in quotes, and where it ends."""
    parts: list[str] = []
    while True:
        end = line.find(quote, at)
        if end < 0:
            return "".join([*parts, line[at:]]), len(line)
        parts.append(line[at:end])
        if line[end + 1 : end + 2] != quote:
            return "".join(parts), end + 1
        parts.append(quote)
        at = end + 2


def _texts(lines: pa.BinaryArray) -> pa.Array:
    try:
        return lines.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([line.decode(errors="replace") for line in lines.to_pylist()], pa.string())
