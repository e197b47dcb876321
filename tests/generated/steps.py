"""The steps of a chain: small values that print as the code a user would write, and do it.

``apply(df)`` is the same code for a checkpointed stream and for a plain batch DataFrame, because the methods have the
same names. Only keyed operators with names of our own have a batch counterpart of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from spark_ckpt import agg
from spark_ckpt.spark.dataframe import CkptDataFrame


@dataclass(frozen=True)
class Expr:
    """A Column, by SQL text."""

    sql: str
    name: str | None = None

    def __repr__(self) -> str:
        return f"F.expr({self.sql!r})" + (f".alias({self.name!r})" if self.name else "")

    def value(self) -> Any:
        return F.expr(self.sql) if self.name is None else F.expr(self.sql).alias(self.name)


@dataclass(frozen=True)
class Lit:
    """``F.lit`` of a Python value."""

    literal: Any
    name: str | None = None

    def __repr__(self) -> str:
        return f"F.lit({self.literal!r})" + (f".alias({self.name!r})" if self.name else "")

    def value(self) -> Any:
        return F.lit(self.literal) if self.name is None else F.lit(self.literal).alias(self.name)


class Step:
    """One call of a chain."""

    def apply(self, df: Any) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Call(Step):
    """A method that both sides have. ``args`` may hold ``Expr`` and ``Lit``, also within dicts."""

    method: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        shown = [_shown(a) for a in self.args] + [f"{k}={_shown(v)}" for k, v in self.kwargs.items()]
        return f".{self.method}({', '.join(shown)})"

    def apply(self, df: Any) -> Any:
        kwargs = {k: _value(v) for k, v in self.kwargs.items()}
        return getattr(df, self.method)(*[_value(a) for a in self.args], **kwargs)


@dataclass(frozen=True)
class Union(Step):
    """``df.union(...)`` of the frame so far with some more steps behind the same frame."""

    steps: tuple[Step, ...]
    method: str = "union"

    def __repr__(self) -> str:
        inner = "".join(map(repr, self.steps))
        return f".transform(lambda df: df.{self.method}(df{inner}))"

    def apply(self, df: Any) -> Any:
        return df.transform(lambda whole: getattr(whole, self.method)(applied(self.steps, whole)))


@dataclass(frozen=True)
class InSpark(Step):
    """``transformSpark`` of a function that keeps all rows; in batch, ``transform``."""

    func: Callable[[Any], Any]
    shown: str

    def __repr__(self) -> str:
        return f".transformSpark(lambda df: df{self.shown})"

    def apply(self, df: Any) -> Any:
        return df.transformSpark(self.func) if isinstance(df, CkptDataFrame) else self.func(df)


def in_spark(*steps: Step) -> InSpark:
    return InSpark(lambda df: applied(steps, df), "".join(map(repr, steps)))


@dataclass(frozen=True)
class Aggregate(Step):
    """``groupBy(...).aggregate(...)``. ``specs``: name -> (kind of ``agg``, column, Spark's aggregate as SQL)."""

    keys: tuple[str, ...]
    specs: dict[str, tuple[str, str | None, str]]
    emit: str
    uid: str
    order: str | None = None

    def __repr__(self) -> str:
        shown = [f"uid={self.uid!r}", f"emit={self.emit!r}"] + ([f"orderBy={self.order!r}"] if self.order else [])
        for name, (kind, column, _) in self.specs.items():
            more = ", max_items=1000" if kind == "collect_list" else ""
            shown.append(f"{name}=agg.{kind}({'' if column is None else repr(column)}{more})")
        return f".groupBy({', '.join(map(repr, self.keys))}).aggregate({', '.join(shown)})"

    def apply(self, df: Any) -> Any:
        if isinstance(df, CkptDataFrame):
            wanted = {name: _aggregate(kind, column) for name, (kind, column, _) in self.specs.items()}
            return df.groupBy(*self.keys).aggregate(uid=self.uid, emit=self.emit, orderBy=self.order, **wanted)
        columns = {name: F.expr(sql) for name, (_, _, sql) in self.specs.items()}
        if self.emit == "update":
            return df.groupBy(*self.keys).agg(*[c.alias(name) for name, c in columns.items()])
        window = running(self.keys, str(self.order))
        others = [c for c in df.columns if c not in self.keys]
        kinds = dict(df.dtypes)
        rows = [*[grouping(k, kinds[k]) for k in self.keys], *[F.col(f"`{c}`") for c in others]]
        return df.select(*rows, *[c.over(window).alias(name) for name, c in columns.items()])


def grouping(key: str, kind: str) -> Any:
    """As groupBy gives it: zero without a sign."""
    return F.expr(f"`{key}` + cast(0 as {kind})").alias(key) if kind in ("float", "double") else F.col(f"`{key}`")


def _aggregate(kind: str, column: str | None) -> Any:
    if kind == "collect_list":
        return agg.collect_list(str(column), max_items=1000)
    return getattr(agg, kind)(*([] if column is None else [column]))


def running(keys: tuple[str, ...], order: str) -> Any:
    by = Window.partitionBy(*[F.col(f"`{k}`") for k in keys]).orderBy(order)
    return by.rowsBetween(Window.unboundedPreceding, Window.currentRow)


@dataclass(frozen=True)
class Stateful(Step):
    """``applyIn...WithState`` of a function that numbers the rows of each key and counts its non-null values."""

    flavour: str
    keys: tuple[str, ...]
    kinds: tuple[str, ...]
    column: str
    uid: str

    @property
    def output(self) -> str:
        keys = [f"`{k}` {kind}" for k, kind in zip(self.keys, self.kinds, strict=True)]
        return ", ".join([*keys, "id bigint", "seen bigint", "filled bigint"])

    def __repr__(self) -> str:
        call = (
            f"applyIn{self.flavour}WithState(number_rows_{self.flavour.lower()}({self.column!r}), {self.output!r}, ..."
        )
        return f".groupBy({', '.join(map(repr, self.keys))}).{call}, uid={self.uid!r})"

    def apply(self, df: Any) -> Any:
        if not isinstance(df, CkptDataFrame):
            window = running(self.keys, "id")
            keys = [grouping(k, kind) for k, kind in zip(self.keys, self.kinds, strict=True)]
            filled = F.count(F.col(f"`{self.column}`")).over(window)
            return df.select(*keys, "id", F.count("*").over(window).alias("seen"), filled.alias("filled"))
        grouped, state = df.groupBy(*self.keys), "seen bigint, filled bigint"
        if self.flavour == "Arrow":
            return grouped.applyInArrowWithState(
                number_rows_arrow(self.keys, self.column), self.output, state, uid=self.uid
            )
        return grouped.applyInPandasWithState(
            number_rows_pandas(self.keys, self.column), self.output, state, "append", "NoTimeout", uid=self.uid
        )


def number_rows_pandas(keys: tuple[str, ...], column: str) -> Any:
    def number(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        seen, filled = state.get if state.exists else (0, 0)
        everything = pd.concat(list(frames)).sort_values("id")
        out: dict[str, list[Any]] = {name: [value] * len(everything) for name, value in zip(keys, key, strict=True)}
        out.update(id=everything["id"].tolist(), seen=[], filled=[])
        for there in everything[column].notna().tolist():
            seen, filled = seen + 1, filled + int(there)
            out["seen"].append(seen)
            out["filled"].append(filled)
        state.update((seen, filled))
        yield pd.DataFrame(out, columns=[*keys, "id", "seen", "filled"])

    return number


def number_rows_arrow(keys: tuple[str, ...], column: str) -> Any:
    def number(rows: pa.Table, state: pa.Table, ctx: Any) -> tuple[pa.Table, pa.Table]:
        seen = [n or 0 for n in state["seen"].to_pylist()]
        filled = [n or 0 for n in state["filled"].to_pylist()]
        at, ids, counts, fills = [], [], [], []
        for row in sorted(rows.select(["id", "_key", column]).to_pylist(), key=lambda r: r["id"]):
            key = row["_key"]
            seen[key] += 1
            filled[key] += row[column] is not None
            at.append(key)
            ids.append(row["id"])
            counts.append(seen[key])
            fills.append(filled[key])
        out = state.select(list(keys)).take(pa.array(at, pa.int64()))
        for name, values in (("id", ids), ("seen", counts), ("filled", fills)):
            out = out.append_column(name, pa.array(values, pa.int64()))
        return out, pa.table({"seen": pa.array(seen, pa.int64()), "filled": pa.array(filled, pa.int64())})

    return number


@dataclass(frozen=True)
class Named:
    """A function with the name it is shown by."""

    name: str
    func: Any

    def __repr__(self) -> str:
        return self.name

    def value(self) -> Any:
        return self.func


def applied(steps: tuple[Step, ...], df: Any) -> Any:
    for step in steps:
        df = step.apply(df)
    return df


def _value(argument: Any) -> Any:
    if isinstance(argument, Expr | Lit | Named):
        return argument.value()
    if isinstance(argument, dict):
        return {k: _value(v) for k, v in argument.items()}
    if isinstance(argument, list):
        return [_value(v) for v in argument]
    return argument


def _shown(argument: Any) -> str:
    return repr(argument)
