"""Keyed operators as operations: ours on a stream, and what Spark's batch has for the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import functions as F

from spark_ckpt import agg
from tests.generated.expressions import quoted
from tests.generated.functions import number_rows_arrow, number_rows_pandas
from tests.generated.operations import Operation


@dataclass(frozen=True)
class Spec:
    """``agg.<kind>(column, **options)``, and the same in SQL: over a group, and ``{over}`` a running frame if
    there is such an aggregate."""

    kind: str
    column: str | None
    type: str
    batch: str
    running: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        shown = [] if self.column is None else [repr(self.column)]
        return f"agg.{self.kind}({', '.join(shown + [f'{k}={v!r}' for k, v in self.options.items()])})"

    def value(self) -> Any:
        return getattr(agg, self.kind)(*([] if self.column is None else [self.column]), **self.options)


@dataclass(frozen=True)
class Aggregate(Operation):
    """``groupBy(...).aggregate(...)``. ``specs``: name -> aggregate."""

    keys: tuple[str, ...]
    specs: dict[str, Spec]
    emit: str
    uid: str

    @property
    def _rounded(self) -> list[str]:
        """What two right ways to compute it may give other last digits of."""
        return [name for name, spec in self.specs.items() if spec.kind == "stddev"]

    def __repr__(self) -> str:
        order = [f"orderBy={'id'!r}"] if self.emit == "rows" else []
        shown = [f"emit={self.emit!r}", *order, *[f"{n}={s!r}" for n, s in self.specs.items()]]
        rounded = "".join(f".withColumn({n!r}, F.round({n!r}, 6))" for n in self._rounded)
        return f".groupBy({_shown(self.keys)}).aggregate({', '.join(shown)}).uid({self.uid!r}){rounded}"

    def apply(self, df: Any) -> Any:
        made = self._ours(df) if df.isStreaming else self._batch(df)
        return made.withColumns({n: F.round(n, 6) for n in self._rounded}) if self._rounded else made

    def _ours(self, df: Any) -> Any:
        wanted = {name: spec.value() for name, spec in self.specs.items()}
        grouped = df.groupBy(*map(quoted, self.keys))
        return grouped.aggregate(emit=self.emit, orderBy="id" if self.emit == "rows" else None, **wanted).uid(self.uid)

    def _batch(self, df: Any) -> Any:
        if self.emit == "update":
            columns = [F.expr(spec.batch).alias(name) for name, spec in self.specs.items()]
            return df.groupBy(*[F.col(quoted(k)) for k in self.keys]).agg(*columns)
        rows = [F.col(quoted(c)) for c in df.columns]
        over = running(self.keys)
        made = [F.expr(str(spec.running).replace("{over}", over)).alias(name) for name, spec in self.specs.items()]
        return df.select(*rows, *made)


@dataclass(frozen=True)
class SparkAggregate(Operation):
    """``groupBy(...).agg(...)``: the same for both. ``exprs``: name -> Python of the aggregate."""

    keys: tuple[str, ...]
    exprs: dict[str, str]
    uid: str

    def __repr__(self) -> str:
        columns = [f"({text}).alias({name!r})" for name, text in self.exprs.items()]
        return f".groupBy({_shown(self.keys)}).agg({', '.join(columns)}).uid({self.uid!r})"

    def apply(self, df: Any) -> Any:
        columns = [eval(text, {"F": F}).alias(name) for name, text in self.exprs.items()]  # noqa: S307 - our own
        made = df.groupBy(*map(quoted, self.keys)).agg(*columns)
        return made.uid(self.uid) if df.isStreaming else made


def grouping(key: str, kind: str) -> Any:
    """As groupBy gives it: zero without a sign."""
    name = quoted(key)
    return F.expr(f"{name} + cast(0 as {kind})").alias(key) if kind in ("float", "double") else F.col(name)


def running(keys: tuple[str, ...]) -> str:
    by = ", ".join(map(quoted, keys))
    return f"over (partition by {by} order by id rows between unbounded preceding and current row)"


@dataclass(frozen=True)
class Stateful(Operation):
    """``applyIn...WithState`` of a function that numbers the rows of each key and counts its non-null values."""

    flavour: str
    keys: tuple[str, ...]
    kinds: tuple[str, ...]
    column: str
    uid: str

    @property
    def output(self) -> str:
        keys = [f"{quoted(k)} {kind}" for k, kind in zip(self.keys, self.kinds, strict=True)]
        return ", ".join([*keys, "id bigint", "seen bigint", "filled bigint"])

    def __repr__(self) -> str:
        function = f"number_rows_{self.flavour.lower()}({self.keys!r}, {self.column!r})"
        call = f"applyIn{self.flavour}WithState({function}, {self.output!r}, ...).uid({self.uid!r})"
        return f".groupBy({_shown(self.keys)}).{call}"

    def apply(self, df: Any) -> Any:
        if not df.isStreaming:
            keys = [grouping(k, kind) for k, kind in zip(self.keys, self.kinds, strict=True)]
            over = running(self.keys)
            counts = [f"count(*) {over} as seen", f"count({quoted(self.column)}) {over} as filled"]
            return df.select(*keys, "id", *map(F.expr, counts))
        grouped, state = df.groupBy(*map(quoted, self.keys)), "seen bigint, filled bigint"
        if self.flavour == "Arrow":
            return grouped.applyInArrowWithState(number_rows_arrow(self.keys, self.column), self.output, state).uid(
                self.uid
            )
        return grouped.applyInPandasWithState(
            number_rows_pandas(self.keys, self.column), self.output, state, "append", "NoTimeout"
        ).uid(self.uid)


@dataclass(frozen=True)
class Distinct(Operation):
    """Rows without duplicates, and the columns that they are compared by: which row of several stays is Spark's choice.

    ``floats``: a batch has the grouping's zero in them, a stream the row's.
    """

    method: str
    names: tuple[str, ...]
    floats: dict[str, str]

    def __repr__(self) -> str:
        select, zeros = f".select({_shown(self.names)})", self._zeros()
        call = f"{select}.distinct()" if self.method == "distinct" else f".{self.method}({list(self.names)}){select}"
        return call + "".join(f".withColumn({n!r}, F.expr({sql!r}))" for n, sql in zeros.items())

    def _zeros(self) -> dict[str, str]:
        return {n: f"{quoted(n)} + cast(0 as {kind})" for n, kind in self.floats.items()}

    def apply(self, df: Any) -> Any:
        names, zeros = [quoted(n) for n in self.names], {n: F.expr(sql) for n, sql in self._zeros().items()}
        if self.method == "distinct":
            made = df.select(*names).distinct()
        else:
            made = getattr(df, self.method)(list(self.names)).select(*names)
        return made.withColumns(zeros) if zeros else made


def _shown(keys: tuple[str, ...]) -> str:
    return ", ".join(repr(quoted(k)) for k in keys)
