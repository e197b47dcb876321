"""Functions of regular expressions that are constants. Executor; :mod:`_regex` says on the driver which are here."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions import _regex
from spark_ckpt.expressions._values import Function, as_array, each, sized
from spark_ckpt.expressions.tree import Call, Literal

WITH_CONSTANTS = {"RLike": (1,), "RegExpExtract": (1, 2), "RegExpReplace": (1, 2, 3), "StringSplit": (1, 2)}


def refused(call: Call) -> str | None:
    """Why a call, whose constants are constants, is not for Python."""
    pattern, *others = [part.value for part in call.parts[1:] if isinstance(part, Literal)]
    if call.function == "StringSplit":
        # At nothing, Spark splits into letters.
        return None if _regex.literal(pattern) else "split at something other than a plain text runs in Spark only"
    try:
        compiled = _regex.compiled(pattern)
    except _regex.UnsureError as e:
        return f"in a regular expression, {e} runs in Spark only"
    if call.function == "RegExpExtract" and not 0 <= others[0] <= compiled.groups:
        return "regexp_extract of a group that is not there fails in Spark"
    if call.function == "RegExpReplace":
        if compiled.search("") or _may_be_empty(compiled.pattern) or others[1] != 1:
            return "regexp_replace of what may be empty, or from a position on, runs in Spark only"
        if _regex.replacement(others[0], compiled.groups) is None:
            return "regexp_replace with such a replacement runs in Spark only"
    return None


def _may_be_empty(pattern: str) -> bool:
    """Anchors apart: whether it matches without a letter somewhere."""
    bare = pattern.replace("\\A", "").replace(_regex._END, "")
    return re.compile(bare, re.ASCII).fullmatch("") is not None


def _rlike(call: Call, count: int, text: Any, pattern: Any) -> Any:
    compiled = _regex.compiled(pattern.as_py())
    if not compiled.flags & re.IGNORECASE and "(?=" not in compiled.pattern:
        return pc.match_substring_regex(as_array(text, count), compiled.pattern)
    return each(lambda one: compiled.search(one) is not None, text, count, call.type)


def _extract(call: Call, count: int, text: Any, pattern: Any, group: Any) -> Any:
    compiled, wanted = _regex.compiled(pattern.as_py()), group.as_py()

    def first(one: str) -> str:
        match = compiled.search(one)
        return (match[wanted] or "") if match else ""

    return each(first, text, count, call.type)


def _replace(call: Call, count: int, text: Any, pattern: Any, other: Any, _position: Any) -> Any:
    compiled = _regex.compiled(pattern.as_py())
    by = _regex.replacement(other.as_py(), compiled.groups) or ""
    return each(lambda one: compiled.sub(by, one), text, count, call.type)


def _split(call: Call, count: int, text: Any, pattern: Any, limit: Any) -> Any:
    """At most ``limit`` parts; any number if it is not positive."""
    most = limit.as_py() - 1 if limit.as_py() > 0 else None
    array, by = as_array(text, count), _regex.literal(pattern.as_py())
    if most == 0:
        parts: pa.Array = each(lambda one: [one], array, count, call.type)
        return parts
    return pc.split_pattern(array, by, max_splits=most).cast(call.type)


FUNCTIONS: dict[str, Function] = {
    "RLike": sized(_rlike), "RegExpExtract": sized(_extract), "RegExpReplace": sized(_replace),
    "StringSplit": sized(_split),
}  # fmt: skip
