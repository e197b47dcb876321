"""JSON of files by the rules of Spark's file source in mode PERMISSIVE: an object a line, or an array of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions.time_texts import TimeTexts
from spark_ckpt.formats._json_plain import Rules
from spark_ckpt.formats._json_reader import JsonReader, decoded
from spark_ckpt.formats._json_scanner import JsonError
from spark_ckpt.formats._json_times import as_numbers, with_times
from spark_ckpt.formats._json_values import PartialError, rows_reader


class JsonLines:
    """Lines to rows of ``schema``. Executor; picklable. Column ``corrupt``, a string, if the schema has it, is a line's
    text where not all of it could be read. No line is bad; one of blanks is no row, an array a row for each element."""

    def __init__(self, schema: pa.Schema, corrupt: str, times: TimeTexts) -> None:
        self._schema, self._corrupt = schema, corrupt
        kind = pa.struct([f for f in schema if f.name != corrupt])
        self._rules = Rules(times, of_bytes=True)
        self._reader = JsonReader(kind, self._rules)

    def read(self, lines: pa.BinaryArray) -> pa.RecordBatch:
        arrays = pc.match_substring_regex(lines, r"^[ \t\r\n]*\[")
        if not pc.any(arrays).as_py():
            return self._of_objects(lines)
        batches = []
        ends = [*pc.indices_nonzero(arrays).to_pylist(), len(lines)]
        begin = 0
        for end in ends:
            batches.append(self._of_objects(lines[begin:end]))
            if end < len(lines):
                batches.append(self._of_array(lines[end].as_py()))
            begin = end + 1
        return pa.Table.from_batches(batches, self._schema).combine_chunks().to_batches(len(lines) * 1000)[0]

    def _of_objects(self, lines: pa.BinaryArray) -> pa.RecordBatch:
        found = self._reader.read(lines)
        said = (
            [decoded(lines[at].as_py()) if at in found.bad else None for at in range(len(lines))] if found.bad else []
        )
        texts = pa.array(said, pa.string()) if said else pa.nulls(len(lines), pa.string())
        batch = self._batch(found.rows, texts)
        return batch.filter(found.rows.is_valid()) if found.rows.null_count else batch

    def _of_array(self, line: bytes) -> pa.RecordBatch:
        rows: list[Any]
        text: str | None = decoded(line)
        try:
            rows, text = rows_reader(self._reader.type, self._rules)(decoded(line)), None
        except PartialError as partial:
            rows = partial.value
        except JsonError:
            rows = [{}]
        found = with_times(pa.array(rows, as_numbers(self._reader.type)), self._reader.type)
        return self._batch(found, pa.array([text] * len(rows), pa.string()))

    def _batch(self, rows: pa.StructArray, texts: pa.Array) -> pa.RecordBatch:
        columns = [rows.field(n) for n in range(rows.type.num_fields)]
        at = self._schema.get_field_index(self._corrupt)
        if at >= 0:
            columns.insert(at, texts)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
