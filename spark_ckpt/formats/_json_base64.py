"""Bytes in a string of JSON, as Spark's parser of bytes reads them: sign by sign, and where it gives up it stays."""

from __future__ import annotations

from spark_ckpt.formats._json_scanner import JsonError
from spark_ckpt.formats._json_tokens import Tokens

_SIGNS = {char: n for n, char in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}
_PADDING = -2
_BLANK = -1


def base64_value(tokens: Tokens) -> bytes:
    """Of the string that ``tokens`` stands on, and whose end it has not looked for. Raises ``JsonError``; what follows
    is then taken for the rest of the string."""
    found = bytearray()
    while True:
        char = tokens.take_of_string()
        while char <= " ":
            char = tokens.take_of_string()
        if char == '"':
            tokens.unread = False
            return bytes(found)
        first = _bits(tokens, char, 0)
        if first == _BLANK:
            continue
        second = _bits(tokens, tokens.take_of_string(), 1)
        found += _rest(tokens, first << 6 | second)


def _rest(tokens: Tokens, bits: int) -> bytes:
    third = _bits(tokens, _no_end(tokens), 2)
    if third == _PADDING:
        if _bits(tokens, tokens.take_of_string(), 3) != _PADDING:
            raise JsonError("base64 whose padding ends too early")
        return bytes([bits >> 4])
    bits = bits << 6 | third
    fourth = _bits(tokens, _no_end(tokens), 3)
    if fourth == _PADDING:
        return (bits >> 2).to_bytes(2, "big")
    return (bits << 6 | fourth).to_bytes(3, "big")


def _no_end(tokens: Tokens) -> str:
    char = tokens.take_of_string()
    if char == '"':
        tokens.at -= 1
        raise JsonError("base64 without its padding")
    return char


def _bits(tokens: Tokens, char: str, place: int) -> int:
    bits = _of(char)
    cut = char > "\x7f"
    if bits is None and char == "\\":
        char = tokens.escaped()
        if char <= " " and place == 0:
            return _BLANK
        bits = _of(char)
    if bits is None or (bits == _PADDING and place < 2):
        tokens.cut_character = cut
        raise JsonError(f"no base64: {char!r} at character {tokens.at}")
    return bits


def _of(char: str) -> int | None:
    return _PADDING if char == "=" else _SIGNS.get(char)
