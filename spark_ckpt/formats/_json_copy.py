"""JSON written anew: what ``from_json`` and ``get_json_object`` give as text of a value that is no string."""

from __future__ import annotations

import re

from spark_ckpt.formats import _json_scanner as t
from spark_ckpt.formats._java_doubles import java_double
from spark_ckpt.formats._json_scanner import JsonError, utf16
from spark_ckpt.formats._json_tokens import Tokens

_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_TO_ESCAPE = re.compile('["\\\\\x00-\x1f\ud800-\udfff]')
_PLAIN_TO_ESCAPE = re.compile('["\\\\\x00-\x1f]')
_WORDS = {t.TRUE: "true", t.FALSE: "false", t.NULL: "null"}


def copied(tokens: Tokens, shortest: bool) -> str:
    """The value that begins at the token, which is the value's last one then. Raises ``JsonError``."""
    if tokens.token in (t.END_OBJECT, t.END_ARRAY, t.NAME, None):
        raise JsonError(f"expected a value, found {tokens.token}")
    parts, depth, separate = [], 0, ""
    while True:
        token = tokens.token
        if token is t.END_OBJECT or token is t.END_ARRAY:
            depth -= 1
            parts.append(token)
            separate = ","
        elif token is t.NAME:
            parts.append(f"{separate}{quoted(tokens.name() or '')}:")
            separate = ""
        else:
            parts.append(separate + _value(tokens, shortest))
            starts = token is t.START_OBJECT or token is t.START_ARRAY
            depth += starts
            separate = "" if starts else ","
        if depth == 0:
            return "".join(parts)
        tokens.next()


def _value(tokens: Tokens, shortest: bool) -> str:
    token = tokens.token
    if token is t.TEXT:
        return quoted(tokens.string())
    if token is t.INTEGER:
        return str(int(tokens.number_text))
    if token is t.FLOAT:
        return number_text(tokens.number_text, shortest)
    return _WORDS.get(token or "", str(token))


def number_text(text: str, shortest: bool) -> str:
    """Of a number with a point or an exponent."""
    if "N" in text or "I" in text:
        text = "nan" if text == "NaN" else text.replace("INF", "inf")
    found = java_double(float(text), shortest)
    return found if found[-1].isdigit() else f'"{found}"'


def quoted(text: str, escaped: bool = True) -> str:
    """``escaped``: as the generator that Spark writes bytes with, halves of pairs as escapes."""
    if escaped:
        return f'"{_TO_ESCAPE.sub(_escaped, utf16(text))}"'
    return f'"{_PLAIN_TO_ESCAPE.sub(_escaped, text)}"'


def _escaped(found: re.Match[str]) -> str:
    return _SHORT.get(found[0]) or f"\\u{ord(found[0]):04X}"
