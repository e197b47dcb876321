"""Values of JSON by Spark's rules, guided by the type: what does not fit somewhere in a member makes it null."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from spark_ckpt.formats import _json_scanner as t
from spark_ckpt.formats._json_base64 import base64_value
from spark_ckpt.formats._json_copy import copied
from spark_ckpt.formats._json_plain import Rules, of_text, of_token
from spark_ckpt.formats._json_scanner import JsonError, utf16, whole
from spark_ckpt.formats._json_tokens import Tokens

Read = Callable[[Tokens], Any]
"""The value that begins at the token. Raises ``JsonError`` or ``PartialError``."""


class PartialError(Exception):
    """What was read of a value, some of which does not fit."""

    def __init__(self, value: Any, why: str) -> None:
        super().__init__(why)
        self.value = value


def row_reader(kind: pa.StructType, rules: Rules) -> Callable[[str], dict[str, Any] | None]:
    """Of a text that is one object: its members, times as numbers; None for a text without anything. Raises
    ``JsonError`` where nothing of it can be read, and ``PartialError`` with what can."""
    read = _struct(kind, rules)

    def row(text: str) -> dict[str, Any] | None:
        tokens = Tokens(utf16(text), rules.of_bytes)
        if tokens.next() is None:
            return None
        found: dict[str, Any] | None = read(tokens)
        if found is None:
            raise JsonError("expected an object, found null")
        return found

    return row


def rows_reader(kind: pa.StructType, rules: Rules) -> Callable[[str], list[dict[str, Any]]]:
    """As :func:`row_reader`, and of an array each object, as Spark's file source has it."""
    several = _list(pa.list_(kind), rules, holes=False)

    def rows(text: str) -> list[dict[str, Any]]:
        tokens = Tokens(utf16(text), rules.of_bytes)
        token = tokens.next()
        if token is t.START_ARRAY:
            found: list[dict[str, Any]] = several(tokens)
            return found
        raise JsonError("expected an array")

    return rows


def reader(kind: pa.DataType, rules: Rules) -> Read:
    if pt.is_struct(kind):
        return _struct(kind, rules)
    if pt.is_map(kind):
        return _map(kind, rules)
    if pt.is_list(kind):
        return _list(kind, rules)
    if pt.is_string(kind):
        return lambda tokens: _string(tokens, rules)
    return _plain(kind, of_token(kind), of_text(kind, rules))


def _at_value(tokens: Tokens) -> str | None:
    """The token, past a name; None for null."""
    while tokens.token is t.NAME:
        tokens.next()
    return None if tokens.token is t.NULL else tokens.token


def _misfit(tokens: Tokens, kind: pa.DataType) -> JsonError:
    token = tokens.token
    if token is t.TEXT:
        found = f"the string {tokens.string()[:40]!r}"
    else:
        found = tokens.number_text[:40] if token in (t.INTEGER, t.FLOAT) else str(token)
    return JsonError(f"expected {kind}, found {found}")


def _nested(kind: pa.DataType, start: str, inside: Read) -> Read:
    """``inside`` reads what comes behind ``start``."""

    def read(tokens: Tokens) -> Any:
        token = _at_value(tokens)
        if token is None:
            return None
        if token is not start:
            raise _misfit(tokens, kind)
        return inside(tokens)

    return read


def _struct(kind: pa.StructType, rules: Rules) -> Read:
    members: dict[str | None, tuple[str, Read]] = {}
    members.update({utf16(field.name): (field.name, reader(field.type, rules)) for field in kind})
    nothing = dict.fromkeys(field.name for field in kind)
    return _nested(kind, t.START_OBJECT, lambda tokens: _members(tokens, members, dict(nothing)))


def _members(tokens: Tokens, members: Mapping[str | None, tuple[str, Read]], row: dict[str, Any]) -> dict[str, Any]:
    why: str | None = None
    while tokens.next() not in (None, t.END_OBJECT):
        member = members.get(tokens.name())  # no name behind damage
        if member is None:
            tokens.skip_children()
            continue
        name, read = member
        try:
            row[name] = read(tokens)
        except PartialError as partial:
            why = why or str(partial)
            row[name] = partial.value
        except JsonError as error:
            why = why or str(error)
            tokens.skip_children()
    if why is not None:
        raise PartialError(row, why)
    return row


def _list(kind: pa.ListType, rules: Rules, holes: bool = True) -> Read:
    """``holes``: elements may be null."""
    element = reader(kind.value_type, rules)
    return _nested(kind, t.START_ARRAY, lambda tokens: _elements(tokens, element, holes))


def _elements(tokens: Tokens, element: Read, holes: bool) -> list[Any]:
    found: list[Any] = []
    why: str | None = None
    while tokens.next() not in (None, t.END_ARRAY):
        try:
            value = element(tokens)
            if value is None and not holes:
                raise JsonError("expected an object, found null")
            found.append(value)
        except PartialError as partial:
            why = why or str(partial)
            found.append(partial.value)
    if why is not None:
        raise PartialError(found, why)
    return found


def _map(kind: pa.MapType, rules: Rules) -> Read:
    item = reader(kind.item_type, rules)
    return _nested(kind, t.START_OBJECT, lambda tokens: _entries(tokens, item))


def _entries(tokens: Tokens, item: Read) -> list[tuple[str, Any]]:
    """One value that does not fit, and there is no map."""
    found: list[tuple[str, Any]] = []
    why: str | None = None
    misfit: JsonError | None = None
    while tokens.next() not in (None, t.END_OBJECT):
        name = whole(tokens.name() or "")
        try:
            found.append((name, item(tokens)))
        except PartialError as partial:
            why = why or str(partial)
            found.append((name, partial.value))
        except JsonError as error:
            misfit = misfit or error
            tokens.skip_children()
    if misfit is not None:
        raise misfit
    if why is not None:
        raise PartialError(found, why)
    return found


def _string(tokens: Tokens, rules: Rules) -> str | None:
    token = _at_value(tokens)
    if token is None:
        return None
    if token is t.TEXT:
        return whole(tokens.string())
    if not rules.as_written:
        return copied(tokens, rules.shortest)
    start = tokens.start
    tokens.skip_children()
    return whole(tokens.text[start : tokens.at])


def _plain(kind: pa.DataType, of_token: Callable[[Tokens, str], Any], of_text: Callable[[str], Any]) -> Read:
    """Functions give None for what does not fit."""

    def read(tokens: Tokens) -> Any:
        token = _at_value(tokens)
        if token is None:
            return None
        if token is t.TEXT:
            if tokens.unread and tokens.of_bytes and pt.is_binary(kind):
                return base64_value(tokens)
            text = tokens.string()
            found = of_text(text) if text or pt.is_binary(kind) else None
        else:
            found = of_token(tokens, token)
        if found is None:
            raise _misfit(tokens, kind)
        return found

    return read
