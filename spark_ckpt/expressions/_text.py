"""Strings, by code points and compared byte by byte, as Spark's default collation does."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions import _letters
from spark_ckpt.expressions._values import Function, as_array, each, plain, sized
from spark_ckpt.expressions.tree import Call

WITH_CONSTANTS = {
    "ConcatWs": (0,), "Contains": (1,), "EndsWith": (1,), "Like": (1,), "StartsWith": (1,), "StringInstr": (1,),
    "StringLPad": (1, 2), "StringLocate": (0, 2), "StringRPad": (1, 2), "StringRepeat": (1,), "StringReplace": (1, 2),
    "StringTranslate": (1, 2), "StringTrim": (1,), "StringTrimLeft": (1,), "StringTrimRight": (1,),
    "Substring": (1, 2), "SubstringIndex": (1, 2),
}  # fmt: skip
"""Functions that are here if these parts, as far as they are there, are literals other than null."""


def _concat(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, pa.scalar("", parts[0].type))


def _concat_ws(call: Call, count: int, separator: Any, *parts: Any) -> Any:
    """Nulls are left out."""
    nothing = pa.scalar("", call.type)
    found, begun = pa.repeat(nothing, count), pa.repeat(False, count)
    for part in parts:
        there = pc.is_valid(as_array(part, count))
        between = pc.if_else(pc.and_(begun, there), separator, nothing)
        found = _concat(found, between, pc.fill_null(as_array(part, count), ""))
        begun = pc.or_(begun, there)
    return found


def _matching(match: Callable[..., Any]) -> Function:
    return plain(lambda text, pattern: match(text, pattern.as_py()))


def _substring(text: Any, start: Any, length: Any) -> Any:
    first = start.as_py() - 1 if start.as_py() > 0 else start.as_py()
    stop = first + max(length.as_py(), 0)
    # From the end: beyond it there is nothing.
    return pc.utf8_slice_codeunits(text, first, None if first < 0 <= stop else min(stop, 2**31 - 1))


def _trimmed(trim: Callable[..., Any]) -> Function:
    return plain(lambda text, letters=None: trim(text, " " if letters is None else letters.as_py()))


def _padded(left: bool) -> Function:
    """``length`` code points long: what is longer is cut, whatever the padding."""

    def compute(_call: Call, count: int, text: Any, length: Any, padding: Any) -> Any:
        size, padding = max(length.as_py(), 0), padding.as_py()
        cut = pc.utf8_slice_codeunits(as_array(text, count), 0, size)
        missing = pc.subtract(pa.scalar(size, pa.int32()), pc.utf8_length(cut))
        paddings = pa.array([(padding * n)[:n] for n in range((pc.max(missing).as_py() or 0) + 1)], pa.string())
        more = paddings.take(missing)
        return _concat(more, cut) if left else _concat(cut, more)

    return sized(compute)


def _replaced(text: Any, found: Any, other: Any) -> Any:
    return pc.replace_substring(text, found.as_py(), other.as_py()) if found.as_py() else text


def _place(call: Call, count: int, text: Any, wanted: Any, start: int = 1) -> Any:
    """Counted from 1; 0 where it is not found."""
    return each(lambda one: _find(one, wanted.as_py(), start - 1), text, count, call.type)


def _find(text: str, wanted: str, start: int) -> int:
    # Spark finds nothing at the very beginning, wherever the search was to begin.
    return 1 if not wanted else text.find(wanted, start) + 1


def _located(call: Call, count: int, wanted: Any, text: Any, start: Any) -> Any:
    if start.as_py() < 1:
        found = pa.array([0] * count, call.type)
        return pc.if_else(pc.is_null(as_array(text, count)), pa.scalar(None, call.type), found)
    return _place(call, count, text, wanted, start.as_py())


def _up_to(call: Call, count: int, text: Any, delimiter: Any, times: Any) -> Any:
    """What is ahead of the n-th delimiter, or behind the n-th from the end."""
    by, n = delimiter.as_py(), times.as_py()
    return each(lambda one: _ahead(one, by, n) if n > 0 else _behind(one, by, -n), text, count, call.type)


def _ahead(text: str, by: str, times: int) -> str:
    at = -1
    for _ in range(times):
        at = text.find(by, at + 1) if by else -1
        if at < 0:
            return text if by else ""
    return text[:at]


def _behind(text: str, by: str, times: int) -> str:
    at = len(text) - len(by) + 1
    if not by or not times:
        return ""
    for _ in range(times):
        at = text.rfind(by, 0, at - 1 + len(by)) if at > 0 else -1
        if at < 0:
            return text
    return text[at + len(by) :]


@lru_cache
def _letters_for(these: str, others: str) -> dict[int, str | None]:
    """The first of each counts; one without another, or with the letter 0, is left out."""
    found: dict[int, str | None] = {}
    for i, letter in enumerate(these):
        other = others[i] if i < len(others) else "\0"
        found.setdefault(ord(letter), None if other == "\0" else other)
    return found


def _translated(call: Call, count: int, text: Any, these: Any, others: Any) -> Any:
    table = _letters_for(these.as_py(), others.as_py())
    return each(lambda one: one.translate(table), text, count, call.type)


def _repeated(text: Any, times: Any) -> Any:
    return pc.binary_repeat(text, max(times.as_py(), 0))


FUNCTIONS: dict[str, Function] = {
    "Concat": plain(_concat),
    "ConcatWs": sized(_concat_ws),
    "Contains": _matching(pc.match_substring),
    "EndsWith": _matching(pc.ends_with),
    "InitCap": sized(_letters.capitalised),
    "Length": plain(pc.utf8_length),
    "Like": _matching(pc.match_like),
    "Lower": sized(_letters.lower),
    "Reverse": plain(pc.utf8_reverse),
    "StartsWith": _matching(pc.starts_with),
    "StringInstr": sized(_place),
    "StringLPad": _padded(left=True),
    "StringLocate": sized(_located),
    "StringRPad": _padded(left=False),
    "StringRepeat": plain(_repeated),
    "StringReplace": plain(_replaced),
    "StringTranslate": sized(_translated),
    "StringTrim": _trimmed(pc.utf8_trim),
    "StringTrimLeft": _trimmed(pc.utf8_ltrim),
    "StringTrimRight": _trimmed(pc.utf8_rtrim),
    "Substring": plain(_substring),
    "SubstringIndex": sized(_up_to),
    "Upper": sized(_letters.upper),
}
