"""Columns of doubles and floats as the texts that Java, and so Spark, writes: ``1.0``, ``1.0E20``, ``1.5E-7``.

As of Java 19, which writes the shortest text that is read as the same number. Vectorised; any process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

SPECIAL: Final = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""What Arrow writes -> what Java does."""


def float_texts(column: pa.Array, special: Mapping[str, str] = SPECIAL) -> pa.Array:
    """Each number of ``column`` as a text. Null stays null. ``special``: the texts of NaN and the infinities."""
    column = column.cast(pa.float32()) if pt.is_float16(column.type) else column
    arrows = column.cast(pa.string())
    # A whole number gets its ``.0``: who goes by the text takes it for no integer.
    texts = pc.replace_substring_regex(arrows, r"^(-?\d+)$", r"\1.0")
    far = _with_exponent(column)
    if pc.any(far).as_py():
        texts = pc.replace_with_mask(texts, far, _scientific(column.filter(far), arrows.filter(far)))
    if pc.all(pc.is_finite(column)).as_py() is not False:
        return texts
    for before, after in special.items():
        texts = pc.if_else(pc.equal(arrows, before), after, texts)
    return texts


def _with_exponent(column: pa.Array) -> pa.Array:
    """Those that Java writes with an exponent. Without nulls."""
    size = pc.abs(column)
    small = pc.and_(pc.less(size, pa.scalar(1e-3, column.type)), pc.greater(size, pa.scalar(0, column.type)))
    large = pc.and_(pc.greater_equal(size, pa.scalar(1e7, column.type)), pc.is_finite(size))
    return pc.fill_null(pc.or_(small, large), False)


def _scientific(numbers: pa.Array, texts: pa.Array) -> pa.Array:
    """Of Arrow's ``123456789.5``, ``0.0001``, ``1e+20``, whose digits are the right ones."""
    sign = pc.if_else(pc.less(numbers, pa.scalar(0, numbers.type)), "-", "")
    mantissa, power = _parted(_shortest(pc.abs(numbers), pc.ascii_ltrim(texts, "-")))
    point = pc.find_substring(mantissa, ".")
    whole = pc.if_else(pc.less(point, 0), pc.binary_length(mantissa), point)
    digits = pc.replace_substring(mantissa, ".", "", max_replacements=1)
    bare = pc.ascii_ltrim(digits, "0")
    zeros = pc.subtract(pc.binary_length(digits), pc.binary_length(bare))
    exponent = pc.subtract(pc.subtract(pc.add(power, whole), zeros), 1)
    bare = pc.ascii_rtrim(bare, "0")
    first, rest = pc.utf8_slice_codeunits(bare, 0, 1), pc.utf8_slice_codeunits(bare, 1)
    rest = pc.if_else(pc.equal(rest, ""), "0", rest)
    return pc.binary_join_element_wise(sign, first, ".", rest, "E", exponent.cast(pa.string()), "")


def _parted(texts: pa.Array) -> tuple[pa.Array, pa.Array | pa.Scalar]:
    """What stands in front of an exponent, and the exponent."""
    if not pc.any(pc.match_substring(texts, "e")).as_py():
        return texts, pa.scalar(0, pa.int32())
    parts = pc.extract_regex(texts, r"^(?P<mantissa>[0-9.]+)(?:e\+?(?P<power>-?\d+))?$")
    power = parts.field("power")
    return parts.field("mantissa"), pc.if_else(pc.equal(power, ""), "0", power).cast(pa.int32())


def _shortest(sizes: pa.Array, texts: pa.Array) -> pa.Array:
    """``texts``, but of numbers below the normal ones: of these few digits are known, and Java writes two at least."""
    kind = np.float32 if pt.is_float32(sizes.type) else np.float64
    tiny = pc.less(sizes, pa.scalar(float(np.finfo(kind).smallest_normal), sizes.type))
    if not pc.any(tiny).as_py():
        return texts
    pairs = zip(sizes.filter(tiny).to_pylist(), texts.filter(tiny).to_pylist(), strict=True)
    two = [(f"{number:.1e}", number, text) for number, text in pairs]
    nearer = [short if kind(short) == number else text for short, number, text in two]
    return pc.replace_with_mask(texts, tiny, pa.array(nearer, pa.string()))
