"""Upper and lower case, as Unicode has it. ASCII in Arrow, other texts in Python, each distinct one once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc

from spark_ckpt.expressions._values import as_array, each
from spark_ckpt.expressions.tree import Call


def upper(call: Call, count: int, text: Any) -> Any:
    return _changed(call, count, text, pc.ascii_upper, lambda one: one.translate(_NEWER_UPPER).upper())


def lower(call: Call, count: int, text: Any) -> Any:
    return _changed(call, count, text, pc.ascii_lower, _lower)


def capitalised(call: Call, count: int, text: Any) -> Any:
    """Words begin behind a blank, and only there."""
    return each(_capitalised, text, count, call.type)


def _lower(text: str) -> str:
    return text.translate(_NEWER_LOWER).lower()


def _capitalised(text: str) -> str:
    return " ".join(_with_capital(word) for word in text.split(" "))


def _with_capital(word: str) -> str:
    return word[:1].translate(_NEWER_UPPER).title() + _lower(word)[len(_lower(word[:1])) :]


def _changed(call: Call, count: int, text: Any, ascii_only: Callable[..., Any], other: Callable[[str], str]) -> Any:
    array = as_array(text, count)
    if pc.all(pc.string_is_ascii(array)).as_py() is not False:
        return ascii_only(array)
    return each(other, array, count, call.type)


_NEWER = [
    (0x2C2F, 0x2C5F, 1), (0xA7C0, 0xA7C1, 1), (0xA7D0, 0xA7D1, 1), (0xA7D6, 0xA7D7, 1), (0xA7D8, 0xA7D9, 1),
    (0x10570, 0x10597, 11), (0x1057C, 0x105A3, 15), (0x1058C, 0x105B3, 7), (0x10594, 0x105BB, 2),
    (0x1C89, 0x1C8A, 1), (0xA7CB, 0x0264, 1), (0xA7CC, 0xA7CD, 1), (0xA7DA, 0xA7DB, 1), (0xA7DC, 0x019B, 1),
    (0x10D50, 0x10D70, 22), (0xA7CE, 0xA7CF, 1), (0xA7D2, 0xA7D3, 1), (0xA7D4, 0xA7D5, 1), (0x16EA0, 0x16EBB, 25),
]  # fmt: skip
"""Pairs that Unicode has since versions 14, 16 and 17, which not every Python knows and Spark does.

The first capital letter, the first small one, how many.
"""
_NEWER_UPPER = {small + i: capital + i for capital, small, count in _NEWER for i in range(count)}
_NEWER_LOWER = {capital: small for small, capital in _NEWER_UPPER.items()}
