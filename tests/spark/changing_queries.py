"""Keyed operators of every kind, written for a :class:`Shape`: each puts out (kind, key, value, op), keys once.

Nothing here is a method or a name of this module to Spark's workers: functions are made where they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from tests.spark.changing_models import KEYS, Chain, Field, Model, Once, Pairs, Sessions, Shape, Top, Windows

SCHEMA = "k string, v bigint, w bigint, id bigint, p int, at timestamp"
DELAY = "2 hours"


def text(*columns: Any) -> Any:
    """As the models write values."""
    return F.concat_ws(
        "|", *(F.coalesce(F.col(c).cast("string") if isinstance(c, str) else c, F.lit("~")) for c in columns)
    )


def put_out(rows: Any, kind: str, key: Any, value: Any, op: Any = None) -> Any:
    return rows.select(
        F.lit(kind).alias("kind"),
        key.alias("key"),
        value.alias("value"),
        (F.lit("+I") if op is None else op).alias("op"),
    )


def keyed(rows: Any, shape: Shape) -> Any:
    return rows.withColumn(shape.key, F.expr(KEYS[shape.by][0]))


def typed(rows: Any, shape: Shape) -> Any:
    """Columns that are aggregated, as the types of the fields have them."""
    for of in shape.fields:
        if of.kind != "count":
            rows = rows.withColumn(of.of, F.col(of.of).cast(of.type))
    return rows


def aggregates(shape: Shape) -> list[Any]:
    made = {"count": lambda of: F.count("*"), "sum": lambda of: F.sum(of.of), "max": lambda of: F.max(of.of)}
    return [made[of.kind](of).alias(of.alias) for of in shape.fields]


def names(shape: Shape) -> list[str]:
    return [of.alias for of in shape.fields]


def totals(rows: Any, shape: Shape, mode: str) -> Any:
    made = keyed(typed(rows, shape), shape).groupBy(shape.key).agg(*aggregates(shape)).uid(shape.uid)
    return put_out(made, shape.name, text(shape.key), text(*names(shape)))


def windows(rows: Any, shape: Shape, mode: str) -> Any:
    timed = keyed(typed(rows, shape), shape).withWatermark("at", DELAY)
    window = F.window("at", f"{shape.minutes} minutes")
    made = timed.groupBy(window, shape.key).agg(*aggregates(shape)).uid(shape.uid)
    return put_out(
        made, shape.name, text(F.unix_seconds("window.start").cast("string"), shape.key), text(*names(shape))
    )


def sessions(rows: Any, shape: Shape, mode: str) -> Any:
    timed = keyed(typed(rows, shape), shape).withWatermark("at", DELAY)
    window = F.session_window("at", f"{shape.minutes} minutes").alias("s")
    made = timed.groupBy(window, shape.key).agg(*aggregates(shape)).uid(shape.uid)
    return put_out(made, shape.name, text(F.unix_seconds("s.start").cast("string"), shape.key), text(*names(shape)))


def once(rows: Any, shape: Shape, mode: str) -> Any:
    made = keyed(rows, shape).select("v", shape.key, "p").dropDuplicates(["v", shape.key]).uid(shape.uid)
    return put_out(made, shape.name, text("v", shape.key), F.col("p").cast("string"))


def chain(rows: Any, shape: Shape, mode: str) -> Any:
    front = keyed(rows, shape)
    if shape.once:
        front = front.dropDuplicates(["v", shape.key]).uid(f"{shape.uid}-once")
    made = typed(front, shape).groupBy(shape.key).agg(*aggregates(shape)).uid(shape.uid)
    return put_out(made, shape.name, text(shape.key), text(*names(shape)))


def top(rows: Any, shape: Shape, mode: str) -> Any:
    kept = keyed(rows, shape).select(
        shape.key, "v", "id", *(F.col(of.of).cast(of.type).alias(of.alias) for of in shape.fields)
    )
    made = kept.groupBy(shape.key).topN(shape.first, F.desc("v"), "id", rank="r").uid(shape.uid)
    return put_out(made, shape.name, text("r", shape.key), text("v", "id", *names(shape)), F.col("op"))


def pairs(rows: Any, shape: Shape, mode: str) -> Any:
    sides = keyed(rows, shape)
    fields = [F.col(of.of).cast(of.type).alias(of.alias) for of in shape.fields]
    left = sides.where("id % 2 = 1").select(shape.key, F.col("id").alias("one"), *fields)
    right = sides.where("id % 2 = 0").select(shape.key, F.col("id").alias("other"))
    made = left.join(right, shape.key).uid(shape.uid)
    return put_out(made, shape.name, text("one", "other", shape.key), text(*names(shape)))


def function(rows: Any, shape: Shape, mode: str) -> Any:
    fields = [tuple(of) for of in shape.fields]

    def fold(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        kept = list(state.get) if state.exists else [None] * len(fields)
        for rows in frames:
            for at, (_, kind, of, type_) in enumerate(fields):
                for value in rows[of].tolist():
                    was = None if kept[at] is None else int(kept[at])
                    new = (was or 0) + 1 if kind == "count" else value if was is None else was + value
                    new = max(was, value) if kind == "max" and was is not None else new
                    kept[at] = str(new) if type_ == "string" else int(new)
        state.update(tuple(kept))
        shown = "|".join(
            "0" if f[1] == "count" and v is None else "~" if v is None else str(v) for f, v in zip(fields, kept)
        )
        yield pd.DataFrame({"key": ["~" if pd.isna(key[0]) else str(key[0])], "value": [shown]})

    grouped = keyed(rows, shape).groupBy(shape.key)
    schema = ", ".join(f"{of.alias} {of.type}" for of in shape.fields)
    made = grouped.applyInPandasWithState(fold, "key string, value string", schema, mode, "NoTimeout").uid(shape.uid)
    return put_out(made, shape.name, F.col("key"), F.col("value"))


class Fold(StatefulProcessor):
    """A variable for each field."""

    def __init__(self, fields: list[tuple[str, str, str, str]]) -> None:
        self.fields = fields

    def init(self, handle: Any) -> None:
        self.kept = {f[0]: handle.getValueState(f[0], f"x {f[3]}") for f in self.fields}

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        found = list(rows)
        shown = []
        for alias, kind, of, _ in self.fields:
            was = (self.kept[alias].get() or (None,))[0]
            for value in (v for frame in found for v in frame[of].tolist()):
                new = (was or 0) + 1 if kind == "count" else value if was is None else was + value
                was = max(was, value) if kind == "max" and was is not None else new
            self.kept[alias].update((int(was),))
            shown.append(str(was))
        yield pd.DataFrame({"key": ["~" if pd.isna(key[0]) else str(key[0])], "value": ["|".join(shown)]})

    def close(self) -> None: ...


def processor(rows: Any, shape: Shape, mode: str) -> Any:
    grouped = keyed(rows, shape).groupBy(shape.key)
    fold = Fold([tuple(of) for of in shape.fields])
    made = grouped.transformWithStateInPandas(fold, "key string, value string", mode, "None").uid(shape.uid)
    return put_out(made, shape.name, F.col("key"), F.col("value"))


@dataclass(frozen=True)
class Operator:
    query: Callable[[Any, Shape, str], Any]
    model: Callable[[], Model]
    modes: tuple[str, ...]
    fields: tuple[Field, ...]


COUNT, TOTAL, MOST = Field("n", "count", "v"), Field("total", "sum", "v"), Field("most", "max", "v", "int")
BOTH = ("update", "append")
OPERATORS = {
    "totals": Operator(totals, lambda: Model(True), ("update",), (COUNT, TOTAL, MOST)),
    "windows": Operator(windows, lambda: Windows(True), BOTH, (COUNT, TOTAL, MOST)),
    "sessions": Operator(sessions, lambda: Sessions(True), ("append",), (COUNT, TOTAL, MOST)),
    "once": Operator(once, lambda: Once(False), BOTH, ()),
    "top": Operator(top, lambda: Top(False), BOTH, (Field("w", "last", "w"), Field("p", "last", "p", "int"))),
    "pairs": Operator(pairs, lambda: Pairs(False), BOTH, (Field("v", "last", "v"), Field("p", "last", "p", "int"))),
    "function": Operator(function, lambda: Model(False), BOTH, (COUNT, TOTAL, MOST)),
    "processor": Operator(processor, lambda: Model(False), BOTH, (COUNT, TOTAL, MOST)),
    "chain": Operator(chain, lambda: Chain(True), ("update",), (COUNT, TOTAL, MOST)),
}


def together(rows: Any, shapes: dict[str, Shape], mode: str) -> Any:
    made = [OPERATORS[shape.kind].query(rows, shape, mode) for shape in shapes.values() if shape.there]
    return reduce(lambda one, other: one.union(other), made)
