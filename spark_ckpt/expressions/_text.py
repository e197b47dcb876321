"""Strings, by code points and compared byte by byte, as Spark's default collation does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions._values import Function, plain

WITH_CONSTANTS = {"Contains": (1,), "EndsWith": (1,), "Like": (1,), "StartsWith": (1,), "Substring": (1, 2)}
"""Functions that are here if these parts are literals other than null."""


def _concat(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, pa.scalar("", parts[0].type))


def _matching(match: Callable[..., Any]) -> Function:
    return plain(lambda text, pattern: match(text, pattern.as_py()))


def _substring(text: Any, start: Any, length: Any) -> Any:
    first = start.as_py() - 1 if start.as_py() > 0 else start.as_py()
    stop = first + max(length.as_py(), 0)
    # From the end: beyond it there is nothing.
    return pc.utf8_slice_codeunits(text, first, None if first < 0 <= stop else min(stop, 2**31 - 1))


def _trimmed(trim: Callable[..., Any]) -> Function:
    return plain(lambda text: trim(text, " "))


FUNCTIONS: dict[str, Function] = {
    "Concat": plain(_concat),
    "Contains": _matching(pc.match_substring),
    "EndsWith": _matching(pc.ends_with),
    "Length": plain(pc.utf8_length),
    "Like": _matching(pc.match_like),
    "StartsWith": _matching(pc.starts_with),
    "StringTrim": _trimmed(pc.utf8_trim),
    "StringTrimLeft": _trimmed(pc.utf8_ltrim),
    "StringTrimRight": _trimmed(pc.utf8_rtrim),
    "Substring": plain(_substring),
}
