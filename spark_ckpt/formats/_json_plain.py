"""Flat values of JSON by Spark's rules: what a token, or a string, is of some type."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from spark_ckpt.expressions.floats import float32
from spark_ckpt.expressions.time_texts import TimeTexts
from spark_ckpt.formats import _json_scanner as t
from spark_ckpt.formats._json_scanner import whole
from spark_ckpt.formats._json_tokens import Tokens

_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_FOUR = re.compile(r"[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==")
_BASE64 = re.compile(rf"(?:[\x00-\x20]*(?:{_FOUR.pattern}))*[\x00-\x20]*")
_INFINITE = {"NaN": "nan", "+INF": "inf", "+Infinity": "inf", "Infinity": "inf", "-INF": "-inf", "-Infinity": "-inf"}
_WIDE = Context(prec=2000, Emax=10**9, Emin=-(10**9), rounding=ROUND_HALF_UP)
_FAR = 5000
"""Digits in front of the point, or behind it, that no decimal type holds."""


_IN_UTC = TimeTexts("UTC")


@dataclass(frozen=True)
class Rules:
    """``as_written``: JSON in a column of strings stays as it is, as Spark's file source has it; else it is written
    anew, as in ``from_json``, with doubles as a Java of at least 19 writes them, or an older one (``shortest``).
    ``of_bytes``: behind damage as in files, where Spark's parser of bytes stands elsewhere than that of characters."""

    times: TimeTexts = _IN_UTC
    as_written: bool = True
    shortest: bool = True
    of_bytes: bool = False


def of_token(kind: pa.DataType) -> Callable[[Tokens, str], Any]:
    """Of a value that is no string."""
    if pt.is_boolean(kind):
        return lambda _, token: {t.TRUE: True, t.FALSE: False}.get(token)
    if pt.is_integer(kind):
        return lambda tokens, token: _integer(tokens.number_text, kind.bit_width) if token is t.INTEGER else None
    if pt.is_floating(kind):
        single = pt.is_float32(kind)
        return lambda tokens, token: _floating(tokens.number_text, token, single)
    if pt.is_decimal(kind):
        return lambda tokens, token: decimal_of(tokens.number_text, kind) if token in (t.INTEGER, t.FLOAT) else None
    if pt.is_timestamp(kind) and kind.tz is not None:
        return lambda tokens, token: _seconds(tokens.number_text) if token is t.INTEGER else None
    return lambda _tokens, _token: None


def _integer(text: str, bits: int) -> int | None:
    number = int(text)
    if bits == 8:
        return (number + 128) % 256 - 128 if -128 <= number < 256 else None  # 200 is -56, as in Java
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def _floating(text: str, token: str, single: bool) -> float | None:
    if token not in (t.INTEGER, t.FLOAT):
        return None
    if text in _INFINITE:
        return float(_INFINITE[text])
    found = float32(text) if single else float(text)
    return found + 0.0 if token is t.INTEGER else found  # -0 is a whole number, which has no sign


def _seconds(text: str) -> int | None:
    seconds = int(text)
    if not -(2**63) <= seconds < 2**63:
        return None
    return (seconds * 1_000_000 + 2**63) % 2**64 - 2**63


def of_text(kind: pa.DataType, rules: Rules) -> Callable[[str], Any]:
    if pt.is_floating(kind):
        return lambda text: float(_INFINITE[text]) if text in _INFINITE else None
    if pt.is_decimal(kind):
        return lambda text: decimal_of(text.replace(",", ""), kind)
    if pt.is_binary(kind):
        return _binary
    if pt.is_date(kind):
        return lambda text: rules.times.day(whole(text))
    if pt.is_timestamp(kind):
        return lambda text: (rules.times.local if kind.tz is None else rules.times.moment)(whole(text))
    return lambda _: None


def _binary(text: str) -> bytes | None:
    """Blanks may stand in front of four signs, not between them."""
    if not _BASE64.fullmatch(text):
        return None
    return b"".join(base64.b64decode(four) for four in _FOUR.findall(text))


def decimal_of(text: str, kind: pa.Decimal128Type) -> Decimal | None:
    if not _DECIMAL.fullmatch(text):
        return None
    try:
        number = _WIDE.create_decimal(text)
        if number and abs(number.adjusted()) > _FAR:
            return None if number.adjusted() > 0 else Decimal(0).scaleb(-kind.scale)
        found = number.quantize(Decimal(1).scaleb(-kind.scale), context=_WIDE)
    except InvalidOperation:
        return None
    return found if len(found.as_tuple().digits) <= kind.precision else None
