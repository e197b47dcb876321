"""Whole texts of JSON as ``get_json_object`` reads them: any value at the root, control characters in strings, no NaN.

One error anywhere in the value, and there is none; what stands behind it is not looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spark_ckpt.formats import _json_scanner as t
from spark_ckpt.formats._json_copy import number_text, quoted
from spark_ckpt.formats._json_scanner import MOST_OF_NAME, JsonError, paired, utf16
from spark_ckpt.formats._json_tokens import Tokens

NOTHING: Any = object()
"""There is no value, or none that can be read."""
_LONG = 1000
"""Shorter texts have no number, name and depth that Spark's parser refuses."""
_LONG_PART = re.compile(rf'[0-9.eE+-]{{{_LONG}}}|"[^"]{{{MOST_OF_NAME}}}')
_WORDS = {t.TRUE: True, t.FALSE: False, t.NULL: None}


class Members(list[tuple[str, Any]]):
    """Of an object, in their order, with names that stand twice."""


class Fraction(str):
    """A number with a point or an exponent, as it is written."""

    __slots__ = ()


def _refused(word: str) -> Any:
    raise ValueError(word)


_decode = json.JSONDecoder(
    object_pairs_hook=Members, parse_float=Fraction, parse_constant=_refused, strict=False
).raw_decode


def value(text: str) -> Any:
    """The first value of ``text``: ``Members``, lists, strings, ints, ``Fraction``, booleans, None; or ``NOTHING``."""
    text = text.lstrip(" \t\r\n")
    if text[:1] in ("{", "[") and not _is_extreme(text):
        try:
            return _decode(text)[0]
        except (ValueError, RecursionError):
            pass  # Spark's parser may take it all the same
    try:
        return _by_tokens(Tokens(utf16(text), of_hive=True))
    except JsonError:
        return NOTHING


@dataclass(frozen=True)
class Style:
    """``escaped``: characters outside of the basic plane are, as Spark does it in bytes. ``shortest``: Spark's Java is
    19 or newer."""

    escaped: bool
    shortest: bool


def written(value: Any, style: Style) -> str:
    """As Spark writes it."""
    return "".join(_parts(value, style))


def _parts(root: Any, style: Style) -> Iterator[str]:
    """Without recursion: it may be a thousand levels deep."""
    open_: list[tuple[Iterator[Any], str]] = [(iter([root]), "")]
    separate = ""
    while open_:
        members, end = open_[-1]
        member = next(members, NOTHING)
        if member is NOTHING:
            open_.pop()
            yield end
            separate = ","
            continue
        yield separate
        separate = ","
        if end == "}":
            yield f"{quoted(member[0], style.escaped)}:"
            member = member[1]
        if isinstance(member, list):
            start, end = "{}" if isinstance(member, Members) else "[]"
            open_.append((iter(member), end))
            yield start
            separate = ""
        else:
            yield _plain(member, style)


def _plain(value: Any, style: Style) -> str:
    if isinstance(value, Fraction):
        return number_text(value, style.shortest)
    if isinstance(value, str):
        return quoted(value, style.escaped)
    return "null" if value is None else str(value).lower()


def _is_extreme(text: str) -> bool:
    return len(text) >= _LONG and (text.count("{") + text.count("[") >= _LONG or bool(_LONG_PART.search(text)))


def _by_tokens(tokens: Tokens) -> Any:
    """The value that begins with the next token."""
    root: list[Any] = []
    open_: list[list[Any]] = [root]
    while not (root and len(open_) == 1):
        token = tokens.next()
        if token is t.NAME:
            continue
        if token is None:
            return NOTHING
        if token in (t.END_OBJECT, t.END_ARRAY):
            open_.pop()
            continue
        found = _of_token(tokens, token)
        inside = open_[-1]
        inside.append((paired(tokens.name() or ""), found) if isinstance(inside, Members) else found)
        if isinstance(found, list):
            open_.append(found)
    return root[0]


def _of_token(tokens: Tokens, token: str) -> Any:
    if token in (t.START_OBJECT, t.START_ARRAY):
        return Members() if token is t.START_OBJECT else []
    if token is t.TEXT:
        return paired(tokens.string())
    if token is t.INTEGER:
        return int(tokens.number_text)
    return Fraction(tokens.number_text) if token is t.FLOAT else _WORDS[token]
