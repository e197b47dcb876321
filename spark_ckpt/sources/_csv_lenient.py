"""CSV by the rules of Spark's reader: missing values are null, more of them passed over, both make a record corrupt.

A block in which nothing is odd is read by Arrow, with the types of the schema. One in which Arrow finds something, or
might take something otherwise than Spark, is read as texts: by Arrow where quotes are plain, else as Spark's parser
divides a record.
"""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.types as pt

from spark_ckpt.expressions.time_texts import TimeTexts
from spark_ckpt.formats.csv_splitter import CsvSplitter
from spark_ckpt.formats.csv_values import csv_column
from spark_ckpt.formats.json_lines import Read, text_of
from spark_ckpt.sources._csv_bytes import has_blanks_at_sides, has_hexadecimals, none_is_escaped, quotes_are_plain
from spark_ckpt.sources._text_records import (
    BLANKS,
    Records,
    SparkRules,
    TextFormat,
    for_arrow,
    quotes_before,
)

_TEXT_BLANKS = BLANKS.decode()
_FEW = 16
_BOOLEANS = {"true_values": ["true", "True", "TRUE"], "false_values": ["false", "False", "FALSE"]}


class CsvRecords:
    """Executor. ``names`` are those of the values of a record, in order; a column that is not among them is null."""

    def __init__(self, fmt: TextFormat, rules: SparkRules, schema: pa.Schema, names: list[str], times: TimeTexts):
        self._fmt, self._rules, self._form, self._times = fmt, rules, rules.form, times
        self._schema, self._names = schema, names
        self._splitter = CsvSplitter(rules.form)
        self._blank_lines = len(names) == 1 or self._form.sep <= " "
        kinds = [field.type for field in schema if field.name in names and field.name != fmt.corrupt]
        self._trims = self._form.trim_left or self._form.trim_right
        self._numbers = any(not (pt.is_string(kind) or pt.is_binary(kind)) for kind in kinds)
        self._whole = any(pt.is_integer(kind) for kind in kinds)

    def read(self, records: Records) -> Read:
        """The rows of ``records``, in order; one of blanks, or a comment, is none. Raises nothing for what is there."""
        records = self._with_content(records)
        if not len(records):
            return Read(pa.RecordBatch.from_pylist([], schema=self._schema))
        plain = self._quotes_are_plain(records)
        if plain and not self._trims and not self._may_differ(records):
            try:
                return Read(self._in_arrow(records))
            except pa.ArrowInvalid:
                pass
        return self._as_texts(records, plain)

    # -- which way -----------------------------------------------------------------------------------------------

    def _with_content(self, records: Records) -> Records:
        chars = records.chars()
        first = chars[records.starts] if len(records) else chars[:0]
        kept = np.ones(len(records), np.bool_)
        if not self._fmt.multi_line:
            kept &= first != 0 if not self._form.comment else True
            odd = np.flatnonzero(first <= 32)
            if odd.size and (self._blank_lines or not self._form.sep.encode() <= b" "):
                blank = [n for n in odd.tolist() if not records.data[records.starts[n] : records.ends[n]].strip(BLANKS)]
                kept[blank] = False
        if self._form.comment:
            kept &= first != ord(self._form.comment)
        return records if kept.all() else records.only(kept)

    def _quotes_are_plain(self, records: Records) -> bool:
        """With no value over several records."""
        quote = self._form.quote.encode()
        if not quote or quote not in records.data:
            return True
        if not none_is_escaped(records.data, self._form) or not quotes_are_plain(records.chars(), self._form):
            return False
        before = quotes_before(records.chars(), records.ends, self._fmt)
        return not (before % 2).any()

    def _may_differ(self, records: Records) -> bool:
        """Whether Arrow may take a value otherwise than Spark, and say nothing; quotes are plain."""
        quote, data = self._form.quote.encode(), records.data
        if self._form.empty_value != self._form.null_value and quote and quote * 2 in data:
            return True
        if self._fmt.multi_line and b"\r" in data:
            return True
        chars = records.chars()
        return (self._whole and has_hexadecimals(chars)) or (
            self._numbers and has_blanks_at_sides(data, chars, self._form)
        )

    # -- by Arrow, with types ------------------------------------------------------------------------------------

    def _in_arrow(self, records: Records) -> pa.RecordBatch:
        """Raises ``pyarrow.ArrowInvalid`` if a value does not fit, or is written otherwise than most are."""
        wanted = {
            f.name: self._in_csv(f.type) for f in self._schema if f.name in self._names and f.name != self._fmt.corrupt
        }
        table = self._parsed(
            records.data,
            len(records),
            self._names,
            pa_csv.ConvertOptions(
                column_types=wanted,
                include_columns=list(wanted),
                null_values=["", self._form.null_value],
                strings_can_be_null=True,
                **_BOOLEANS,
            ),
        )
        columns = []
        for field in self._schema:
            if field.name in wanted:
                columns.append(self._typed(table.column(field.name).combine_chunks(), field.type))
            else:
                columns.append(pa.nulls(len(records), field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _in_csv(self, kind: pa.DataType) -> pa.DataType:
        """What Arrow reads of a column as Spark does, if it finds nothing odd in it; others are texts."""
        plain = pt.is_boolean(kind) or pt.is_integer(kind)
        plain = plain or (pt.is_floating(kind) and not self._rules.words.are_numbers())
        return kind if plain or (pt.is_date(kind) and self._times.date_pattern is None) else pa.string()

    def _typed(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        if pt.is_floating(column.type) and pc.all(pc.is_finite(column)).as_py() is False:
            raise pa.ArrowInvalid("words, or a number too large")
        if column.type.equals(kind):
            return column
        found = csv_column(column, kind, self._times, self._rules.words)
        if found.null_count > column.null_count:
            raise pa.ArrowInvalid("a value that does not fit")
        return found

    def _parsed(self, data: bytes, count: int, names: list[str], how: pa_csv.ConvertOptions) -> pa.Table:
        form = self._form
        data = for_arrow(data)
        table = pa_csv.read_csv(
            io.BytesIO(data),
            read_options=pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            parse_options=pa_csv.ParseOptions(
                delimiter=form.sep,
                quote_char=form.quote or False,
                double_quote=False,
                newlines_in_values=self._fmt.multi_line,
            ),
            convert_options=how,
        )
        if table.num_rows != count:
            raise pa.ArrowInvalid(f"{table.num_rows} rows in {count} record(s)")
        return table

    # -- as texts ------------------------------------------------------------------------------------------------

    def _as_texts(self, records: Records, plain: bool) -> Read:
        lines = self._lines(records)
        values, corrupt = self._values(lines, None if plain else self._odd(records, lines))
        columns: list[pa.Array | None] = []
        for field in self._schema:
            if field.name == self._fmt.corrupt:
                columns.append(None)
            elif field.name not in self._names:
                columns.append(pa.nulls(len(lines), field.type))
            else:
                texts = values[self._names.index(field.name)]
                found = csv_column(texts, field.type, self._times, self._rules.words)
                columns.append(found)
                corrupt = pc.or_(corrupt, pc.and_(found.is_null(), texts.is_valid()))
        said = pc.if_else(corrupt, self._shown(lines), pa.scalar(None, pa.string()))
        arrays = [said if column is None else column for column in columns]
        return Read(pa.RecordBatch.from_arrays(arrays, schema=self._schema), corrupt)

    def _lines(self, records: Records) -> pa.StringArray:
        """Without line ends, but where those count."""
        lines = records.lines()
        if self._fmt.multi_line:
            lines = pa.array(
                [records.data[a:b] for a, b in zip(records.starts.tolist(), records.ends.tolist(), strict=True)]
            )
        try:
            texts = lines.cast(pa.string())
        except pa.ArrowInvalid:
            texts = pa.array([text_of(line) for line in lines.to_pylist()], pa.string())
        return pc.replace_substring(texts, "\r\n", "\n") if self._fmt.multi_line else texts

    def _shown(self, lines: pa.StringArray) -> pa.StringArray:
        return pc.replace_substring_regex(lines, r"\n$", "") if self._fmt.multi_line else lines

    def _odd(self, records: Records, lines: pa.StringArray) -> npt.NDArray[np.bool_]:
        """Which records have quotes that are not plain."""
        form, chars = self._form, records.chars()
        if self._trims or form.empty_value != form.null_value:
            return np.asarray(pc.match_substring(lines, form.quote))
        quotes = np.flatnonzero(chars == ord(form.quote))
        of = np.searchsorted(records.ends, quotes, side="right")
        opens = (np.arange(len(quotes)) - np.searchsorted(quotes, records.starts)[of]) % 2 == 0
        sides = np.array([ord(form.sep), 10, 13], np.uint8)
        begins = np.isin(chars[quotes - 1], sides) | (quotes == 0)
        ends = np.isin(chars[np.minimum(quotes + 1, len(chars) - 1)], sides) | (quotes == len(chars) - 1)
        odd = np.bincount(of, minlength=len(records)) % 2 == 1
        odd[of[~np.where(opens, begins, ends)]] = True
        if not form.escape:
            odd |= np.asarray(pc.match_substring(lines, form.quote * 2))
        elif form.escape != form.quote:
            escaped = pc.and_(pc.match_substring(lines, form.escape), pc.match_substring(lines, form.quote))
            odd |= np.asarray(escaped)
        return odd

    def _values(self, lines: pa.StringArray, odd: npt.NDArray[np.bool_] | None) -> tuple[list[pa.Array], pa.Array]:
        """Texts column by column, and which records have too few of them or too many."""
        if self._trims and (self._form.empty_value != self._form.null_value):
            odd = np.ones(len(lines), np.bool_)
        plain = lines if odd is None else lines.filter(pa.array(~odd))
        columns, missed = self._split_by_arrow(plain)
        if odd is None and not missed.any():
            return columns, pa.array(np.zeros(len(lines), np.bool_))
        slow = np.zeros(len(lines), np.bool_) if odd is None else odd.copy()
        slow[np.flatnonzero(~slow)[missed]] = True
        texts, wrong = self._split_slowly(lines.filter(pa.array(slow)))
        at = np.where(slow, np.cumsum(slow) - 1 + int((~slow).sum()), np.cumsum(~slow) - 1)
        both = [pa.concat_arrays(pair).take(pa.array(at)) for pair in zip(columns, texts, strict=True)]
        corrupt = np.zeros(len(lines), np.bool_)
        corrupt[slow] = wrong
        return both, pa.array(corrupt)

    def _split_by_arrow(self, lines: pa.StringArray) -> tuple[list[pa.Array], npt.NDArray[np.bool_]]:
        """Columns of those that have as many values as there are names, and which have not."""
        missed = np.asarray(pc.not_equal(pc.count_substring(lines, self._form.sep), len(self._names) - 1))
        if self._form.quote:
            missed = missed & ~np.asarray(pc.match_substring(lines, self._form.quote))
        if len(self._names) == 1:
            missed = missed | np.asarray(pc.equal(lines, ""))
        fitting = lines.filter(pa.array(~missed)) if missed.any() else lines
        try:
            return self._texts_by_arrow(fitting), missed
        except pa.ArrowInvalid:
            if len(lines) <= _FEW:
                return self._texts_by_arrow(lines[:0]), np.ones(len(lines), np.bool_)
        middle = len(lines) // 2
        (first, odd), (second, odder) = self._split_by_arrow(lines[:middle]), self._split_by_arrow(lines[middle:])
        columns = [pa.concat_arrays(pair) for pair in zip(first, second, strict=True)]
        return columns, np.concatenate([odd, odder])

    def _texts_by_arrow(self, lines: pa.StringArray) -> list[pa.Array]:
        if not len(lines):
            return [pa.nulls(0, pa.string()) for _ in self._names]
        places = [str(n) for n in range(len(self._names))]
        how = pa_csv.ConvertOptions(
            column_types=dict.fromkeys(places, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        end = "" if self._fmt.multi_line else "\n"
        one = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
        data = pc.binary_join(one, end)[0].as_py().encode()
        table = self._parsed(data, len(lines), places, how)
        return [self._filled(self._trimmed(column.combine_chunks())) for column in table.columns]

    def _split_slowly(self, lines: pa.StringArray) -> tuple[list[pa.Array], npt.NDArray[np.bool_]]:
        count = len(self._names)
        nothing: list[str | None] = [None] * count
        found = [self._splitter.values(line) for line in lines.to_pylist()]
        rows = [([*one, *nothing])[:count] for one in found]
        columns = [self._with_nulls(pa.array([row[n] for row in rows], pa.string())) for n in range(count)]
        return columns, np.array([len(one) != count for one in found], np.bool_)

    def _trimmed(self, texts: pa.Array) -> pa.Array:
        if self._form.trim_left:
            texts = pc.utf8_ltrim(texts, characters=_TEXT_BLANKS)
        if self._form.trim_right:
            texts = pc.utf8_rtrim(texts, characters=_TEXT_BLANKS)
        return texts

    def _filled(self, texts: pa.Array) -> pa.Array:
        """``texts`` as Arrow tells them, nothing in quotes from nothing at all, with what stands for either."""
        form = self._form
        if form.empty_value:
            texts = pc.if_else(pc.equal(texts, ""), form.empty_value, texts)
        return self._with_nulls(texts)

    def _with_nulls(self, texts: pa.Array) -> pa.Array:
        return pc.if_else(pc.not_equal(texts, self._form.null_value), texts, pa.scalar(None, pa.string()))
