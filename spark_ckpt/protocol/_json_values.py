"""The JSON form of values, lists and objects by their annotation; dataclasses: ``_json_dataclasses``. Pure."""

from __future__ import annotations

import base64
import types
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from spark_ckpt.protocol._json_codec import ABSENT, Codec, Unreadable, fail, itself
from spark_ckpt.protocol._json_dataclasses import ROWS, object_codec, own_codec, row_codec


@dataclass(frozen=True)
class AtLeast:
    least: int


@dataclass(frozen=True)
class Choice:
    values: tuple[str, ...]


@dataclass(frozen=True)
class AsNumber:
    """Written as 1 or 0."""


@cache
def codec_of(kind: Any) -> Codec[Any]:
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
        return codec_of(kind.__supertype__)
    if not is_dataclass(kind):
        raise TypeError(f"there is no JSON form of {kind}")
    if kind in ROWS:
        return row_codec(kind, codec_of)
    return own_codec(kind) if hasattr(kind, "HAS_OWN_JSON") else object_codec(kind, codec_of)


def _typed(cls: type, expected: str) -> Codec[Any]:
    def read(value: Any) -> Any:
        return value if type(value) is cls else fail(expected, value)

    return Codec(expected, read, itself)


def _bytes() -> Codec[bytes]:
    def read(value: Any) -> bytes:
        try:
            return base64.b64decode(value, validate=True) if type(value) is str else fail("base64 text", value)
        except ValueError:  # binascii.Error is one, and text that is not ASCII another
            fail("base64 text", value)

    return Codec("base64 text", read, lambda data: base64.b64encode(data).decode())


_PLAIN: dict[Any, Codec[Any]] = {
    int: _typed(int, "an integer"),
    str: _typed(str, "text"),
    bool: _typed(bool, "true or false"),
    bytes: _bytes(),
    Any: Codec("a value", itself, itself),
}


def _limited(kind: Any, limit: AtLeast | Choice | AsNumber) -> Codec[Any]:
    inner = codec_of(kind)
    if isinstance(limit, AsNumber):
        return Codec("0 or 1", lambda v: v == 1 if type(v) is int and 0 <= v <= 1 else fail("0 or 1", v), int)
    if isinstance(limit, AtLeast):
        least, expected = limit.least, f"an integer from {limit.least} on"

        def read(value: Any) -> Any:
            return value if type(value) is int and value >= least else fail(expected, value)

        return Codec(expected, read, inner.write)
    allowed, texts = frozenset(limit.values), " or ".join(limit.values)

    def read_text(value: Any) -> Any:
        return value if type(value) is str and value in allowed else fail(texts, value)

    return Codec(texts, read_text, inner.write)


def _nullable(args: tuple[Any, ...]) -> Codec[Any]:
    (kind,) = (a for a in args if a is not type(None))
    inner = codec_of(kind)
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

    return Codec(expected, read, lambda value: None if value is None else write_inner(value))


def _list(kind: Any) -> Codec[Any]:
    inner = codec_of(kind)
    read_item, write_item = inner.read, inner.write

    def read(value: Any) -> Any:
        if type(value) is not list:
            fail("a list", value)
        out = []
        try:
            for item in value:
                out.append(read_item(item))
        except Unreadable as bad:
            bad.place.append(f"[{len(out)}]")
            raise
        return tuple(out)

    if write_item is itself:
        return Codec("a list", read, list)
    return Codec("a list", read, lambda value: [write_item(item) for item in value])


def _fixed(kinds: tuple[Any, ...]) -> Codec[Any]:
    inner = [codec_of(kind) for kind in kinds]
    expected = f"a list of {len(kinds)}"

    def read(value: Any) -> Any:
        if type(value) is not list or len(value) != len(inner):
            fail(expected, value)
        return tuple(_at(f"[{i}]", c, v) for i, (c, v) in enumerate(zip(inner, value, strict=True)))

    return Codec(expected, read, lambda value: [c.write(v) for c, v in zip(inner, value, strict=True)])


def _mapping(key: Any, kind: Any) -> Codec[Any]:
    inner = codec_of(kind)
    read_item, write_item, by_number = inner.read, inner.write, key is int

    def read(value: Any) -> Any:
        if type(value) is not dict:
            fail("a JSON object", value)
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
        return dict(value) if write_item is itself else {k: write_item(v) for k, v in value.items()}

    return Codec("a JSON object", read, write_numbered if by_number else write_named)


def _number(text: Any) -> int:
    try:
        return int(text)
    except ValueError:
        fail("an integer as a name", text)


def _at(place: str, codec: Codec[Any], value: Any) -> Any:
    try:
        return codec.read(value)
    except Unreadable as bad:
        bad.place.append(place)
        raise


def _one_of_kinds(classes: tuple[Any, ...]) -> Codec[Any]:
    readers = {c.KIND: codec_of(c).read for c in classes}
    writers = {c: codec_of(c).write for c in classes}
    expected = "a known kind"

    def read(value: Any) -> Any:
        if type(value) is not dict:
            fail("a JSON object", value)
        kind = value.get("kind", ABSENT)
        reader = readers.get(kind) if type(kind) is str else None
        if reader is None:
            bad = Unreadable(expected, kind)
            bad.place.append(".kind")
            raise bad
        return reader(value)

    return Codec("a JSON object", read, lambda value: {"kind": value.KIND, **writers[type(value)](value)})
