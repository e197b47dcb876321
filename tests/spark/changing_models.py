"""What keyed operators come to, row by row in plain Python: the oracle of jobs that change.

A model keeps each value under the name that state has it under (``sum(v)``), so that a changed query finds what is
still there, and what comes begins with nothing. What a user answers to a start's questions is told by ``answer``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Row(NamedTuple):
    """An input row. ``at``: seconds. ``p``: the phase of the job in which it is read."""

    k: str | None
    v: int
    w: int
    id: int
    p: int
    at: int


class Field(NamedTuple):
    """A value that an operator keeps: ``kind`` (count, sum or max) of the column ``of``."""

    alias: str
    kind: str
    of: str
    type: str = "bigint"


@dataclass(frozen=True)
class Shape:
    """An operator, as far as a change may change it. ``name``: what its rows are called, which stays. ``by``: what of a
    row its key is, as :data:`KEYS` has it."""

    name: str
    uid: str
    kind: str
    fields: tuple[Field, ...]
    key: str = "k"
    by: str = "whole"
    minutes: int = 10
    first: int = 2
    once: bool = True
    there: bool = True


KEYS = {
    "whole": ("k", "string", lambda k: k),
    "letter": ("substr(k, 1, 1)", "string", lambda k: None if k is None else k[:1]),
    "number": ("CAST(ascii(k) AS INT)", "int", lambda k: None if k is None else ord(k[0])),
}
"""How a key is computed: in SQL, its type, in Python."""

Out = str | None | frozenset[str]
"""The value of a key that comes out. None: the key is removed. Several: any of them may be the last."""

CLOSING = 90_000
"""The event time of a row that ends all windows."""


def text(values: Iterable[Any]) -> str:
    """As the queries write values."""
    return "|".join("~" if v is None else str(v) for v in values)


def key_of(shape: Shape, row: Row) -> Any:
    return KEYS[shape.by][2](row.k)


def folded(kind: str, before: Any, value: int) -> int:
    if kind == "count":
        return int(before or 0) + 1
    if before is None:
        return value
    return int(before) + value if kind == "sum" else max(int(before), value)


def shown(kind: str, value: Any) -> Any:
    return 0 if kind == "count" and value is None else value


@dataclass
class Model:
    """``groups``: key -> name of a value -> it."""

    named: bool
    """Whether values are known by what computes them, as aggregates are; else by their alias."""
    groups: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def name(self, of: Field) -> str:
        return of.alias if not self.named else "count(*)" if of.kind == "count" else f"{of.kind}({of.of})"

    def feed(self, shape: Shape, rows: list[Row]) -> Mapping[str, Out]:
        """What comes out: a text of the key -> one of the values."""
        return {self.text_of(key): self.values(shape, key) for key in self.fold(shape, rows)}

    def fold(self, shape: Shape, rows: list[Row]) -> set[Any]:
        self.keep_only(shape)
        touched = set()
        for row in rows:
            for key in self.keys(shape, row):
                touched.add(key)
                self.fold_row(shape, self.groups.setdefault(key, {}), row)
        return touched & self.groups.keys()  # sessions merge

    def fold_row(self, shape: Shape, group: dict[str, Any], row: Row) -> None:
        for of in shape.fields:
            name = self.name(of)
            group[name] = folded(of.kind, group.get(name), getattr(row, of.of))

    def keep_only(self, shape: Shape) -> None:
        names = {self.name(of) for of in shape.fields}
        self.groups = {key: {n: v for n, v in group.items() if n in names} for key, group in self.groups.items()}

    def keys(self, shape: Shape, row: Row) -> list[Any]:
        return [(key_of(shape, row),)]

    def text_of(self, key: Any) -> str:
        return text(key)

    def values(self, shape: Shape, key: Any) -> str:
        group = self.groups[key]
        return text(shown(of.kind, group.get(self.name(of))) for of in shape.fields)

    def ended(self, shape: Shape) -> dict[str, str]:
        """What comes out, in output mode append, at the end of all time."""
        return {}

    def answer(self, method: str, *arguments: Any) -> None:
        """``ckpt.migrate(uid).<method>(<arguments>)``. A type's question has the column, ``max_v``, of ``max(v)``."""
        if self.named:
            arguments = tuple(re.sub(r"^(sum|max)_(\w+)$", r"\1(\2)", str(a)) for a in arguments)
        if method == "begin_empty" and not arguments:
            self.groups = {}
        for values in self.kept():
            if method == "rename" and arguments[0] in values:
                values[arguments[1]] = values.pop(arguments[0])
            elif method == "begin_empty" and arguments:
                values.pop(arguments[0], None)
            elif method == "add":
                values[arguments[0]] = arguments[1]

    def kept(self) -> list[dict[str, Any]]:
        """Values by name, of all groups."""
        return list(self.groups.values())

    def regrouped(self, by: str) -> None:
        """What the function of a migration makes of the state: keys become those of ``by``."""
        kinds = {"count": sum, "n": sum, "sum": sum, "total": sum, "max": max, "most": max}
        merged: dict[Any, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        for key, group in self.groups.items():
            values = merged[(*key[:-1], KEYS[by][2](key[-1]))]
            for name, value in group.items():
                values[name].append(value)
        self.groups = {
            key: {name: kinds[name.partition("(")[0]](values) for name, values in group.items()}
            for key, group in merged.items()
        }


class Windows(Model):
    """Keys are (start, key)."""

    def keys(self, shape: Shape, row: Row) -> list[Any]:
        length = 60 * shape.minutes
        return [(row.at // length * length, key_of(shape, row))]

    def ended(self, shape: Shape) -> dict[str, str]:
        return {self.text_of(key): self.values(shape, key) for key in self.groups if key[0] < CLOSING - 7200}


class Sessions(Model):
    """Keys are (start, key); each group knows its end, which no name of a value is called."""

    def keys(self, shape: Shape, row: Row) -> list[Any]:
        key, end = key_of(shape, row), row.at + 60 * shape.minutes
        of_key = [g for g in self.groups if g[1] == key]
        met = [g for g in of_key if g[0] <= end and row.at <= self.groups[g]["end"]]
        start = min([row.at, *(g[0] for g in met)])
        groups = [self.groups.pop(g) for g in met]
        merged: dict[str, Any] = {"end": max([end, *(group["end"] for group in groups)])}
        for of in shape.fields:
            values = [group[self.name(of)] for group in groups if self.name(of) in group]
            if values:
                merged[self.name(of)] = max(values) if of.kind == "max" else sum(values)
        self.groups[start, key] = merged
        return [(start, key)]

    def keep_only(self, shape: Shape) -> None:
        ends = {key: group["end"] for key, group in self.groups.items()}
        super().keep_only(shape)
        for key, end in ends.items():
            self.groups[key]["end"] = end

    ended = Windows.ended


@dataclass
class Once(Model):
    """De-duplication by key and v: the phase of the first one comes out."""

    def feed(self, shape: Shape, rows: list[Row]) -> dict[str, str]:
        found = {}
        for row in rows:
            key = (row.v, key_of(shape, row))
            if key not in self.groups:
                self.groups[key] = {}
                found[text(key)] = str(row.p)
        return found


class Chain(Model):
    """A de-duplication by key and v in front of the fold."""

    def __init__(self, named: bool) -> None:
        super().__init__(named)
        self.front = Once(False)

    def feed(self, shape: Shape, rows: list[Row]) -> dict[str, str]:
        if shape.once:
            news = [row for row in rows if self.front.feed(shape, [row])]
        else:
            news, self.front = rows, Once(False)
        return super().feed(shape, news)


class Top(Model):
    """``groups``: key -> "rows": the first rows, each with its values by name."""

    def feed(self, shape: Shape, rows: list[Row]) -> dict[str, str | None]:
        names = [of.alias for of in shape.fields]
        self.groups = {k: {"rows": [_only(r, names) for r in g["rows"]]} for k, g in self.groups.items()}
        before = {key: list(group["rows"]) for key, group in self.groups.items()}
        touched = set()
        for row in rows:
            key = (key_of(shape, row),)
            touched.add(key)
            kept = self.groups.setdefault(key, {"rows": []})
            new = {"v": row.v, "id": row.id, **{of.alias: getattr(row, of.of) for of in shape.fields}}
            kept["rows"] = sorted([*kept["rows"], new], key=lambda r: (-r["v"], r["id"]))[: shape.first]
        cut = {
            text((rank + 1, *key)): None
            for key in touched
            for rank in range(len(self.groups[key]["rows"]), len(before.get(key, [])))
        }
        return cut | {
            text((rank + 1, *key)): text(row[n] for n in ("v", "id", *names))
            for key in touched
            for rank, row in enumerate(self.groups[key]["rows"])
            if row not in before.get(key, [])[rank : rank + 1]
        }

    def kept(self) -> list[dict[str, Any]]:
        return [row for group in self.groups.values() for row in group["rows"]]


def _only(row: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return {n: row.get(n) for n in ("v", "id", *names)}


class Pairs(Model):
    """A join of rows of odd and even ids, which wait for each other for ever. A row that is read again meets others
    beside what was kept of it, which may have other values by now."""

    def feed(self, shape: Shape, rows: list[Row]) -> dict[str, frozenset[str]]:
        names = [of.alias for of in shape.fields]
        found: dict[str, frozenset[str]] = {}
        for group in self.groups.values():
            group["left"] = [{n: r.get(n) for n in ("id", *names)} for r in group["left"]]
        for row in rows:
            key = (key_of(shape, row),)
            group = self.groups.setdefault(key, {"left": [], "right": []})
            left, right = group["left"], group["right"]
            (left if row.id % 2 else right).append(
                {"id": row.id, **{of.alias: getattr(row, of.of) for of in shape.fields}}
            )
            news = [(left[-1], other) for other in right] if row.id % 2 else [(other, right[-1]) for other in left]
            if key[0] is not None:
                for a, b in news:
                    pair = text((a["id"], b["id"], *key))
                    found[pair] = found.get(pair, frozenset()) | {text(a[n] for n in names)}
        return found

    def kept(self) -> list[dict[str, Any]]:
        return [row for group in self.groups.values() for row in group["left"]]
