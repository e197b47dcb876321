"""Rows as the text of an ``INSERT`` of many rows, made by Arrow without touching a row in Python.

What a driver would do to each value, and what takes most of its time. Literals as MariaDB and MySQL read them in our
sessions (backslashes escape).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_ckpt.sinks._arrow_text import decimals_as_text
from spark_ckpt.sinks.sql.types import as_text

MOST_CHARACTERS = 1 << 20
"""Of a statement, but for its last row; a server takes 16 MB at least."""

_TEXT = pa.large_string()
"""Small ones can address 2 GB only, of all values together."""
_ESCAPES = (("\\", "\\\\"), ("'", "\\'"), ("\0", "\\0"))


def inserts(head: str, rows: pa.Table) -> Iterator[str]:
    """Statements that begin with ``head`` (``INSERT INTO t (a, b) VALUES``) and have all of ``rows``."""
    columns: list[Any] = [_literal(column) for column in rows.columns]
    tuples = _join("(", _join(*columns, separator=","), ")")
    for chunk in tuples.chunks:
        # By what each row has: of rows of unlike sizes, the long ones may stand side by side.
        full = np.cumsum(pc.binary_length(chunk).to_numpy(zero_copy_only=False)) // MOST_CHARACTERS
        edges = [0, *(np.flatnonzero(np.diff(full)) + 1).tolist(), len(chunk)]
        for start, end in pairwise(edges):
            yield f"{head} {','.join(chunk.slice(start, end - start).to_pylist())}"


def _literal(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pt.is_boolean(kind):
        text = pc.if_else(column, "1", "0").cast(_TEXT)
    elif pt.is_binary(kind):
        text = pa.chunked_array([_hex(chunk) for chunk in column.chunks], _TEXT)
    elif pt.is_integer(kind) or pt.is_floating(kind):
        text = column.cast(_TEXT)
    elif pt.is_decimal(kind):
        text = decimals_as_text(column).cast(_TEXT)
    else:
        text = _join("'", _escaped(as_text(column).cast(_TEXT)), "'")
    return pc.fill_null(text, "NULL")


def _join(*parts: Any, separator: str = "") -> Any:
    made = [pa.scalar(part, _TEXT) if isinstance(part, str) else part for part in (*parts, separator)]
    return pc.binary_join_element_wise(*made)


def _escaped(text: Any) -> Any:
    for plain, escaped in _ESCAPES:
        text = pc.replace_substring(text, plain, escaped)
    return text


def _hex(column: pa.Array) -> pa.Array:
    return pa.array([None if v is None else f"x'{v.hex()}'" for v in column.to_pylist()], _TEXT)
