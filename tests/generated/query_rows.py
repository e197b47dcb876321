"""What generated queries read: two streams whose event time goes on, with late rows and null times, a file a batch."""

from __future__ import annotations

import datetime as dt
import os
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.spark_versions.arrow_schemas import to_arrow_schema
from tests.generated.expressions import quoted

COLUMNS: dict[str, str] = {
    "id": "bigint",
    "k": "string",
    "n": "int",
    "d": "double",
    "s": "string",
    "flag": "boolean",
    "m": "decimal(9,2)",
    "day": "date",
    "t": "timestamp",
    "xs": "array<int>",
    "tags": "map<string,double>",
    "st": "struct<a:int,b:string>",
}
OTHER: dict[str, str] = {"oid": "bigint", "ok": "string", "on_": "int", "ot": "timestamp"}
THIRD: dict[str, str] = {"uid": "bigint", "uk": "string", "un": "int", "ut": "timestamp"}

_VALUES: dict[str, list[Any]] = {
    "k": ["a", "b", "c", "", None],
    "n": [0, 1, -1, 7, 2**31 - 1, None],
    "d": [0.0, -0.0, float("nan"), 1.5, -2.25, None],
    "s": ["", "a", "A", "ä", "x,y", "1", None],
    "flag": [True, False, None],
    "m": [Decimal("0.00"), Decimal("-0.01"), Decimal("12.50"), None],
    "day": [dt.date(2024, 2, 29), dt.date(1969, 12, 31), None],
    "xs": [[], [None], [1, None, 3], [2, 2], None],
    "tags": [[], [("a", 1.5)], [("a", None), ("b", -0.0)], None],
    "st": [{"a": 1, "b": "x"}, {"a": None, "b": "x"}, {"a": 1, "b": None}, None],
    "ok": ["a", "b", "", "z", None],
    "on_": [0, 1, 7, None],
    "uk": ["a", "b", "c", "z", None],
    "un": [0, 1, -1, None],
}
BEGIN = dt.datetime(2024, 3, 10, 5, 30, tzinfo=dt.timezone.utc)
"""Half an hour past midnight in New York, on the day that has no hour from two to three."""
STEP = dt.timedelta(minutes=50)
AHEAD = STEP * 6
_LEFT_OUT = ("", "z", None, -1, 2**31 - 1)
"""What filters leave out, in rows that may be ahead."""


def ddl(columns: dict[str, str]) -> str:
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())


def batches(
    chosen: random.Random, columns: dict[str, str], count: int, rows: int = 6, paced: bool = False, ahead: bool = False
) -> list[pa.Table]:
    """``count`` tables; one of them may be empty, and the first column counts the rows. ``paced``: none is, and the
    last row of each has a value in each column and the latest time, so that the streams' watermarks are the same.
    ``ahead``: rows with certain values are far ahead of the others."""
    number, made = 0, []
    for batch in range(count):
        size = 0 if batch and not paced and chosen.random() < 0.1 else rows
        values = [_row(chosen, columns, number + i, batch, paced and i == size - 1) for i in range(size)]
        number += size
        values = [_ahead(columns, row) if ahead and chosen.random() < 0.5 else row for row in values]
        schema = to_arrow_schema(parse_ddl(ddl(columns)))
        by_column = [pa.array([v[i] for v in values], field.type) for i, field in enumerate(schema)]
        made.append(pa.Table.from_arrays(by_column, schema=schema))
    return made


def _row(chosen: random.Random, columns: dict[str, str], number: int, batch: int, last: bool) -> list[Any]:
    return [
        number
        if name in ("id", "oid", "uid")
        else _time(chosen, batch, last)
        if kind == "timestamp"
        else chosen.choice([v for v in _VALUES[name] if v is not None] if last else _VALUES[name])
        for name, kind in columns.items()
    ]


def _ahead(columns: dict[str, str], row: list[Any]) -> list[Any]:
    telling = [value for name, value in zip(columns, row, strict=True) if name in ("k", "n", "ok", "on_")]
    if not any(value in _LEFT_OUT for value in telling):
        return row
    return [v + AHEAD if isinstance(v, dt.datetime) else v for v in row]


def _time(chosen: random.Random, batch: int, last: bool) -> dt.datetime | None:
    if last:
        return BEGIN + STEP * batch
    if chosen.random() < 0.1:
        return None
    late = dt.timedelta(minutes=chosen.choice([0, 0, 5, 20, 30, 75, 300]), microseconds=chosen.choice([0, 0, 1]))
    return BEGIN + STEP * batch - late


def write(folder: Path, tables: list[pa.Table], first: int = 0) -> None:
    """Each as a file, in an order that Spark sees, too."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(tables, first):
        path = folder / f"{number:03d}.parquet"
        hidden = folder / f".{path.name}"
        pq.write_table(rows, hidden)
        os.utime(hidden, (1_600_000_000 + number,) * 2)
        hidden.rename(path)
