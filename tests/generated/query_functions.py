"""Python functions that generated queries give to Spark, of rows and of groups of a batch. Pickled by value."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

COUNTED = "k string, rows long, least long"
BOTH = "rows long, words long"


def some_rows(frames: Any) -> Any:
    for frame in frames:
        yield frame[frame["id"] % 3 != 0]


def some_batches(batches: Any) -> Any:
    for batch in batches:
        yield batch.filter(pc.not_equal(pc.bit_wise_and(batch.column("id"), 3), 0))


def counted(key: tuple[Any, ...], frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"k": [key[0]], "rows": [len(frame)], "least": [frame["id"].min()]})


def counted_in_arrow(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
    return pa.table(
        {"k": pa.array([key[0].as_py()], pa.string()), "rows": [rows.num_rows], "least": [pc.min(rows["id"]).as_py()]}
    )


def both(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"rows": [len(left)], "words": [len(right)]})


NAMES = {f.__name__: f for f in (some_rows, some_batches, counted, counted_in_arrow, both)} | {
    "COUNTED": COUNTED,
    "BOTH": BOTH,
}
