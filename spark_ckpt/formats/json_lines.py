"""JSON of files by the rules of Spark's file source in mode PERMISSIVE: an object a line, or an array of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions.time_texts import TimeTexts
from spark_ckpt.formats._json_plain import Rules
from spark_ckpt.formats._json_reader import JsonReader, decoded
from spark_ckpt.formats._json_scanner import JsonError
from spark_ckpt.formats._json_times import as_numbers, with_times
from spark_ckpt.formats._json_values import PartialError, rows_reader


@dataclass(frozen=True)
class Read:
    """Rows, and which of them are of records not all of which could be read; None: none of them."""

    rows: pa.RecordBatch
    bad: pa.BooleanArray | None = None

    def count_of_bad(self) -> int:
        return 0 if self.bad is None else int(self.bad.true_count)


class JsonLines:
    """Lines to rows of ``schema``. Executor; picklable. Column ``corrupt``, a string, if the schema has it, is a line's
    text where not all of it could be read. No line is bad; one of blanks is no row, an array a row for each element."""

    def __init__(self, schema: pa.Schema, corrupt: str, times: TimeTexts) -> None:
        self._schema, self._corrupt = schema, corrupt
        kind = pa.struct([f for f in schema if f.name != corrupt])
        self._rules = Rules(times, of_bytes=True)
        self._reader = JsonReader(kind, self._rules)

    def whole(self, data: bytes, count: int) -> Read | None:
        """Of ``count`` lines, each of which begins and ends as an object does, and has less than 1000 characters; None
        if one of them has to be looked at."""
        rows = self._reader.whole(data, count)
        return None if rows is None else Read(self._batch(rows, pa.nulls(len(rows), pa.string())))

    def read(self, lines: pa.BinaryArray) -> Read:
        """Of any lines, without their ends."""
        arrays = pc.match_substring_regex(lines, r"^[ \t\r\n]*\[")
        if not pc.any(arrays).as_py():
            return self._of_objects(lines)
        found = []
        ends = [*pc.indices_nonzero(arrays).to_pylist(), len(lines)]
        begin = 0
        for end in ends:
            found.append(self._of_objects(lines[begin:end]))
            if end < len(lines):
                found.append(self._of_array(lines[end].as_py()))
            begin = end + 1
        return self._together(found)

    def _together(self, parts: list[Read]) -> Read:
        rows = pa.Table.from_batches([part.rows for part in parts], self._schema).combine_chunks()
        bad = [pa.array(np.zeros(part.rows.num_rows, np.bool_)) if part.bad is None else part.bad for part in parts]
        batches = rows.to_batches()
        return Read(batches[0] if batches else pa.RecordBatch.from_pylist([], self._schema), pa.concat_arrays(bad))

    def _of_objects(self, lines: pa.BinaryArray) -> Read:
        found = self._reader.read(lines)
        bad = None
        texts = pa.nulls(len(lines), pa.string())
        if found.bad:
            which = np.zeros(len(lines), np.bool_)
            which[list(found.bad)] = True
            bad = pa.array(which)
            if self._schema.get_field_index(self._corrupt) >= 0:
                said = [decoded(lines[at].as_py()) if at in found.bad else None for at in range(len(lines))]
                texts = pa.array(said, pa.string())
        batch = self._batch(found.rows, texts)
        if not found.rows.null_count:
            return Read(batch, bad)
        there = found.rows.is_valid()
        return Read(batch.filter(there), None if bad is None else bad.filter(there))

    def _of_array(self, line: bytes) -> Read:
        rows: list[Any]
        text: str | None = decoded(line)
        try:
            rows, text = rows_reader(self._reader.type, self._rules)(decoded(line)), None
        except PartialError as partial:
            rows = partial.value
        except JsonError:
            rows = [{}]
        found = with_times(pa.array(rows, as_numbers(self._reader.type)), self._reader.type)
        bad = None if text is None else pa.array(np.ones(len(rows), np.bool_))
        return Read(self._batch(found, pa.array([text] * len(rows), pa.string())), bad)

    def _batch(self, rows: pa.StructArray, texts: pa.Array) -> pa.RecordBatch:
        columns = [rows.field(n) for n in range(rows.type.num_fields)]
        at = self._schema.get_field_index(self._corrupt)
        if at >= 0:
            columns.insert(at, texts)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def text_of(record: bytes) -> str:
    """UTF-8, and where it is none the characters that Java puts there."""
    return decoded(record)
