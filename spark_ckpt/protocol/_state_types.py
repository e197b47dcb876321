"""Types of a state's columns, as records have them (Arrow's text), and which of them a column may go on as."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

_WIDER = {
    "int8": ("int16", "int32", "int64"),
    "int16": ("int32", "int64"),
    "int32": ("int64",),
    "float": ("double",),
    "date32[day]": ("timestamp[us]",),
}
"""Arrow's name of a type -> those that hold all of its values. A date is a time of day only where no zone is asked."""
_OPEN, _CLOSE = "<([", ">)]"


@dataclass(frozen=True)
class Nested:
    """``kind`` is ``struct``, ``list`` or ``map``; the parts of the last two are called by their place."""

    kind: str
    parts: tuple[tuple[str, Kind], ...]


Kind = str | Nested
"""A type without parts is its own text."""


def kind_of(text: str) -> Kind:
    """What Arrow's text of a type says. A text that is none of Arrow's is a type without parts."""
    head, bracket, body = text.partition("<")
    if not bracket or not body.endswith(">"):
        return text
    parts = split(body[:-1])
    if head == "struct":
        named = [part.partition(": ") for part in parts]
        return Nested("struct", tuple((name, kind_of(_plain(kind))) for name, _, kind in named))
    if head in ("list", "large_list") and len(parts) == 1:
        return Nested("list", (("element", kind_of(_plain(parts[0].partition(": ")[2]))),))
    if head == "map" and len(parts) == 2:
        return Nested("map", tuple((n, kind_of(_plain(p))) for n, p in zip(("key", "value"), parts, strict=True)))
    return text


def _plain(text: str) -> str:
    return text.removesuffix(" not null")


def split(text: str) -> list[str]:
    """``text`` at its commas, those within brackets aside."""
    depth, parts, start = 0, [], 0
    for i, letter in enumerate(text):
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if not depth and text.startswith(", ", i):
            parts.append(text[start:i])
            start = i + 2
    return [*parts, text[start:]] if text else []


def columns_of(text: str) -> dict[str, str]:
    """The columns of a schema's text, ``n int64, s struct<a: string>``: no name in a state table has a space."""
    named = [part.partition(" ") for part in split(text)]
    return {name: kind for name, _, kind in named}


def widens(was: str, now: str) -> bool:
    """Whether every value of type ``was`` is one of ``now``, or is with the fields of a struct that both have."""
    return was == now or _widens(kind_of(was), kind_of(now))


def _widens(was: Kind, now: Kind) -> bool:
    if isinstance(was, str) or isinstance(now, str):
        return was == now or (isinstance(was, str) and isinstance(now, str) and _wider(was, now))
    if was.kind != now.kind:
        return False
    then, here = dict(was.parts), dict(now.parts)
    both = then.keys() & here.keys()
    return (bool(both) or not then) and all(_widens(then[name], here[name]) for name in both)


def _wider(was: str, now: str) -> bool:
    then, here = _decimal(was), _decimal(now)
    if then and here:
        return here[1] >= then[1] and here[0] - here[1] >= then[0] - then[1]
    return now in _WIDER.get(was, ())


def _decimal(text: str) -> tuple[int, int] | None:
    if not text.startswith("decimal128("):
        return None
    precision, scale = text[len("decimal128(") : -1].split(", ")
    return int(precision), int(scale)


def same_hash(was: str, now: str) -> bool:
    """Whether a key keeps its hash as a value of the type ``now``: a short decimal's is that of its digits."""
    then, here = _decimal(was), _decimal(now)
    return was == now or bool(then and here and then[1] == here[1] and then[0] <= here[0] <= _SHORT_DECIMAL)


_SHORT_DECIMAL = 18


def lost_fields(was: str, now: str, at: str = "") -> list[tuple[str, str]]:
    """Fields of structs that went, each with one that came beside it and could go on from it: by their paths."""
    return _lost(kind_of(was), kind_of(now), at)


def _lost(was: Kind, now: Kind, at: str) -> list[tuple[str, str]]:
    if isinstance(was, str) or isinstance(now, str):
        return []
    then, here = dict(was.parts), dict(now.parts)
    gone, came = [n for n in then if n not in here], [n for n in here if n not in then]
    found = [(f"{at}.{g}", f"{at}.{c}") for g, c in matched(gone, came, lambda g, c: _widens(then[g], here[c]))]
    for name in then.keys() & here.keys():
        found += _lost(then[name], here[name], f"{at}.{name}")
    return found


def fields_gone(was: str, now: str, at: str) -> set[str]:
    """The paths of struct fields that are not there any more, of the column ``at``."""
    return _gone(kind_of(was), kind_of(now), at)


def _gone(was: Kind, now: Kind, at: str) -> set[str]:
    if isinstance(was, str) or isinstance(now, str):
        return set()
    here = dict(now.parts)
    found = {f"{at}.{name}" for name, _ in was.parts if name not in here}
    return found.union(*(_gone(kind, here[name], f"{at}.{name}") for name, kind in was.parts if name in here))


def matched(gone: Iterable[str], came: Iterable[str], fits: Callable[[str, str], bool]) -> list[tuple[str, str]]:
    """Each of ``came`` that could be one of ``gone``, with the first of those that no other took."""
    left, found = list(gone), []
    for c in came:
        g = next((g for g in left if fits(g, c)), None)
        if g is not None:
            left.remove(g)
            found.append((g, c))
    return found


def castable(was: str, now: str) -> bool:
    """Whether values have one meaning as the other type, which they may not fit: a time zone has none."""
    return _castable(kind_of(was), kind_of(now))


def _castable(was: Kind, now: Kind) -> bool:
    if isinstance(was, str) and isinstance(now, str):
        return was == now or _ZONED not in (was, now)
    if isinstance(was, str) or isinstance(now, str) or was.kind != now.kind:
        return False
    here = dict(now.parts)
    return all(_castable(kind, here[name]) for name, kind in was.parts if name in here)


_ZONED = "timestamp[us, tz=UTC]"
_SQL = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "bool": "boolean",
    "date32[day]": "date",
    "timestamp[us, tz=UTC]": "timestamp",
    "timestamp[us]": "timestamp_ntz",
}
_OTHER_NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "real": "float"}


def sql_type(text: str) -> str:
    """Spark's name of a type, of which Arrow's text is given; of one with parts, Arrow's."""
    found = _decimal(text)
    return f"decimal({found[0]},{found[1]})" if found else _SQL.get(text, text)


def is_type(name: str, text: str) -> bool:
    """Whether ``name``, as a user writes it, is the type of Arrow's ``text``."""
    low = name.strip().lower().replace(" ", "")
    return _OTHER_NAMES.get(low, low) == sql_type(text).lower().replace(" ", "")
