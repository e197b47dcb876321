"""Rows by the values of partition columns: a staged file for each combination, as of Spark's ``partitionBy``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_ckpt.errors import BadRowError, InvalidInputError
from spark_ckpt.sinks import staging
from spark_ckpt.sinks._arrow_text import decimals_as_text, texts_of_days
from spark_ckpt.sinks.base import SinkWriter

_BUFFER_ROWS = 1024 * 1024
_BUFFER_BYTES = 256 * 1024 * 1024
_DEFAULT = "__HIVE_DEFAULT_PARTITION__"
MOST_BYTES = 255
"""Of one name in a folder, on nearly every file system."""
_ESCAPED = {*(chr(c) for c in range(1, 0x20)), *"\x7f\"#%'*/:=?\\{[]^"}
Values = tuple[str | None, ...]


def check_partitions(columns: Sequence[str], schema: pa.Schema) -> None:
    """Raises ``InvalidInputError`` for columns that rows of ``schema`` cannot be partitioned by."""
    staging.require_columns("partitionBy", columns, schema)
    if columns and len(columns) == len(schema):
        raise InvalidInputError("partitionBy names all columns: expected one at least that is left for the files")
    for name in columns:
        kind = schema.field(name).type
        plain = pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_decimal(kind) or pt.is_date(kind)
        if not (plain or pt.is_string(kind) or pt.is_large_string(kind)):
            raise InvalidInputError(
                f"partitionBy: column '{name}' has type {kind}; expected a string, a whole number, a decimal, a "
                "boolean or a date. Cast it, such as F.col(...).cast('date') or .cast('string')"
            )


def without(columns: Sequence[str], schema: pa.Schema) -> pa.Schema:
    """What the files hold: the partition columns are in their place."""
    return pa.schema([f for f in schema if f.name not in columns])


def folder_of(columns: Sequence[str], values: Values) -> str:
    """The place of a file, as Hive and Spark read it: ``day=2026-01-01/city=Ulm``. Raises ``BadRowError`` for
    values that no folder can be named by: the task finds it, and not a commit."""
    return "/".join(_folder(c, v) for c, v in zip(columns, values, strict=True))


def refuse_folders(columns: Sequence[str], batch: pa.RecordBatch) -> None:
    """Raises ``BadRowError`` for values that no folder can be named by."""
    rows = pa.Table.from_batches([batch])
    for column in columns:
        for value in pc.unique(_texts(rows.column(column))).to_pylist():
            _folder(column, value)


def _folder(column: str, value: str | None) -> str:
    name = f"{_escaped(column)}={_escaped(value) if value else _DEFAULT}"
    if "\0" in name:
        problem = "a NUL character in it"
    elif len(name.encode()) > MOST_BYTES:
        problem = f"a name of {len(name.encode())} bytes, where a folder's has at most {MOST_BYTES}"
    else:
        return name
    raise BadRowError(
        f"partitionBy: a value of column '{column}' makes {problem}; filter such rows out, or partition by a column "
        "with shorter values, such as a hash or the first letters of it"
    )


def _escaped(text: str) -> str:
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in text)


class PartitionedWriter(SinkWriter):
    """Gathers rows and writes a file for each combination of values, one after the other, so that few are open.

    ``opened`` makes the writer of one file: of these values, and the how manieth of this task. Where what is written
    replaces what is there, having no rows needs a file, too.
    """

    def __init__(
        self,
        columns: Sequence[str],
        opened: Callable[[Values, int], SinkWriter],
        replacing: bool = False,
    ) -> None:
        self._replacing = replacing
        self._columns, self._opened = list(columns), opened
        self._chunks = staging.Chunks(_BUFFER_ROWS, _BUFFER_BYTES)
        self._staged: list[bytes] = []
        self._files = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._put(self._chunks.add(batch))

    def prepare_commit(self) -> Sequence[bytes]:
        self._put(self._chunks.rest())
        if self._replacing and not self._staged:
            self._write((None,) * len(self._columns), [])
        return self._staged

    def close(self) -> None:
        pass  # each file's writer is closed when the file is written

    def _put(self, rows: pa.Table | None) -> None:
        for values, part in () if rows is None else split(rows, self._columns):
            self._write(values, part.to_batches())

    def _write(self, values: Values, batches: Sequence[pa.RecordBatch]) -> None:
        writer = self._opened(values, self._files)
        self._files += 1
        try:
            for batch in batches:
                writer.write(batch)
            self._staged.extend(writer.prepare_commit())
        finally:
            writer.close()


def split(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Values, pa.Table]]:
    """``rows`` without ``columns`` by the texts of those; an empty text is null, as in Hive and Delta."""
    texts = [_texts(rows.column(c)) for c in columns]
    names = [f"p{i}" for i in range(len(columns))]
    numbered = pa.table([*texts, pa.array(np.arange(len(rows)))], [*names, "row"])
    groups = numbered.group_by(names, use_threads=False).aggregate([("row", "list")])
    data = rows.drop_columns(list(columns))
    for group in groups.to_batches():
        for i in range(group.num_rows):
            yield tuple(group.column(n)[i].as_py() for n in names), data.take(group.column("row_list")[i].values)


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pt.is_date(column.type):
        return texts_of_days(column)
    texts = decimals_as_text(column) if pt.is_decimal(column.type) else column.cast(pa.string())
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
