"""What Spark's functions are called, and the types they take. Pure.

Whether these are right for a query is not taken on trust: :mod:`spark_ckpt.plan._in_arrow_connect` asks Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

TEXT, INT, LONG, DOUBLE, BOOL = pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.bool_()
DAY, MOMENT = pa.date32(), pa.timestamp("us", "UTC")
SAME, ANY, SMALL = "same", "any", "small"
"""Of one type with the others that say so; as it is; as it is if it is an integer of at most 32 bits."""
COMPARED = (SAME, SAME)
_CLOCK = "yyyy-MM-dd HH:mm:ss"
_TO_THE_END = 2**31 - 1

Signature = tuple[str, tuple[Any, ...]]
"""Spark's class, and the types of its parts; the last counts for all that follow if ``...`` stands behind it."""

FUNCTIONS: dict[str, Signature] = {
    **dict.fromkeys(("=", "=="), ("EqualTo", COMPARED)),
    **dict.fromkeys(("<=>", "equal_null"), ("EqualNullSafe", COMPARED)),
    "<": ("LessThan", COMPARED), "<=": ("LessThanOrEqual", COMPARED),
    ">": ("GreaterThan", COMPARED), ">=": ("GreaterThanOrEqual", COMPARED),
    **dict.fromkeys(("and", "&&"), ("And", (BOOL, BOOL))), **dict.fromkeys(("or", "||"), ("Or", (BOOL, BOOL))),
    **dict.fromkeys(("not", "!"), ("Not", (BOOL,))),
    "isnull": ("IsNull", (ANY,)), "isnotnull": ("IsNotNull", (ANY,)), "isnan": ("IsNaN", (ANY,)),
    "div": ("IntegralDivide", (LONG, LONG)), "sqrt": ("Sqrt", (DOUBLE,)),
    **dict.fromkeys(("negative", "negate"), ("UnaryMinus", (ANY,))), "abs": ("Abs", (ANY,)),
    "&": ("BitwiseAnd", (SAME, SAME)), "|": ("BitwiseOr", (SAME, SAME)), "^": ("BitwiseXor", (SAME, SAME)),
    **dict.fromkeys(("~", "bitwise_not"), ("BitwiseNot", (ANY,))),
    **dict.fromkeys(("coalesce", "nvl", "ifnull"), ("Coalesce", (SAME, ...))),
    "greatest": ("Greatest", (SAME, ...)), "least": ("Least", (SAME, ...)), "if": ("If", (BOOL, SAME, SAME)),
    "like": ("Like", (TEXT, TEXT)), **dict.fromkeys(("rlike", "regexp", "regexp_like"), ("RLike", (TEXT, TEXT))),
    "contains": ("Contains", (TEXT, TEXT)), "startswith": ("StartsWith", (TEXT, TEXT)),
    "endswith": ("EndsWith", (TEXT, TEXT)),
    **dict.fromkeys(("upper", "ucase"), ("Upper", (TEXT,))), **dict.fromkeys(("lower", "lcase"), ("Lower", (TEXT,))),
    "initcap": ("InitCap", (TEXT,)), "reverse": ("Reverse", (TEXT,)),
    **dict.fromkeys(("length", "char_length", "character_length"), ("Length", (TEXT,))),
    "concat": ("Concat", (TEXT, ...)), "concat_ws": ("ConcatWs", (TEXT, ...)),
    **dict.fromkeys(("substring", "substr"), ("Substring", (TEXT, INT, INT))),
    "substring_index": ("SubstringIndex", (TEXT, TEXT, INT)), "repeat": ("StringRepeat", (TEXT, INT)),
    "lpad": ("StringLPad", (TEXT, INT, TEXT)), "rpad": ("StringRPad", (TEXT, INT, TEXT)),
    "replace": ("StringReplace", (TEXT, TEXT, TEXT)), "translate": ("StringTranslate", (TEXT, TEXT, TEXT)),
    "instr": ("StringInstr", (TEXT, TEXT)),
    **dict.fromkeys(("locate", "position"), ("StringLocate", (TEXT, TEXT, INT))),
    "regexp_extract": ("RegExpExtract", (TEXT, TEXT, INT)),
    "regexp_replace": ("RegExpReplace", (TEXT, TEXT, TEXT, INT)), "split": ("StringSplit", (TEXT, TEXT, INT)),
    "year": ("Year", (DAY,)), "quarter": ("Quarter", (DAY,)), "month": ("Month", (DAY,)),
    **dict.fromkeys(("day", "dayofmonth"), ("DayOfMonth", (DAY,))), "dayofweek": ("DayOfWeek", (DAY,)),
    "weekday": ("WeekDay", (DAY,)), "dayofyear": ("DayOfYear", (DAY,)), "last_day": ("LastDay", (DAY,)),
    "hour": ("Hour", (MOMENT,)), "minute": ("Minute", (MOMENT,)), "second": ("Second", (MOMENT,)),
    "unix_seconds": ("UnixSeconds", (MOMENT,)), "unix_millis": ("UnixMillis", (MOMENT,)),
    "unix_micros": ("UnixMicros", (MOMENT,)), "unix_date": ("UnixDate", (DAY,)),
    "timestamp_seconds": ("SecondsToTimestamp", (ANY,)), "timestamp_millis": ("MillisToTimestamp", (ANY,)),
    "timestamp_micros": ("MicrosToTimestamp", (ANY,)),
    "date_add": ("DateAdd", (DAY, SMALL)), "date_sub": ("DateSub", (DAY, SMALL)),
    "add_months": ("AddMonths", (DAY, INT)),
    **dict.fromkeys(("datediff", "date_diff"), ("DateDiff", (DAY, DAY))),
    "date_trunc": ("TruncTimestamp", (TEXT, MOMENT)), "trunc": ("TruncDate", (DAY, TEXT)),
    "date_format": ("DateFormatClass", (MOMENT, TEXT)), "from_unixtime": ("FromUnixTime", (LONG, TEXT)),
    "unix_timestamp": ("UnixTimestamp", (ANY, TEXT)), "to_unix_timestamp": ("ToUnixTimestamp", (ANY, TEXT)),
    "element_at": ("ElementAt", (ANY, SMALL)),
    **dict.fromkeys(("size", "cardinality"), ("Size", (ANY,))),
}  # fmt: skip
"""Those that are a class of Spark's with the arguments as they stand."""

LEFT_OUT: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("substring", "substr"), (_TO_THE_END,)), **dict.fromkeys(("lpad", "rpad"), (" ",)),
    "replace": ("",), **dict.fromkeys(("locate", "position"), (1,)), "regexp_extract": (1,), "regexp_replace": (1,),
    "split": (-1,), **dict.fromkeys(("from_unixtime", "unix_timestamp", "to_unix_timestamp"), (_CLOCK,)),
}  # fmt: skip
"""What the last arguments are if they are not given."""

ARITHMETIC = {"+": "Add", "-": "Subtract", "*": "Multiply", "/": "Divide", "%": "Remainder", "mod": "Remainder"}
_OF_NUMBERS: dict[str, Callable[[pa.DataType], bool]] = {
    "Abs": lambda kind: is_number(kind), "UnaryMinus": lambda kind: is_number(kind),
    "BitwiseNot": pt.is_integer, "IsNaN": pt.is_floating, "SecondsToTimestamp": pt.is_integer,
    "MillisToTimestamp": pt.is_integer, "MicrosToTimestamp": pt.is_integer,
    "UnixTimestamp": lambda kind: kind in (TEXT, DAY, MOMENT),
    "ToUnixTimestamp": lambda kind: kind in (TEXT, DAY, MOMENT),
}  # fmt: skip
"""What the first part has to be, where that is not one type."""
_WIDER = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


def takes(function: str, first: pa.DataType) -> bool:
    """Whether Spark's class takes a first part of this type without a cast."""
    return function not in _OF_NUMBERS or _OF_NUMBERS[function](first)


def is_small(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) and kind.bit_width <= INT.bit_width)


def common(kinds: list[pa.DataType], ansi: bool) -> pa.DataType | None:
    """The type in which Spark compares values of these; None if it is not known here."""
    found = kinds[0]
    for kind in kinds[1:]:
        wider = found if kind == found else _wider(found, kind, ansi)
        if wider is None:
            return None
        found = wider
    return found


def _wider(a: pa.DataType, b: pa.DataType, ansi: bool) -> pa.DataType | None:
    if pt.is_null(a) or pt.is_null(b):
        return b if pt.is_null(a) else a
    if {a, b} == {DAY, MOMENT}:
        return MOMENT
    if TEXT in (a, b):
        return _beside_text(b if a == TEXT else a, ansi)
    if not (is_number(a) and is_number(b)):
        return None
    if pt.is_integer(a) and pt.is_integer(b):
        return max(a, b, key=_WIDER.index)
    if pt.is_floating(a) or pt.is_floating(b):
        others = [kind for kind in (a, b) if not pt.is_floating(kind)]
        exact = others and (pt.is_decimal(others[0]) or ansi)
        return DOUBLE if exact or DOUBLE in (a, b) else pa.float32()
    return _wider_decimal(as_decimal(a), as_decimal(b))


def _beside_text(kind: pa.DataType, ansi: bool) -> pa.DataType | None:
    """What a text is read as beside it."""
    if not ansi or kind in (DAY, MOMENT, BOOL):
        return kind
    return LONG if pt.is_integer(kind) else DOUBLE if is_number(kind) else None


def as_decimal(kind: pa.DataType) -> pa.DataType:
    """What an integer becomes beside a decimal."""
    return kind if kind not in _DIGITS else pa.decimal128(_DIGITS[kind], 0)


def _wider_decimal(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    scale, whole = max(a.scale, b.scale), max(a.precision - a.scale, b.precision - b.scale)
    return pa.decimal128(min(scale + whole, 38), scale)


def is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))
