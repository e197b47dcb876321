"""Random chains: which operations may follow, and what types they make of a table's columns."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.generated.expressions import (
    CONDITIONS,
    LITERALS,
    OF_ANY,
    OF_TYPE,
    PANDAS_SAFE,
    YEAR_MONTH,
    quoted,
)
from tests.generated.functions import keep_all, odd_ids_in_pandas, only_even_ids, other_names, twice
from tests.generated.keyed import KeyedMaker
from tests.generated.operations import Call, Expr, Lit, Mapped, Named, Operation, StaticJoin, Union
from tests.generated.refused import FORMS, Refused
from tests.generated.rows import RowMaker
from tests.generated.static_joins import WORD
from tests.generated.values import COLUMNS

APPEND, MERGE = "append", "merge"

NEW_NAMES = ("x", "y", "z", "_u", "Value", "select", "x1")
ODD_NAMES = ("dot.ted", "a`b", "Grüße", "__ckpt", "%s", "a'b", '"q"', "*", ".lead", "back\\slash", "t.x")
"""What every sink takes. A dot in front of a column's own name: ``t.x``."""
ODDER_NAMES = ("odd name", "count(1)", "a;b", "x=y", "line\nbreak", "a,b")
"""More for chains whose columns are renamed in front of the sink."""


@dataclass(frozen=True)
class Chain:
    """The operations, and the columns behind them. ``keys``: what a merging sink tells its rows apart by."""

    number: int
    kind: str
    operations: tuple[Operation, ...]
    columns: dict[str, str]
    keys: tuple[str, ...]

    def __repr__(self) -> str:
        return "df" + "".join(f"\n  {operation!r}" for operation in self.operations)


class Maker(KeyedMaker, RowMaker):
    """Grows one chain. ``names``: what new columns are called."""

    def __init__(self, seed: int, number: int, kind: str, names: Sequence[str] = ()) -> None:
        self.chosen = random.Random(f"{seed}/{number}/{kind}")
        self.number, self.kind = number, kind
        self.columns = dict(COLUMNS)
        self.names = [*NEW_NAMES, *names]
        self.unique = True
        self.protected: tuple[str, ...] = ("id",) if kind == MERGE else ()
        self.operations: list[Operation] = []
        self.aggregated = False
        self.timed: list[str] = []
        self.forms: Sequence[Refused] = FORMS

    def chain(self) -> Chain:
        if self.chosen.random() < 0.7:
            self._select_some()
        self._several(4)
        for likely in (0.5, 0.2):
            if self.chosen.random() < likely:
                self._keyed()
                self._several(3)
        self._without_intervals("interval")
        keys = self.protected if self.kind == MERGE else ()
        return Chain(self.number, self.kind, tuple(self.operations), self.columns, keys)

    def _several(self, most: int) -> None:
        makers = [self._with_column] * 4 + [
            self._with_columns,
            self._select,
            self._select_expr,
            self._rename,
            self._drop,
        ]
        makers += [self._where] * 2 + [self._alias, self._to_df, self._transform, self._place]
        if self.kind == APPEND or not self.aggregated:
            # Behind an operator that puts out updates, rows have to keep their keys.
            makers += [self._map_arrow, self._map_pandas, self._watermark]
            makers += [self._fill, self._drop_missing, self._replace, self._sample]
        if self.kind == APPEND:
            makers += [self._union, self._refused, self._join, self._explode, self._explode, self._unpivot]
        for _ in range(self.chosen.randint(0, most)):
            self.chosen.choice(makers)()

    def _uid(self) -> str:
        return f"u{self.number}-{len(self.operations)}"

    def _add(self, operation: Operation, columns: dict[str, str] | None = None) -> None:
        self.operations.append(operation)
        if columns is not None:
            self.columns = columns

    # -- values ------------------------------------------------------------------------------------------------

    def _name(self) -> str:
        """A new name, or an existing one that is then replaced."""
        free = [c for c in self.columns if c not in ("id", *self.protected)]
        if free and self.chosen.random() < 0.25:
            return self.chosen.choice(free)
        new = self._new_names()
        return self.chosen.choice(new) if new else f"c{self.chosen.randint(0, 10**6)}"

    def _expr(self) -> tuple[str, str]:
        column, kind = self.chosen.choice(list(self.columns.items()))
        templates = (*OF_TYPE.get(kind, ()), *OF_TYPE.get(kind, ()), *OF_ANY)
        template, made = self.chosen.choice(templates)
        return template.format(c=quoted(column)), (made or "{t}").format(t=kind)

    def _value(self, name: str | None = None) -> tuple[Expr | Lit, str]:
        if self.chosen.random() < 0.2:
            literal, kind = self.chosen.choice(LITERALS)
            return Lit(literal, name), kind
        sql, kind = self._expr()
        return Expr(sql, name), kind

    # -- stateless operations ---------------------------------------------------------------------------------------

    def _kept(self, names: list[str]) -> list[str]:
        return [c for c in self.columns if c in names or c in self.protected] or list(self.columns)[:1]

    def _some(self) -> list[str]:
        count = self.chosen.randint(1, min(6, len(self.columns)))
        always = ["id"] if "id" in self.columns and self.chosen.random() < 0.85 else []
        names = self._kept([*self.chosen.sample(list(self.columns), count), *always])
        if self.chosen.random() < 0.3:
            self.chosen.shuffle(names)
        return names

    def _select_some(self) -> None:
        names = self._some()
        self._add(Call("select", tuple(quoted(n) if not n.isidentifier() else n for n in names)), self._of(names))

    def _of(self, names: list[str]) -> dict[str, str]:
        return {n: self.columns[n] for n in names}

    def _select(self) -> None:
        names = self._some()
        columns, args = self._of(names), [Expr(quoted(n)) for n in names]
        for _ in range(self.chosen.randint(0, 2)):
            name = self._name()
            if name not in columns and name.lower() not in {c.lower() for c in columns}:
                value, kind = self._value(name)
                args.append(value)  # type: ignore[arg-type]
                columns[name] = kind
        if self.chosen.random() < 0.3:
            self._add(Call("select", ([*args],)), columns)
        else:
            self._add(Call("select", tuple(args)), columns)

    def _select_expr(self) -> None:
        sql, kind = self._expr()
        new = self._new_names()
        if new:
            name = self.chosen.choice(new)
            self._add(Call("selectExpr", ("*", f"{sql} as {quoted(name)}")), {**self.columns, name: kind})

    def _with_column(self) -> None:
        name = self._name()
        value, kind = self._value()
        self._add(Call("withColumn", (name, value)), {**self.columns, name: kind})

    def _with_columns(self) -> None:
        made, columns = {}, dict(self.columns)
        for _ in range(2):
            name = self._name()
            if name.lower() not in {n.lower() for n in made}:
                made[name], columns[name] = self._value()
        self._add(Call("withColumns", (made,)), columns)

    def _rename(self) -> None:
        free = [c for c in self.columns if c not in ("id", *self.protected)]
        new = self._new_names()
        if not (free and new):
            return
        old, name = self.chosen.choice(free), self.chosen.choice(new)
        columns = {name if c == old else c: kind for c, kind in self.columns.items()}
        if self.chosen.random() < 0.5:
            self._add(Call("withColumnRenamed", (old, name)), columns)
        else:
            self._add(Call("withColumnsRenamed", ({old: name},)), columns)

    def _drop(self) -> None:
        free = [c for c in self.columns if c not in self.protected]
        if len(free) > 1 and len(self.columns) > 2:
            gone = self.chosen.choice(free)
            self._add(Call("drop", (gone,)), {c: k for c, k in self.columns.items() if c != gone})

    def _to_df(self) -> None:
        old = list(self.columns)
        new = [c if c in ("id", *self.protected) or c.isidentifier() else f"r{i}" for i, c in enumerate(old)]
        self._add(Call("toDF", tuple(new)), dict(zip(new, self.columns.values(), strict=True)))

    def _condition(self) -> str | None:
        names = self.protected if self.aggregated and self.kind == MERGE else tuple(self.columns)
        name = self.chosen.choice(names)
        kinds = CONDITIONS.get(self.columns[name], ())
        return self.chosen.choice((*kinds, *kinds, "{c} is not null")).format(c=quoted(name))

    def _where(self) -> None:
        condition = self._condition()
        method = self.chosen.choice(["where", "filter"])
        self._add(Call(method, (Expr(str(condition)) if self.chosen.random() < 0.5 else condition,)))

    def _alias(self) -> None:
        self._add(Call("alias", ("q",)))
        name = self.chosen.choice(self.protected or list(self.columns))
        self._add(Call("where", (f"q.{quoted(name)} is not null",)))

    def _transform(self) -> None:
        sub = Maker(self.chosen.randint(0, 10**9), 0, self.kind)
        sub.columns, sub.protected, sub.names, sub.aggregated = dict(self.columns), self.protected, self.names, True
        sub._with_column()
        operation = sub.operations[0]
        self._add(Call("transform", (Named(f"lambda df: df{operation!r}", operation.apply),)), sub.columns)

    def _ddl(self) -> str:
        return ", ".join(f"{quoted(c)} {kind}" for c, kind in self.columns.items())

    def _map_arrow(self) -> None:
        self._without_intervals(YEAR_MONTH)
        some = [Named("keep_all", keep_all), Named("other_names", other_names)]
        if self.columns.get("id") == "bigint":
            some.append(Named("only_even_ids", only_even_ids))
        if self.kind == APPEND:
            some.append(Named("twice", twice))
        chosen = self.chosen.choice(some)
        self.unique = self.unique and chosen.name != "twice"
        self._add(Mapped("mapInArrow", chosen, self._ddl()))

    def _map_pandas(self) -> None:
        names = [c for c, kind in self.columns.items() if kind in PANDAS_SAFE or c == "id"]
        if self.columns.get("id") == "bigint":
            names = list(dict.fromkeys(["id", *names]))
            self._add(Call("select", tuple(Expr(quoted(n)) for n in names)), self._of(names))
            self._add(Mapped("mapInPandas", Named("odd_ids_in_pandas", odd_ids_in_pandas), self._ddl()))

    def _without_intervals(self, which: str) -> None:
        """Python takes no interval of months, and sinks take none."""
        gone = [c for c, kind in self.columns.items() if which in kind]
        if gone:
            made = {c: Expr(f"cast({quoted(c)} as string)") for c in gone}
            self._add(Call("withColumns", (made,)), {**self.columns, **dict.fromkeys(gone, "string")})

    def _watermark(self) -> None:
        times = [c for c, kind in self.columns.items() if kind == "timestamp"]
        if times:
            column = self.chosen.choice(times)
            self.timed = [column]  # the last one counts
            self._add(Call("withWatermark", (quoted(column), "1 hour")))

    def _join(self) -> None:
        """With a table."""
        taken = {c.lower() for c in self.columns}
        if self.columns.get("k") == "int" and not taken & set(WORD):
            self._add(StaticJoin(self.chosen.choice(["inner", "left", "cross"])), {**self.columns, **WORD})
            self.unique = False

    def _refused(self) -> None:
        """One that the ledger refuses, done as the refusal tells."""
        fit = [form for form in self.forms if self._fits(form)]
        if fit:
            form = replace(self.chosen.choice(fit), uid=self._uid())
            if form.keyed:
                self._without_intervals(YEAR_MONTH)
                self.aggregated = True
            self.unique = self.unique and not form.repeats
            self._add(form, dict(form.gives) if form.alone else {**self.columns, **form.gives})

    def _fits(self, form: Refused) -> bool:
        taken = {c.lower() for c in self.columns if c not in form.needs}
        if form.name == "union" and self.aggregated:
            return False  # Spark would run the operator twice
        there = all(self.columns.get(c) == COLUMNS[c] for c in form.needs)
        return there and not taken & set(form.gives) and (not form.keyed or (self.unique and not self.timed))

    def _union(self) -> None:
        if self.aggregated:
            return
        inner = [Call("where", (str(self._condition()),))]
        if self.chosen.random() < 0.5:
            self._add(Union(tuple(inner)))
        else:
            names = list(self.columns)
            self.chosen.shuffle(names)
            inner.append(Call("select", tuple(Expr(quoted(n)) for n in names)))
            self._add(Union(tuple(inner), "unionByName"))
        self.unique = False
