"""Values of CSV by the rules of Spark's reader: a text is of its type or it is null."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_ckpt.expressions.number_texts import java_floating, java_integer
from spark_ckpt.expressions.time_texts import TimeTexts
from spark_ckpt.formats._json_plain import decimal_of

_WHOLE = {8: r"^-?[0-9]{1,2}$", 16: r"^-?[0-9]{1,4}$", 32: r"^-?[0-9]{1,9}$", 64: r"^-?[0-9]{1,18}$"}
_REAL = r"^-?(?:[0-9]{1,300}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?$"
"""What Arrow reads, and as Java does."""


@dataclass(frozen=True)
class CsvWords:
    """What stands for numbers that have no digits."""

    nan: str = "NaN"
    infinite: str = "Inf"
    minus_infinite: str = "-Inf"

    def numbers(self) -> Mapping[str, float]:
        """Where one word is several, the first one counts."""
        return {self.infinite: float("inf"), self.minus_infinite: float("-inf"), self.nan: float("nan")}

    def are_numbers(self) -> bool:
        """Whether one of them is written as other numbers are."""
        return any(re.match(_REAL, word) for word in self.numbers())


def csv_column(texts: pa.Array, kind: pa.DataType, times: TimeTexts, words: CsvWords = CsvWords()) -> pa.Array:
    """``texts`` as ``kind``; null for null, and for what does not fit."""
    if pt.is_string(kind) or pt.is_binary(kind):
        return texts.cast(kind)
    if pt.is_temporal(kind):
        found = times.all(texts, kind)
        if found is not None:
            return found
    pattern = None if pt.is_floating(kind) and words.are_numbers() else _plain(kind)
    if pattern is None:
        return _one_by_one(texts, kind, times, words)
    plain = pc.match_substring_regex(texts, pattern)
    if pc.all(plain).as_py() is not False:
        return texts.cast(kind)
    found = pc.if_else(plain, texts, pa.scalar(None, pa.string())).cast(kind)
    others = _one_by_one(pc.if_else(plain, pa.scalar(None, pa.string()), texts), kind, times, words)
    return pc.coalesce(found, others)


def _plain(kind: pa.DataType) -> str | None:
    """Texts that Arrow's cast makes the same of as Spark."""
    if pt.is_integer(kind):
        return _WHOLE[kind.bit_width]
    if pt.is_floating(kind):
        return _REAL
    if pt.is_decimal(kind) and kind.precision > kind.scale >= 0:
        behind = rf"(?:\.[0-9]{{1,{kind.scale}}})?" if kind.scale else ""
        return rf"^-?[0-9]{{1,{kind.precision - kind.scale}}}{behind}$"
    return None


def _one_by_one(texts: pa.Array, kind: pa.DataType, times: TimeTexts, words: CsvWords) -> pa.Array:
    coded = texts.dictionary_encode()
    read = _reader(kind, times, words.numbers())
    values = [read(one) for one in coded.dictionary.to_pylist()]
    return pa.array(values, _numbers(kind)).cast(kind).take(coded.indices)


def _numbers(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pt.is_timestamp(kind) else pa.int32() if pt.is_date(kind) else kind


def _reader(kind: pa.DataType, times: TimeTexts, words: Mapping[str, float]) -> Callable[[str], Any]:
    """Of a text; None for what does not fit."""
    if pt.is_boolean(kind):
        return lambda text: {"true": True, "false": False}.get(text.lower())
    if pt.is_integer(kind):
        return lambda text: java_integer(text, kind.bit_width)
    if pt.is_floating(kind):
        single = pt.is_float32(kind)
        return lambda text: words[text] if text in words else java_floating(text, single)
    if pt.is_decimal(kind):
        return lambda text: decimal_of(text.replace(",", ""), kind)
    if pt.is_date(kind):
        return times.day
    return times.local if kind.tz is None else times.moment
