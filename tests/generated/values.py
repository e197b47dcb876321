"""Rows with a column of every type, nasty values included, in files of one batch each."""

from __future__ import annotations

import datetime as dt
import math
import os
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.spark_versions.arrow_schemas import to_arrow_schema

COLUMNS: dict[str, str] = {
    "id": "bigint",
    "k": "int",
    "flag": "boolean",
    "tiny": "tinyint",
    "small": "smallint",
    "n": "int",
    "big": "bigint",
    "f": "float",
    "d": "double",
    "m": "decimal(9,2)",
    "w": "decimal(38,10)",
    "s": "string",
    "t": "string",
    "b": "binary",
    "day": "date",
    "at": "timestamp",
    "loc": "timestamp_ntz",
    "xs": "array<int>",
    "tags": "map<string,double>",
    "st": "struct<a:int,b:string>",
}
"""Of every input. ``id`` counts the rows in the order they come, ``k`` has few values."""

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
ARROW = to_arrow_schema(parse_ddl(SCHEMA))

_UTC = dt.timezone.utc
_TEXTS = ["", " ", "null", "NULL", "a", "A", "a ", "ä", "ß", "ss", "1", "-0.0", "0.1", "1e2", "a,b", 'a"b', "a'b"]
_TEXTS += [
    "a\\b",
    "a\nb",
    "a\tb",
    "{}",
    "%",
    "%s",
    "$1",
    "漢字",
    "🦆",
    "\u0000",
    "\ufeff",
    "true",
    "2024-02-29",
    "x" * 300,
]


def _instants(*texts: str) -> list[dt.datetime]:
    return [dt.datetime.fromisoformat(text) for text in texts]


NASTY: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [0, 1, -1, 127, -128],
    "smallint": [0, 1, -1, 32767, -32768],
    "int": [0, 1, -1, 7, 2**31 - 1, -(2**31)],
    "bigint": [0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63)],
    "float": [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, 1e-45, 3.4028234663852886e38],
    "double": [0.0, -0.0, math.nan, math.inf, -math.inf, 0.1, 5e-324, 1.7976931348623157e308, -1e-300],
    "decimal(9,2)": [Decimal(x) for x in ("0.00", "0.01", "-0.01", "9999999.99", "-9999999.99")],
    "decimal(38,10)": [Decimal(x) for x in ("0E-10", "1E-10", "-1E-10", "1234567890123456789012345678.0123456789")],
    "string": _TEXTS,
    "binary": [b"", b"\x00", b"\xff\xfe", b"a", "ä".encode(), bytes(range(256))],
    "date": [dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2024, 2, 29)],
    # The hours that New York has twice, and not at all; before 1970; microseconds.
    "timestamp": [
        t.replace(tzinfo=_UTC)
        for t in _instants(
            "2024-11-03T05:30:00",
            "2024-11-03T06:30:00",
            "2024-03-10T07:00:00",
            "1970-01-01T00:00:00.000001",
            "1969-12-31T23:59:59.999999",
            "1900-01-01T00:00:00",
            "2999-12-31T23:59:59",
        )
    ],
    "timestamp_ntz": _instants(
        "2024-03-10T02:30:00",
        "2024-11-03T01:30:00",
        "1970-01-01T00:00:00",
        "1969-12-31T23:59:59.999999",
        "1900-01-01T00:00:00.000001",
        "2999-12-31T23:59:59",
    ),
    "array<int>": [[], [None], [1, None, 3], [2**31 - 1], [0] * 5],
    "map<string,double>": [[], [("a", 1.5)], [("a", None), ("", -0.0)], [("ä", math.nan)]],
    "struct<a:int,b:string>": [{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": -1, "b": ""}],
}

_DRAWN: dict[str, st.SearchStrategy[Any]] = {
    "tinyint": st.integers(-128, 127),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "decimal(9,2)": st.decimals(-1000, 1000, places=2),
    "string": st.text(st.characters(codec="utf-8"), max_size=8),
    "binary": st.binary(max_size=8),
    "date": st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1)),
    "timestamp": st.datetimes(dt.datetime(1900, 1, 2), dt.datetime(2100, 1, 1), timezones=st.just(_UTC)),
    "timestamp_ntz": st.datetimes(dt.datetime(1900, 1, 2), dt.datetime(2100, 1, 1)),
    "array<int>": st.lists(st.none() | st.integers(-5, 5), max_size=3),
}

Pools = dict[str, list[Any]]


@st.composite
def pools(draw: st.DrawFn) -> Pools:
    """A few more values of each type, drawn by Hypothesis."""
    return {kind: draw(st.lists(values, max_size=3)) for kind, values in _DRAWN.items()}


def table(chosen: random.Random, drawn: Pools, rows: int) -> pa.Table:
    columns: list[list[Any]] = [list(range(rows)), [chosen.choice([0, 1, 2, None]) for _ in range(rows)]]
    for kind in list(COLUMNS.values())[2:]:
        values = NASTY[kind] + drawn.get(kind, []) * 2
        # Few values in some columns, so that keys repeat.
        few = chosen.sample(values, min(len(values), chosen.choice([2, 4, 30])))
        columns.append([None if chosen.random() < 0.15 else chosen.choice(few) for _ in range(rows)])
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)]
    return pa.Table.from_arrays(arrays, schema=ARROW)


def write_batches(folder: Path, rows: pa.Table, batches: int) -> None:
    """``rows`` as files, each of them one batch."""
    folder.mkdir(parents=True)
    size = max(1, math.ceil(rows.num_rows / batches))
    for number, start in enumerate(range(0, rows.num_rows, size)):
        path = folder / f"{number:03d}.parquet"
        pq.write_table(rows.slice(start, size), path)
        os.utime(path, (1_600_000_000 + number,) * 2)
