"""Which keyed operators may follow, and what they make of the columns."""

from __future__ import annotations

import random
import re
from typing import Any

from tests.generated.expressions import DAY_TIME, KEY_TYPES, ORDERED, PANDAS_SAFE, YEAR_MONTH, quoted
from tests.generated.keyed_operations import Aggregate, Distinct, SparkAggregate, Spec, Stateful
from tests.generated.operations import Call, Operation

_IN_NO_STATE = re.compile(r"[ ,;{}()\n\t=]")
"""Of names: state is a Delta table."""


class KeyedMaker:
    """What :class:`tests.generated.chains.Maker` knows of keyed operators."""

    chosen: random.Random
    number: int
    kind: str
    columns: dict[str, str]
    unique: bool
    protected: tuple[str, ...]
    aggregated: bool
    timed: list[str]

    def _add(self, operation: Operation, columns: dict[str, str] | None = None) -> None:
        raise NotImplementedError

    def _uid(self) -> str:
        raise NotImplementedError

    def _of(self, names: list[str]) -> dict[str, str]:
        raise NotImplementedError

    def _without_intervals(self, which: str) -> None:
        raise NotImplementedError

    def _keyed(self) -> None:
        self._without_intervals(YEAR_MONTH)
        keys = self._keys()
        if self.aggregated and self.kind == "merge":
            return  # updates of updates have no counterpart in a batch
        if not keys or any(self.columns.get(c) != "timestamp" for c in self.timed):
            return
        self.aggregated = True
        if self.kind != "merge" and not self.timed and self.chosen.random() < 0.3:
            self._distinct()
        elif self.kind == "merge" and self.chosen.random() < 0.5:
            self._spark_aggregate(keys)
        elif self.kind == "merge":
            self._aggregate(keys, "update")
        elif self.unique and self.columns.get("id") == "bigint":
            if self.chosen.random() < 0.5:
                self._aggregate(keys, "rows")
            else:
                self._stateful(keys)

    def _distinct(self) -> None:
        """Of some columns, or of all: which of several rows stays is Spark's to choose."""
        fit = [c for c, kind in self.columns.items() if "map" not in kind]
        names = self.chosen.sample(fit, min(len(fit), self.chosen.choice([1, 2, 3, 20])))
        if not names:
            return
        floats = {n: self.columns[n] for n in names if self.columns[n] in ("float", "double")}
        methods = ["dropDuplicates", "drop_duplicates", "distinct"]
        self._add(Distinct(self.chosen.choice(methods), tuple(names), floats), self._of(names))

    def _keys(self) -> tuple[str, ...]:
        fit = [c for c, kind in self.columns.items() if kind in KEY_TYPES and c != "id"]
        fit = [c for c in fit if not _IN_NO_STATE.search(c)]
        return tuple(self.chosen.sample(fit, min(len(fit), self.chosen.choice([1, 1, 2]))))

    def _aggregate(self, keys: tuple[str, ...], emit: str) -> None:
        specs = {"rows_": Spec("count", None, "bigint", "count(*)", "count(*) {over}")}
        for column, kind in self.columns.items():
            if self.chosen.random() < 0.6:
                fit = [spec for spec in _specs(column, kind) if emit == "update" or spec.running]
                if fit:
                    specs[f"v{len(specs)}"] = self.chosen.choice(fit)
        made = {name: spec.type for name, spec in specs.items()}
        kept = self._of(list(keys if emit == "update" else self.columns))
        # Where names meet, the operator refuses: the aggregates' are to be their own.
        if {n.lower() for n in made} & {c.lower() for c in kept}:
            return
        self._add(Aggregate(keys, specs, emit, self._uid()), {**kept, **made})
        if emit == "update":
            self.protected = keys

    def _spark_aggregate(self, keys: tuple[str, ...]) -> None:
        exprs, made = {"rows_": "F.count('*')"}, {"rows_": "bigint"}
        for column, kind in self.columns.items():
            fit = _expressions(column, kind)
            if fit and self.chosen.random() < 0.6:
                name = f"v{len(exprs)}"
                exprs[name], made[name] = self.chosen.choice(fit)
        if {n.lower() for n in made} & {k.lower() for k in keys}:
            return  # Spark gives both, and the sink needs names that differ
        self._add(SparkAggregate(keys, exprs, self._uid()), {**self._of(list(keys)), **made})
        self.protected = keys

    def _stateful(self, keys: tuple[str, ...]) -> None:
        flavour = self.chosen.choice(["Arrow", "Pandas"]) if not self.timed else "Arrow"
        # PySpark makes a NaN in a frame that comes back a null.
        safe = KEY_TYPES if flavour == "Arrow" else (PANDAS_SAFE | {"int", "bigint"}) - {"double"}
        keys = tuple(k for k in keys if self.columns[k] in safe and k.lower() not in ("seen", "filled"))
        countable = [c for c, kind in self.columns.items() if kind in PANDAS_SAFE - {"double"}]
        if flavour == "Pandas":  # PySpark finds columns by names there
            keys = tuple(k for k in keys if not set(".`") & set(k))
            countable = [c for c in countable if not set(".`") & set(c)]
        if not keys:
            return
        column = self.chosen.choice(countable) if countable else "id"
        names = list(dict.fromkeys(["id", *keys, column, *self.timed]))
        self._add(Call("select", tuple(quoted(n) for n in names)), self._of(names))
        operation = Stateful(flavour, keys, tuple(self.columns[k] for k in keys), column, self._uid())
        self._add(operation, {**self._of(list(keys)), "id": "bigint", "seen": "bigint", "filled": "bigint"})


def _expressions(column: str, kind: str) -> list[tuple[str, str]]:
    """(Python, type) of aggregates of the column, and of what is computed in front of them and behind."""
    c = repr(quoted(column))
    found = [(f"F.count({c})", "bigint")] if column != "*" else []
    found.append((f"F.count_if(F.col({c}).isNull()) + 1", "bigint"))
    if kind in ("tinyint", "smallint", "int"):
        found += [
            (f"F.sum({c})", "bigint"),
            (f"F.avg(F.col({c}) + F.lit(1).cast('bigint'))", "double"),
            (f"F.sum({c}) / F.count('*')", "double"),
            (f"F.coalesce(F.max({c}), F.lit(7)).cast('string')", "string"),
            (f"F.sum(F.when(F.col({c}) > 0, 1).otherwise(0))", "bigint"),
        ]
    if kind == "decimal(9,2)":
        found += [(f"F.sum({c})", "decimal(19,2)"), (f"F.max(F.abs({c}))", kind)]
    if kind == "string":
        found += [(f"F.max(F.upper({c}))", kind), (f"F.concat(F.min({c}), F.lit('!'), F.max({c}))", kind)]
    if kind == "boolean":
        found += [(f"F.bool_and({c})", kind), (f"F.bool_or({c})", kind), (f"F.min(~F.col({c}))", kind)]
    if kind in ORDERED and "interval" not in kind:
        found += [
            (f"F.count_distinct({c})", "bigint"),
            (f"F.min({c})", kind),
            (f"F.max({c})", kind),
            (f"F.max({c}) == F.min({c})", "boolean"),
        ]
    return found


def _specs(column: str, kind: str) -> list[Spec]:
    """What can be made of the column; the order of rows is that of ``id``."""
    c = quoted(column)

    def plain(name: str, made: str, sql: str, **options: Any) -> Spec:
        return Spec(name, column, made, f"{sql}({c})", f"{sql}({c}) {{over}}", options)

    def at_an_end(name: str, by: str) -> list[Spec]:
        # Of all rows, and of those with a value.
        some = f"{by}({c}, if({c} is null, null, id))"
        return [
            Spec(name, column, kind, f"{by}(struct({c} as v), id).v"),
            Spec(name, column, kind, some, options={"ignore_nulls": True}),
        ]

    # count("*") counts rows, as in Spark, whatever column has that name.
    counts = [] if column == "*" else [plain("count", "bigint", "count")]
    if "interval" in kind:
        # State holds none, but for the two that are numbers there.
        ends = [plain("min", kind, "min"), plain("max", kind, "max")] if kind == DAY_TIME else []
        return [*counts, *ends]
    found = [*counts, *at_an_end("first", "min_by"), *at_an_end("last", "max_by")]
    if kind in ("tinyint", "smallint", "int"):
        found += [plain("sum", "bigint", "sum"), plain("mean", "double", "avg")]
    if kind in ("tinyint", "smallint"):
        found.append(plain("stddev", "double", "stddev_samp"))
    if kind == "decimal(9,2)":
        found += [plain("sum", "decimal(19,2)", "sum"), plain("mean", "decimal(13,6)", "avg")]
    if kind in ORDERED:
        found += [plain("min", kind, "min"), plain("max", kind, "max")] * 2
    if kind in KEY_TYPES:
        found += [_collected(column, kind, most) for most in (2, 1000)]
        found.append(Spec("count_distinct", column, "bigint", f"count(distinct {c})"))
    return found


def _collected(column: str, kind: str, most: int) -> Spec:
    c = quoted(column)
    batch = f"array_sort(collect_list(if({c} is null, null, struct(id, {c} as v))))"
    return Spec(
        "collect_list",
        column,
        f"array<{kind}>",
        f"slice(transform({batch}, x -> x.v), 1, {most})",
        options={"max_items": most},
    )
