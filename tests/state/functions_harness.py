"""A call of the drop-in in one line, for tests of what its function gets and what is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.streaming.state import GroupState

from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, Changed, Touched
from spark_ckpt.state.functions.pandas_function import PandasStateFunction

CTX = CallContext(uid="sessions", subtask=3, checkpoint=7, processing_time_ms=1_000, watermark_ms=None)
KEYS = pa.schema([("k", pa.string())])
INPUT = pa.schema([("k", pa.string()), ("v", pa.int64())])
OUTPUT = pa.schema([("k", pa.string()), ("n", pa.int64())])
STATE = pa.schema([("n", pa.int64()), ("note", pa.string())])
PROCESSING, EVENT = "ProcessingTimeTimeout", "EventTimeTimeout"

UserFunction = Callable[[tuple[Any, ...], Any, GroupState], Any]


def function(func: UserFunction, timeout: str = "NoTimeout", **options: Any) -> PandasStateFunction:
    schemas = {"key_schema": KEYS, "input_schema": INPUT, "output_schema": OUTPUT, "state_schema": STATE} | options
    return PandasStateFunction(func, timeout=timeout, **schemas)


def touched(
    f: PandasStateFunction,
    keys: list[Any],
    rows: list[tuple[int, Any]] | pa.Table,
    state: dict[int, tuple[Any, ...]] | None = None,
    timed_out: tuple[int, ...] = (),
) -> Touched:
    """``rows``: (key index, v), or a table with a column ``_i``. ``state``: what is stored, by key index."""
    n, stored = len(keys), state or {}
    if not isinstance(rows, pa.Table):
        rows = pa.table(
            {"k": [keys[i] for i, _ in rows], "v": [v for _, v in rows], "_i": [i for i, _ in rows]},
            schema=INPUT.append(pa.field("_i", pa.int64())),
        )
    values = [dict(zip(f.state_schema.names, stored[i])) if i in stored else {} for i in range(n)]
    return Touched(
        keys=pa.table({"k": keys}, schema=f.key_schema),
        rows=rows.drop(["_i"]),
        key_index=rows["_i"].to_numpy(),
        state=pa.Table.from_pylist(values, schema=f.state_schema),
        exists=np.isin(np.arange(n), list(stored)),
        timed_out=np.isin(np.arange(n), timed_out),
        timeout_ms=np.full(n, NO_TIMEOUT, np.int64),
    )


def call(f: PandasStateFunction, *args: Any, ctx: CallContext = CTX, **kwargs: Any) -> Changed:
    changed = f.process(ctx, touched(f, *args, **kwargs))
    assert changed.state.schema.equals(f.state_schema)
    assert changed.output.schema.equals(f.output_schema)
    assert changed.state.num_rows == len(changed.write) == len(changed.remove) == len(changed.timeout_ms)
    return changed
