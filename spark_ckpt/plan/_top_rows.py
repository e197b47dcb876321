"""The first rows of each key: ``row_number()`` over a window that is filtered, and ``topN``. Driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as T

from spark_ckpt.plan._event_time import event_time
from spark_ckpt.plan._keyed_operator import KeyedRows, Upstream, keyed_rows
from spark_ckpt.plan._ordering import check_orderable
from spark_ckpt.plan.key_columns import Keys, arrow_columns, stored_name
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.state.functions.distinct_rows import Expiry
from spark_ckpt.state.topn.changes import Changes
from spark_ckpt.state.topn.function import STATE_COLUMNS, TopN
from spark_ckpt.state.topn.ordering import OrderBy
from spark_ckpt.state.topn.updates import TopNOfUpdates


@dataclass(frozen=True)
class FirstRows:
    """What is asked of rows. ``keys`` and ``order`` go by columns of theirs, ``shown`` come out. ``merged``: where rows
    are updates, the columns by which a newer row takes the place of an older one, beside the keys; ``removed_by`` says
    which rows are removals."""

    n: int
    keys: Sequence[str]
    order: Sequence[OrderBy]
    shown: Sequence[str]
    rank: str | None
    change: str | None
    merged: Sequence[str] | None = None
    removed_by: str | None = None


def first_rows_of_keys(
    upstream: Upstream, uid: str | None, asked: FirstRows, method: str, mode: str | None
) -> KeyedRows:
    """The operator behind rows whose columns have names of their own; the keys are columns of theirs."""
    names = upstream.schema.names
    keys = Keys.of_columns([upstream.schema[name] for name in asked.keys]).named_for(names, STATE_COLUMNS)
    function = top_n(upstream.schema, asked, keys, method)
    return keyed_rows(upstream, uid, function, names, keys, mode)


def top_n(schema: T.StructType, asked: FirstRows, keys: Keys, method: str) -> TopN:
    """Of rows of ``schema``. Raises ``InvalidInputError`` for what cannot be ordered by."""
    for by in asked.order:
        check_orderable(method, by.column, schema[by.column].dataType)
    needed, time = [c for c in schema.names if c != asked.removed_by], event_time(schema, method)
    how: dict[str, Any] = {
        "changes": Changes(arrow_columns(schema, list(asked.shown)), asked.rank, asked.change),
        "plain_keys": keys.columns,
        "watermark": time is not None,
        "expiry": None if time is None or time.name not in keys.columns else Expiry(time.name),
        "stored_as": {name: stored_name(name) for name in needed},
    }
    row = (asked.n, asked.order, arrow_schema(keys.schema), arrow_columns(schema, needed))
    if asked.merged is None:
        return TopN(*row, **how)
    sub_keys = {name: stored_name(name) for name in asked.merged}
    return TopNOfUpdates(*row, merge_keys=sub_keys, removed_by=asked.removed_by, **how)
