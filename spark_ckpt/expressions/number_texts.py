"""Texts as numbers, as Java's own methods read them."""

from __future__ import annotations

from spark_ckpt.expressions import _from_text
from spark_ckpt.expressions.floats import float32

_SPECIAL = {"NaN", "+NaN", "-NaN", "Infinity", "+Infinity", "-Infinity"}


def java_integer(text: str, bits: int) -> int | None:
    """None for what ``Long.parseLong`` and the like refuse."""
    bare = text[1:] if text[:1] in ("+", "-") else text
    if not bare.isdecimal() or max(bare) > "\uffff":
        return None
    number = int(text)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def java_floating(text: str, single: bool) -> float | None:
    """None for what ``Double.parseDouble`` refuses."""
    bare = text.strip(_from_text.JAVA_BLANKS)
    match = _from_text.NUMBER.fullmatch(bare)
    if match is not None:
        return float32(match[1]) if single else float(match[1])
    if bare in _SPECIAL:
        return float(bare.removeprefix("+")) if "Inf" in bare else float("nan")
    return _from_text.hexadecimal(bare)
