"""Random chains: which steps may follow, and what types they make of a table's columns."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow.compute as pc

from tests.generated.steps import Aggregate, Call, Expr, Lit, Named, Stateful, Step, Union, in_spark
from tests.generated.values import COLUMNS

APPEND, MERGE = "append", "merge"

# SQL over one column, and the type it gives; None: the column's own.
_INT = (("try_add({c}, 1)", None), ("cast({c} as double)", "double"), ("if({c} > 0, {c}, null)", None))
_FLOAT = (("-{c}", None), ("isnan({c})", "boolean"), ("abs({c})", None), ("nanvl({c}, {c})", None))
_TIME = (("cast({c} as string)", "string"), ("cast({c} as date)", "date"), ("date_trunc('day', {c})", None))
_OF_TYPE: dict[str, tuple[tuple[str, str | None], ...]] = {
    "boolean": (("not {c}", None), ("if({c}, 1, 0)", "int")),
    "tinyint": (("if({c} > 0, {c}, null)", None), ("cast({c} as bigint)", "bigint")),
    "smallint": (("if({c} > 0, {c}, null)", None), ("cast({c} as string)", "string")),
    "int": (*_INT, ("{c} % 7", None)),
    "bigint": (*_INT, ("{c} % 7", None), ("hex({c})", "string")),
    "float": _FLOAT,
    "double": (*_FLOAT, ("{c} * 0.5D", None)),
    "decimal(9,2)": (
        ("-{c}", None),
        ("cast({c} as decimal(18,4))", "decimal(18,4)"),
        ("round({c}, 1)", "decimal(9,1)"),
    ),
    "decimal(38,10)": (("abs({c})", None), ("cast({c} as string)", "string")),
    "string": (
        ("upper({c})", None),
        ("length({c})", "int"),
        ("{c} || '|' || {c}", None),
        ("split({c}, 'a')", "array<string>"),
        ("encode({c}, 'UTF-8')", "binary"),
        ("sha2({c}, 256)", None),
        ("substring({c}, 2, 2)", None),
        ("trim({c})", None),
        ("try_cast({c} as int)", "int"),
        ("from_json({c}, 'a int')", "struct<a:int>"),
    ),
    "binary": (("hex({c})", "string"), ("length({c})", "int"), ("base64({c})", "string"), ("md5({c})", "string")),
    "date": (("year({c})", "int"), ("cast({c} as string)", "string"), ("last_day({c})", None)),
    "timestamp": (
        *_TIME,
        ("hour({c})", "int"),
        ("unix_micros({c})", "bigint"),
        ("cast({c} as timestamp_ntz)", "timestamp_ntz"),
    ),
    "timestamp_ntz": (("cast({c} as string)", "string"), ("cast({c} as date)", "date"), ("minute({c})", "int")),
    "array<int>": (
        ("size({c})", "int"),
        ("get({c}, 0)", "int"),
        ("transform({c}, x -> -(x % 9))", None),
        ("to_json({c})", "string"),
    ),
    "map<string,double>": (
        ("size({c})", "int"),
        ("map_keys({c})", "array<string>"),
        ("try_element_at({c}, 'a')", "double"),
    ),
    "struct<a:int,b:string>": (
        ("{c}.a", "int"),
        ("to_json({c})", "string"),
        ("struct({c}.b as b)", "struct<b:string>"),
    ),
}
_OF_ANY = (
    ("{c}", None),
    ("{c} is null", "boolean"),
    ("array({c}, {c})", "array<{t}>"),
    ("struct({c} as v)", "struct<v:{t}>"),
)

_LITERALS: tuple[tuple[Any, str], ...] = (
    ("hello", "string"),
    ("", "string"),
    (7, "int"),
    (2**40, "bigint"),
    (0.5, "double"),
    (True, "boolean"),
    (Decimal("1.25"), "decimal(3,2)"),
    (dt.date(2024, 2, 29), "date"),
    (dt.datetime(2024, 7, 1, 12), "timestamp"),
    (bytearray(b"\x00a"), "binary"),
)

_CONDITIONS: dict[str, tuple[str, ...]] = {
    "boolean": ("{c}", "not {c}"),
    "int": ("{c} >= 0", "{c} in (0, 1)"),
    "bigint": ("{c} % 3 <> 1", "{c} > 2"),
    "double": ("not isnan({c})", "{c} <= 0"),
    "string": ("{c} like '%a%'", "{c} <> ''", "{c} = lower({c})"),
    "date": ("{c} > date'1970-01-01'",),
    "timestamp": ("{c} < timestamp'2024-03-10 12:00:00'", "hour({c}) < 12"),
}

NEW_NAMES = ("x", "y", "z", "_u", "Value", "select", "x1")
ODD_NAMES = ("odd name", "dot.ted", "Grüße", "count(1)", "__ckpt", "%s")

KEY_TYPES = frozenset(
    [
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "decimal(9,2)",
        "decimal(38,10)",
        "string",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
    ]
)
_ORDERED = KEY_TYPES - {"float", "double", "boolean"}
_PANDAS_SAFE = frozenset(["string", "double", "decimal(9,2)", "decimal(38,10)", "date", "binary", "boolean"])


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class Chain:
    """The steps, and the columns behind them. ``keys``: what a merging sink tells its rows apart by."""

    number: int
    kind: str
    steps: tuple[Step, ...]
    columns: dict[str, str]
    keys: tuple[str, ...]

    def __repr__(self) -> str:
        return "df" + "".join(f"\n  {step!r}" for step in self.steps)


class Maker:
    """Grows one chain. ``odd``: names that a sink may refuse, for chains that are renamed at their end."""

    def __init__(self, seed: int, number: int, kind: str, odd: bool = True) -> None:
        self.chosen = random.Random(f"{seed}/{number}/{kind}")
        self.number, self.kind = number, kind
        self.columns = dict(COLUMNS)
        self.names = [*NEW_NAMES, *(ODD_NAMES if odd else ())]
        self.unique = True
        self.protected: tuple[str, ...] = ("id",) if kind == MERGE else ()
        self.steps: list[Step] = []
        self.aggregated = False
        self.timed: str | None = None

    def chain(self) -> Chain:
        if self.chosen.random() < 0.7:
            self._select_some()
        self._several(4)
        if self.chosen.random() < 0.45:
            self._keyed()
            self._several(3)
        keys = self.protected if self.kind == MERGE else ()
        return Chain(self.number, self.kind, tuple(self.steps), self.columns, keys)

    def _several(self, most: int) -> None:
        makers = [self._with_column] * 4 + [
            self._with_columns,
            self._select,
            self._select_expr,
            self._rename,
            self._drop,
        ]
        makers += [self._where] * 2 + [self._alias, self._in_spark, self._to_df, self._transform]
        if not self.aggregated:
            makers += [self._map_arrow, self._map_pandas, self._watermark]
            makers += [self._union] if self.kind == APPEND else []
        for _ in range(self.chosen.randint(0, most)):
            self.chosen.choice(makers)()

    def _add(self, step: Step, columns: dict[str, str] | None = None) -> None:
        self.steps.append(step)
        if columns is not None:
            self.columns = columns

    # -- values ------------------------------------------------------------------------------------------------

    def _name(self) -> str:
        """A new name, or an existing one that is then replaced."""
        free = [c for c in self.columns if c not in ("id", *self.protected)]
        if free and self.chosen.random() < 0.25:
            return self.chosen.choice(free)
        taken = {c.lower() for c in self.columns}
        new = [n for n in self.names if n.lower() not in taken]
        return self.chosen.choice(new) if new else f"c{self.chosen.randint(0, 10**6)}"

    def _expr(self) -> tuple[str, str]:
        column, kind = self.chosen.choice(list(self.columns.items()))
        templates = (*_OF_TYPE.get(kind, ()), *_OF_TYPE.get(kind, ()), *_OF_ANY)
        template, made = self.chosen.choice(templates)
        return template.format(c=quoted(column)), (made or "{t}").format(t=kind)

    def _value(self, name: str | None = None) -> tuple[Expr | Lit, str]:
        if self.chosen.random() < 0.2:
            literal, kind = self.chosen.choice(_LITERALS)
            return Lit(literal, name), kind
        sql, kind = self._expr()
        return Expr(sql, name), kind

    # -- stateless steps ---------------------------------------------------------------------------------------

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
        taken = {c.lower() for c in self.columns}
        name = next((n for n in self.names if n.lower() not in taken), None)
        if name is not None:
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
        taken = {c.lower() for c in self.columns}
        new = [n for n in self.names if n.lower() not in taken]
        if not (free and new):
            return
        old, name = self.chosen.choice(free), self.chosen.choice(new)
        columns = {name if c == old else c: kind for c, kind in self.columns.items()}
        if self.chosen.random() < 0.5:
            self._add(Call("withColumnRenamed", (old, name)), columns)
        else:
            self._add(Call("withColumnsRenamed", ({old: name},)), columns)

    def _drop(self) -> None:
        free = [c for c in self.columns if c not in self.protected and c.isidentifier()]
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
        kinds = _CONDITIONS.get(self.columns[name], ())
        return self.chosen.choice((*kinds, *kinds, "{c} is not null")).format(c=quoted(name))

    def _where(self) -> None:
        condition = self._condition()
        method = self.chosen.choice(["where", "filter"])
        self._add(Call(method, (Expr(str(condition)) if self.chosen.random() < 0.5 else condition,)))

    def _alias(self) -> None:
        self._add(Call("alias", ("q",)))
        name = self.chosen.choice(self.protected or list(self.columns))
        self._add(Call("where", (f"q.{quoted(name)} is not null",)))

    def _in_spark(self) -> None:
        name = self._name()
        value, kind = self._value()
        self._add(in_spark(Call("withColumn", (name, value))), {**self.columns, name: kind})

    def _transform(self) -> None:
        sub = Maker(self.chosen.randint(0, 10**9), 0, self.kind)
        sub.columns, sub.protected, sub.names, sub.aggregated = dict(self.columns), self.protected, self.names, True
        sub._with_column()
        step = sub.steps[0]
        self._add(Call("transform", (Named(f"lambda df: df{step!r}", step.apply),)), sub.columns)

    def _ddl(self) -> str:
        return ", ".join(f"{quoted(c)} {kind}" for c, kind in self.columns.items())

    def _map_arrow(self) -> None:
        if not all(c.isidentifier() for c in self.columns):
            self._to_df()  # Spark's own mapInArrow cannot take names with dots
        functions = [Named("keep_all", keep_all), Named("other_names", other_names)]
        if self.columns.get("id") == "bigint":
            functions.append(Named("only_even_ids", only_even_ids))
        if self.kind == APPEND:
            functions.append(Named("twice", twice))
        chosen = self.chosen.choice(functions)
        self.unique = self.unique and chosen.name != "twice"
        self._add(Call("mapInArrow", (chosen, self._ddl())))

    def _map_pandas(self) -> None:
        names = [c for c, kind in self.columns.items() if kind in _PANDAS_SAFE or c == "id"]
        if self.columns.get("id") == "bigint":
            names = list(dict.fromkeys(["id", *names]))
            self._add(Call("select", tuple(Expr(quoted(n)) for n in names)), self._of(names))
            self._add(Call("mapInPandas", (Named("odd_ids_in_pandas", odd_ids_in_pandas), self._ddl())))

    def _watermark(self) -> None:
        times = [c for c, kind in self.columns.items() if kind == "timestamp" and c.isidentifier() and c.isascii()]
        if times:
            self.timed = self.chosen.choice(times)
            self._add(Call("withWatermark", (self.timed, "1 hour")))

    def _union(self) -> None:
        inner = [Call("where", (str(self._condition()),))]
        if self.chosen.random() < 0.5:
            self._add(Union(tuple(inner)))
        else:
            names = list(self.columns)
            self.chosen.shuffle(names)
            inner.append(Call("select", tuple(Expr(quoted(n)) for n in names)))
            self._add(Union(tuple(inner), "unionByName"))
        self.unique = False

    # -- keyed operators ---------------------------------------------------------------------------------------

    def _keyed(self) -> None:
        if not all(c.isidentifier() for c in self.columns):
            self._to_df()
        keys = self._keys()
        if not keys or (self.timed is not None and self.columns.get(self.timed) != "timestamp"):
            return
        self.aggregated = True
        if self.kind == MERGE:
            self._update(keys)
        elif self.unique and self.columns.get("id") == "bigint":
            self.chosen.choice([self._rolling, self._stateful, self._stateful])(keys)

    def _keys(self) -> tuple[str, ...]:
        fit = [c for c, kind in self.columns.items() if kind in KEY_TYPES and c.isidentifier() and c != "id"]
        return tuple(self.chosen.sample(fit, min(len(fit), self.chosen.choice([1, 1, 2]))))

    def _specs(self, keys: tuple[str, ...]) -> tuple[dict[str, tuple[str, str | None, str]], dict[str, str]]:
        specs, types = {"rows_": ("count", None, "count(*)")}, {"rows_": "bigint"}
        for column, kind in self.columns.items():
            if not column.isidentifier() or self.chosen.random() < 0.4:
                continue
            c, name = quoted(column), f"v{len(specs)}"
            if kind in ("tinyint", "smallint", "int"):
                specs[name], types[name] = ("sum", column, f"sum({c})"), "bigint"
            elif kind in _ORDERED:
                kind_of = self.chosen.choice(["min", "max"])
                specs[name], types[name] = (kind_of, column, f"{kind_of}({c})"), kind
            else:
                specs[name], types[name] = ("count", column, f"count({c})"), "bigint"
        return specs, types  # type: ignore[return-value]

    def _update(self, keys: tuple[str, ...]) -> None:
        specs, types = self._specs(keys)
        self._add(Aggregate(keys, specs, "update", self._uid()), {**self._of(list(keys)), **types})
        self.protected = keys

    def _rolling(self, keys: tuple[str, ...]) -> None:
        specs, types = self._specs(keys)
        others = {c: k for c, k in self.columns.items() if c not in keys}
        self._add(Aggregate(keys, specs, "rows", self._uid(), "id"), {**self._of(list(keys)), **others, **types})

    def _stateful(self, keys: tuple[str, ...]) -> None:
        flavour = self.chosen.choice(["Arrow", "Pandas"]) if self.timed is None else "Arrow"
        safe = KEY_TYPES if flavour == "Arrow" else _PANDAS_SAFE | {"int", "bigint"}
        keys = tuple(k for k in keys if self.columns[k] in safe)
        column = next(
            (c for c, kind in self.columns.items() if kind in _PANDAS_SAFE - {"double"} and c.isidentifier()), "id"
        )
        if not keys:
            return
        names = list(dict.fromkeys(["id", *keys, column, *([self.timed] if self.timed else [])]))
        self._add(Call("select", tuple(names)), self._of(names))
        step = Stateful(flavour, keys, tuple(self.columns[k] for k in keys), column, self._uid())
        self._add(step, {**self._of(list(keys)), "id": "bigint", "seen": "bigint", "filled": "bigint"})

    def _uid(self) -> str:
        return f"u{self.number}"


# -- functions of mapInArrow and mapInPandas ------------------------------------------------------------------------


def keep_all(batches: Any) -> Any:
    yield from batches


def other_names(batches: Any) -> Any:
    """Spark takes the columns of mapInArrow by position."""
    for batch in batches:
        yield batch.rename_columns([f"c{i}" for i in range(batch.num_columns)])


def only_even_ids(batches: Any) -> Any:
    for batch in batches:
        even = pc.equal(pc.bit_wise_and(batch.column("id"), 1), 0)
        yield batch.filter(even)


def twice(batches: Any) -> Any:
    for batch in batches:
        yield batch
        yield batch


def odd_ids_in_pandas(frames: Any) -> Any:
    for frame in frames:
        yield frame[frame["id"] % 2 == 1]
