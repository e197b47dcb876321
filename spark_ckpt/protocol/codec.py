"""The JSON form of records, events and offsets: one codec for all, made from the fields of a dataclass. Pure.

``write`` gives plain JSON values, ``read`` checks every field: its type, its range, that it is there and that no other
is. What it refuses is a ``CorruptStorageError`` that names the record, the field, what was expected and what found.

=====================================  ================================================================
annotation                             JSON
=====================================  ================================================================
``int``, ``str``, ``bool``, ``Any``    itself; true and false are no integers
``Count``, ``Bit``                     an integer from 0 on; a flag as 1 or 0
``Annotated[str, Choice(...)]``        one of these texts
``bytes``                              base64
``X | None``                           null, or X
``tuple[X, ...]``, ``tuple[X, Y]``     a list, of any or of that length
``Mapping[str, X]``                    an object
``Mapping[int, X]``                    an object with its integers as text, in their order
a dataclass                            an object; a list of its fields' values if ``as_row`` was told of it
several classes with ``KIND``          an object with ``kind``
a class with ``HAS_OWN_JSON``          what its ``to_json`` says, and its ``from_json`` reads
=====================================  ================================================================

A field may be missing if records of earlier releases do not have it (``later(...)``, with its default), and is left out
when it has its default if it is ``optional(...)``. ``GONE`` names what earlier releases wrote.
"""

from __future__ import annotations

import base64
import binascii
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Generic, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from spark_ckpt.errors import RESTORE_ANOTHER, CorruptStorageError

T = TypeVar("T")
Read = Callable[[Any], Any]
Write = Callable[[Any], Any]

_ABSENT: Any = object()
_rows: dict[type, int] = {}


class Unreadable(Exception):  # noqa: N818 - no error of its own: it becomes a CorruptStorageError with a place
    """What a value should have been and is not. ``place``: where in the record, from the inside out."""

    def __init__(self, expected: str, found: Any = _ABSENT) -> None:
        super().__init__(expected, found)
        self.expected, self.found = expected, found
        self.place: list[str] = []


@dataclass(frozen=True)
class AtLeast:
    least: int


@dataclass(frozen=True)
class Choice:
    values: tuple[str, ...]


@dataclass(frozen=True)
class AsNumber:
    """Written as 1 or 0."""


Count = Annotated[int, AtLeast(0)]
Bit = Annotated[bool, AsNumber()]


def later(default: Any = MISSING, *, factory: Any = MISSING, name: str | None = None) -> Any:
    """A field that records of earlier releases do not have."""
    return _field(default, factory, {"later": True, "name": name})


def optional(default: Any = None) -> Any:
    """As :func:`later`, and not written when it has its default."""
    return _field(default, MISSING, {"later": True, "left_out": True})


def named(name: str) -> Any:
    """A field that is called otherwise in JSON."""
    return field(metadata={"name": name})


def _field(default: Any, factory: Any, metadata: dict[str, Any]) -> Any:
    if factory is not MISSING:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


def as_row(cls: type, shortest: int | None = None) -> None:
    """Write ``cls`` as the list of its fields' values, told before any is read or written. With ``shortest``, values
    behind that many are left out if they are the default.

    A class of which there are thousands may write its own ``to_row``, and read with a quick ``of_row`` that returns
    None for what is to be looked at field by field, to say what is wrong with it.
    """
    _rows[cls] = len(fields(cls)) if shortest is None else shortest


def write(value: Any) -> Any:
    """A dataclass as plain JSON values."""
    return write_as(type(value), value)


def read(cls: type[T], value: Any, where: str) -> T:
    """Inverse of :func:`write`. ``where`` names the record in messages. Raises ``CorruptStorageError``."""
    return read_as(cls, value, where)


def write_as(kind: Any, value: Any) -> Any:
    """``value``, which is annotated as ``kind``."""
    return _codec(kind).write(value)


def read_as(kind: Any, value: Any, where: str) -> Any:
    try:
        return _codec(kind).read(value)
    except Unreadable as bad:
        place = "".join(reversed(bad.place)).removeprefix(".")
        found = "nothing" if bad.found is _ABSENT else shown(bad.found)
        inside = f" in {place!r}" if place else ""
        raise CorruptStorageError(
            f"{where}: expected {bad.expected}{inside}, found {found}; {RESTORE_ANOTHER}"
        ) from None


def read_row(cls: type[T], value: Any) -> T:
    """For a ``from_json`` that was called from here."""
    kind: Any = cls
    found: T = _codec(kind).read(value)
    return found


def shown(value: Any) -> str:
    """``value`` in a message: not too much of it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# --- how a value of some annotation is read and written --------------------------------------------------------


@dataclass(frozen=True)
class _Codec(Generic[T]):
    """``expected`` says in a message what is read."""

    expected: str
    read: Callable[[Any], T]
    write: Write


@cache
def _codec(kind: Any) -> _Codec[Any]:
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _limited(args[0], args[1])
    if origin in (Union, types.UnionType):
        return _one_of_kinds(args) if type(None) not in args else _nullable(args)
    if origin is tuple:
        return _list(args[0]) if args[1] is ... else _fixed(args)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(args[0], args[1])
    if hasattr(kind, "__supertype__"):
        return _codec(kind.__supertype__)
    if not is_dataclass(kind):
        raise TypeError(f"there is no JSON form of {kind}")
    if kind in _rows:
        return _row(kind)
    return _own(kind) if hasattr(kind, "HAS_OWN_JSON") else _object(kind)


def _fail(expected: str, found: Any) -> NoReturn:
    raise Unreadable(expected, found)


def _itself(value: Any) -> Any:
    return value


def _typed(cls: type, expected: str) -> _Codec[Any]:
    def read(value: Any) -> Any:
        return value if type(value) is cls else _fail(expected, value)

    return _Codec(expected, read, _itself)


def _bytes() -> _Codec[bytes]:
    def read(value: Any) -> bytes:
        try:
            return base64.b64decode(value, validate=True) if type(value) is str else _fail("base64 text", value)
        except binascii.Error:
            _fail("base64 text", value)

    return _Codec("base64 text", read, lambda data: base64.b64encode(data).decode())


_PLAIN: dict[Any, _Codec[Any]] = {
    int: _typed(int, "an integer"),
    str: _typed(str, "text"),
    bool: _typed(bool, "true or false"),
    bytes: _bytes(),
    Any: _Codec("a value", _itself, _itself),
}


def _limited(kind: Any, limit: AtLeast | Choice | AsNumber) -> _Codec[Any]:
    inner = _codec(kind)
    if isinstance(limit, AsNumber):
        return _Codec("0 or 1", lambda v: v == 1 if type(v) is int and 0 <= v <= 1 else _fail("0 or 1", v), int)
    if isinstance(limit, AtLeast):
        least, expected = limit.least, f"an integer from {limit.least} on"

        def read(value: Any) -> Any:
            return value if type(value) is int and value >= least else _fail(expected, value)

        return _Codec(expected, read, inner.write)
    allowed, texts = frozenset(limit.values), " or ".join(limit.values)

    def read_text(value: Any) -> Any:
        return value if type(value) is str and value in allowed else _fail(texts, value)

    return _Codec(texts, read_text, inner.write)


def _nullable(args: tuple[Any, ...]) -> _Codec[Any]:
    (kind,) = (a for a in args if a is not type(None))
    inner = _codec(kind)
    expected, read_inner, write_inner = f"{inner.expected} or null", inner.read, inner.write

    def read(value: Any) -> Any:
        if value is None:
            return None
        try:
            return read_inner(value)
        except Unreadable as bad:
            if not bad.place:
                bad.expected = expected
            raise

    return _Codec(expected, read, lambda value: None if value is None else write_inner(value))


def _list(kind: Any) -> _Codec[Any]:
    inner = _codec(kind)
    read_item, write_item = inner.read, inner.write

    def read(value: Any) -> Any:
        if type(value) is not list:
            _fail("a list", value)
        out = []
        try:
            for item in value:
                out.append(read_item(item))
        except Unreadable as bad:
            bad.place.append(f"[{len(out)}]")
            raise
        return tuple(out)

    if write_item is _itself:
        return _Codec("a list", read, list)
    return _Codec("a list", read, lambda value: [write_item(item) for item in value])


def _fixed(kinds: tuple[Any, ...]) -> _Codec[Any]:
    inner = [_codec(kind) for kind in kinds]
    expected = f"a list of {len(kinds)}"

    def read(value: Any) -> Any:
        if type(value) is not list or len(value) != len(inner):
            _fail(expected, value)
        return tuple(_at(f"[{i}]", c, v) for i, (c, v) in enumerate(zip(inner, value, strict=True)))

    return _Codec(expected, read, lambda value: [c.write(v) for c, v in zip(inner, value, strict=True)])


def _mapping(key: Any, kind: Any) -> _Codec[Any]:
    inner = _codec(kind)
    read_item, write_item, by_number = inner.read, inner.write, key is int

    def read(value: Any) -> Any:
        if type(value) is not dict:
            _fail("a JSON object", value)
        out: dict[Any, Any] = {}
        name = ""
        try:
            for name, item in value.items():
                out[_number(name) if by_number else name] = read_item(item)
        except Unreadable as bad:
            bad.place.append(f".{name}")
            raise
        return out

    def write_numbered(value: Any) -> Any:
        return {str(k): write_item(v) for k, v in sorted(value.items())}

    def write_named(value: Any) -> Any:
        return dict(value) if write_item is _itself else {k: write_item(v) for k, v in value.items()}

    return _Codec("a JSON object", read, write_numbered if by_number else write_named)


def _number(text: Any) -> int:
    try:
        return int(text)
    except ValueError:
        _fail("an integer as a name", text)


def _at(place: str, codec: _Codec[Any], value: Any) -> Any:
    try:
        return codec.read(value)
    except Unreadable as bad:
        bad.place.append(place)
        raise


def _one_of_kinds(classes: tuple[Any, ...]) -> _Codec[Any]:
    readers = {c.KIND: _codec(c).read for c in classes}
    writers = {c: _codec(c).write for c in classes}
    expected = "a known kind"

    def read(value: Any) -> Any:
        if type(value) is not dict:
            _fail("a JSON object", value)
        kind = value.get("kind", _ABSENT)
        reader = readers.get(kind) if type(kind) is str else None
        if reader is None:
            bad = Unreadable(expected, kind)
            bad.place.append(".kind")
            raise bad
        return reader(value)

    return _Codec("a JSON object", read, lambda value: {"kind": value.KIND, **writers[type(value)](value)})


def _hints(cls: type) -> list[tuple[Field[Any], Any]]:
    hints = get_type_hints(cls, include_extras=True)
    return [(f, hints[f.name]) for f in fields(cls)]


def _row(cls: Any) -> _Codec[Any]:
    names, shortest = [f.name for f in fields(cls)], _rows[cls]
    inner = [_codec(kind) for _, kind in _hints(cls)]
    readers, values = [c.read for c in inner], attrgetter(*names)
    others = [(i, c.write) for i, c in enumerate(inner) if c.write is not _itself]
    expected = f"a list of {', '.join(names)}"
    of_row: Any = getattr(cls, "of_row", None)
    defaults = [f.default for f in fields(cls)]

    def read(value: Any) -> Any:
        if type(value) is not list or not shortest <= len(value) <= len(readers):
            _fail(expected, value)
        out: list[Any] = []
        try:
            for reader, item in zip(readers, value):  # what is left out has its default
                out.append(reader(item))
        except Unreadable as bad:
            bad.place.append(f".{names[len(out)]}")
            raise
        return cls(*out)

    def write_row(value: Any) -> Any:
        found = [*values(value)]
        for i, w in others:
            found[i] = w(found[i])
        while len(found) > shortest and getattr(value, names[len(found) - 1]) == defaults[len(found) - 1]:
            found.pop()
        return found

    def read_quickly(value: Any) -> Any:
        found = of_row(value)
        return read(value) if found is None else found

    return _Codec(expected, read if of_row is None else read_quickly, getattr(cls, "to_row", write_row))


def _own(cls: Any) -> _Codec[Any]:
    return _Codec(cls.HAS_OWN_JSON, cls.from_json, lambda value: value.to_json())


def _object(cls: Any) -> _Codec[Any]:
    parts = [(f.metadata.get("name") or f.name, _codec(kind), _default(f)) for f, kind in _hints(cls)]
    is_tagged = hasattr(cls, "KIND")
    known = {name for name, _, _ in parts} | getattr(cls, "GONE", frozenset()) | ({"kind"} if is_tagged else set())
    readers = [(name, codec.read, codec.expected, default) for name, codec, default in parts]
    names, writers = [name for name, _, _ in parts], [codec.write for _, codec, _ in parts]
    defaults = [f.default if f.metadata.get("left_out") else _ABSENT for f in fields(cls)]
    own = [f.name for f in fields(cls)]
    values: Write = attrgetter(*own) if len(own) > 1 else lambda value: tuple(getattr(value, name) for name in own)

    def read(value: Any) -> Any:
        if type(value) is not dict:
            _fail("a JSON object", value)
        out, name = [], ""
        there = 1 if is_tagged and "kind" in value else 0
        try:
            for name, reader, expected, default in readers:
                item = value.get(name, _ABSENT)
                if item is not _ABSENT:
                    there += 1
                    out.append(reader(item))
                elif default is None:
                    raise Unreadable(expected)
                else:
                    out.append(default())
        except Unreadable as bad:
            bad.place.append(f".{name}")
            raise
        if there != len(value):
            _refuse_unknown(value, known)
        return cls(*out)

    def write_object(value: Any) -> Any:
        return {n: item if w is _itself else w(item) for n, w, item in zip(names, writers, values(value))}

    def write_in_part(value: Any) -> Any:
        found = zip(names, writers, values(value), defaults)
        return {n: w(item) for n, w, item, skip in found if skip is _ABSENT or item != skip}

    whole = all(default is _ABSENT for default in defaults)
    return _Codec("a JSON object", read, write_object if whole else write_in_part)


def _refuse_unknown(value: Mapping[str, Any], known: set[str]) -> None:
    for name in value:
        if name not in known:
            bad = Unreadable("no such field (of a newer release?)", value[name])
            bad.place.append(f".{name}")
            raise bad


def _default(f: Field[Any]) -> Callable[[], Any] | None:
    """What stands for a field that is missing; None if it must be there."""
    if not f.metadata.get("later"):
        return None
    if f.default_factory is not MISSING:
        return f.default_factory
    value = f.default
    return lambda: value
