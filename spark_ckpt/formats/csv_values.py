"""Values of CSV by the rules of Spark's reader: a text is of its type or it is null."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_ckpt.expressions.number_texts import java_floating, java_integer
from spark_ckpt.expressions.time_texts import TimeTexts
from spark_ckpt.formats._json_plain import decimal_of

_WORDS = {"NaN": "nan", "Inf": "inf", "-Inf": "-inf"}
_WHOLE = r"^-?[0-9]{1,9}$"


def csv_column(texts: pa.Array, kind: pa.DataType, times: TimeTexts) -> pa.Array:
    """``texts`` as ``kind``; null for null, and for what does not fit."""
    if pt.is_string(kind) or pt.is_binary(kind):
        return texts.cast(kind)
    if pt.is_integer(kind) and kind.bit_width >= 32 and _all_like(texts, _WHOLE):
        return texts.cast(kind)
    if pt.is_temporal(kind):
        found = times.all(texts, kind)
        if found is not None:
            return found
    coded = texts.dictionary_encode()
    read = _reader(kind, times)
    values = [read(one) for one in coded.dictionary.to_pylist()]
    return pa.array(values, _numbers(kind)).cast(kind).take(coded.indices)


def _all_like(texts: pa.Array, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False


def _numbers(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pt.is_timestamp(kind) else pa.int32() if pt.is_date(kind) else kind


def _reader(kind: pa.DataType, times: TimeTexts) -> Callable[[str], Any]:
    """Of a text; None for what does not fit."""
    if pt.is_boolean(kind):
        return lambda text: {"true": True, "false": False}.get(text.lower())
    if pt.is_integer(kind):
        return lambda text: java_integer(text, kind.bit_width)
    if pt.is_floating(kind):
        single = pt.is_float32(kind)
        return lambda text: float(_WORDS[text]) if text in _WORDS else java_floating(text, single)
    if pt.is_decimal(kind):
        return lambda text: decimal_of(text.replace(",", ""), kind)
    if pt.is_date(kind):
        return times.day
    return times.local if kind.tz is None else times.moment
