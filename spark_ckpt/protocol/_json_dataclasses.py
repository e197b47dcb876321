"""The JSON form of dataclasses: an object, or a list of the values of its fields. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from operator import attrgetter
from typing import Any, get_type_hints

from spark_ckpt.protocol._json_codec import ABSENT, Codec, Unknown, Unreadable, Write, fail, itself

CodecOf = Callable[[Any], Codec[Any]]
"""The codec of what is annotated so."""

_Part = tuple[str, Codec[Any], Callable[[], Any] | None]
"""A field's name in JSON, its codec, and what stands for it where it is missing."""

ROWS: dict[type, int] = {}
"""The classes that are written as lists, and how many values each has at least."""


def _hints(cls: type) -> list[tuple[Field[Any], Any]]:
    hints = get_type_hints(cls, include_extras=True)
    return [(f, hints[f.name]) for f in fields(cls)]


def row_codec(cls: Any, codec_of: CodecOf) -> Codec[Any]:
    inner = [codec_of(kind) for _, kind in _hints(cls)]
    expected = f"a list of {', '.join(f.name for f in fields(cls))}"
    read = _row_reader(cls, [codec.read for codec in inner], expected)
    of_row: Any = getattr(cls, "of_row", None)

    def read_quickly(value: Any) -> Any:
        found = of_row(value)
        return read(value) if found is None else found

    to_row: Write = getattr(cls, "to_row", None) or _row_writer(cls, [codec.write for codec in inner])
    return Codec(expected, read if of_row is None else read_quickly, to_row)


def _row_reader(cls: Any, readers: Sequence[Callable[[Any], Any]], expected: str) -> Callable[[Any], Any]:
    names, shortest = [f.name for f in fields(cls)], ROWS[cls]

    def read(value: Any) -> Any:
        if type(value) is not list or not shortest <= len(value) <= len(readers):
            fail(expected, value)
        out: list[Any] = []
        try:
            for reader, item in zip(readers, value):  # what is left out has its default
                out.append(reader(item))
        except Unreadable as bad:
            bad.place.append(f".{names[len(out)]}")
            raise
        return cls(*out)

    return read


def _row_writer(cls: Any, writers: Sequence[Write]) -> Write:
    names, shortest = [f.name for f in fields(cls)], ROWS[cls]
    values, defaults = attrgetter(*names), [f.default for f in fields(cls)]
    others = [(i, write) for i, write in enumerate(writers) if write is not itself]

    def write_row(value: Any) -> Any:
        found = [*values(value)]
        for i, w in others:
            found[i] = w(found[i])
        while len(found) > shortest and getattr(value, names[len(found) - 1]) == defaults[len(found) - 1]:
            found.pop()
        return found

    return write_row


def own_codec(cls: Any) -> Codec[Any]:
    return Codec(cls.HAS_OWN_JSON, cls.from_json, lambda value: value.to_json())


def object_codec(cls: Any, codec_of: CodecOf) -> Codec[Any]:
    parts = [(f.metadata.get("name") or f.name, codec_of(kind), _default(f)) for f, kind in _hints(cls)]
    write = _object_writer(cls, [(name, codec.write) for name, codec, _ in parts])
    return Codec("a JSON object", _object_reader(cls, parts), write)


def _object_reader(cls: Any, parts: Sequence[_Part]) -> Callable[[Any], Any]:
    is_tagged = hasattr(cls, "KIND")
    known = {name for name, _, _ in parts} | getattr(cls, "GONE", frozenset()) | ({"kind"} if is_tagged else set())
    readers = [(name, codec.read, codec.expected, default) for name, codec, default in parts]

    def read(value: Any) -> Any:
        if type(value) is not dict:
            fail("a JSON object", value)
        out, name = [], ""
        there = 1 if is_tagged and "kind" in value else 0
        try:
            for name, reader, expected, default in readers:
                item = value.get(name, ABSENT)
                if item is not ABSENT:
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

    return read


def _left_out_as(of: Any) -> Any:
    return of.default if of.default_factory is MISSING else of.default_factory()


def _object_writer(cls: Any, parts: Sequence[tuple[str, Write]]) -> Write:
    names, writers = [name for name, _ in parts], [write for _, write in parts]
    defaults = [_left_out_as(f) if f.metadata.get("left_out") else ABSENT for f in fields(cls)]
    own = [f.name for f in fields(cls)]
    values: Write = attrgetter(*own) if len(own) > 1 else lambda value: tuple(getattr(value, name) for name in own)

    def write_object(value: Any) -> Any:
        return {n: item if w is itself else w(item) for n, w, item in zip(names, writers, values(value))}

    def write_in_part(value: Any) -> Any:
        found = zip(names, writers, values(value), defaults)
        return {n: w(item) for n, w, item, skip in found if skip is ABSENT or item != skip}

    whole = all(default is ABSENT for default in defaults)
    return write_object if whole else write_in_part


def _refuse_unknown(value: Mapping[str, Any], known: set[str]) -> None:
    for name in value:
        if name not in known:
            bad = Unknown("no such field", value[name])
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
