"""Texts of days and moments: Spark's own form, and patterns of Java's. ``option`` is the session's time zone."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions import _clocks, zones
from spark_ckpt.expressions._values import Function, as_array, each, sized
from spark_ckpt.expressions.tree import Call
from spark_ckpt.expressions.zones import DAY, SECOND

_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z'\[\]{}#]+)", re.DOTALL)
_PRINTED = {"yyyy", "yy", "M", "MM", "MMM", "MMMM", "d", "dd", "H", "HH", "h", "hh", "m", "mm", "s", "ss", "a", "E",
"EE", "EEE",
            "EEEE"}  # fmt: skip
_READ = {"yyyy": "year", "MM": "month", "dd": "day", "HH": "hour", "mm": "minute", "ss": "second"}


class Part(NamedTuple):
    """A field, as the pattern writes it, or text."""

    field: str
    text: str = ""


class _Clock(NamedTuple):
    """What clocks show, in numbers."""

    days: np.ndarray
    micros: np.ndarray
    """Of the day."""


@lru_cache(maxsize=256)
def parts_of(pattern: str) -> tuple[Part, ...] | None:
    """None if something in it is not known here."""
    found, at = [], 0
    while at < len(pattern):
        match = _TOKEN.match(pattern, at)
        if match is None:
            return None
        at = match.end()
        if match[2]:
            found.append(Part(match[0]))
        else:
            found.append(Part("", match[3] or match[1].replace("''", "'") or "'"))
    return tuple(found)


def printable(pattern: str) -> bool:
    parts = parts_of(pattern)
    return parts is not None and all(not p.field or p.field in _PRINTED or _is_fraction(p.field) for p in parts)


def readable(pattern: str) -> bool:
    """A year of four digits, a month and a day, and as much of the time as there is, each with all of its digits."""
    parts = parts_of(pattern)
    if parts is None:
        return False
    fields = [p.field for p in parts if p.field]
    fractions = [f for f in fields if _is_fraction(f)]
    clock = [f for f in fields if f in ("HH", "mm", "ss")]
    known = all(f in _READ or _is_fraction(f) for f in fields) and len(set(fields)) == len(fields)
    date = {"yyyy", "MM", "dd"} <= set(fields)
    time = clock == ["HH", "mm", "ss"][: len(clock)] and len(fractions) <= (len(clock) == 3)
    behind_year = parts[next((i for i, p in enumerate(parts) if p.field == "yyyy"), 0) + 1 :][:1]
    return known and date and time and not (behind_year and behind_year[0].field)


def _is_fraction(field: str) -> bool:
    return set(field) == {"S"} and len(field) <= 6


def _shown(moments: pa.Array, zone: str) -> _Clock:
    values = zones.local(moments, zone).fill_null(0).to_numpy()
    return _Clock(values // DAY, values % DAY)


@lru_cache(maxsize=2)
def _numbers(digits: int) -> pa.Array:
    """Texts of 0 to 99. Not made by the import: the first ``pa.array`` of a process imports pandas."""
    return pa.array([f"{n:0{digits}}" for n in range(100)])


def printed(clock: _Clock, pattern: str, nulls: np.ndarray) -> pa.Array:
    columns = [pa.scalar(p.text) if not p.field else _field(clock, p.field) for p in parts_of(pattern) or ()]
    if not any(isinstance(c, pa.Array) for c in columns):
        columns.append(pa.repeat(pa.scalar(""), len(nulls)))
    found = pc.binary_join_element_wise(*columns, pa.scalar(""))
    return pc.if_else(pa.array(nulls), pa.scalar(None, pa.string()), found)


def _field(clock: _Clock, field: str) -> pa.Array:
    dates = clock.days.astype("datetime64[D]")
    if field[0] == "y":
        return _year(dates.astype("datetime64[Y]").astype(np.int64) + 1970, len(field))
    if field[0] == "E":
        return pa.array(_DAYS if len(field) == 4 else [d[:3] for d in _DAYS]).take(pa.array((clock.days + 3) % 7))
    if field[0] == "M":
        return _month(dates.astype("datetime64[M]").astype(np.int64) % 12, len(field))
    if field[0] == "S":
        return _digits(clock.micros % SECOND // 10 ** (6 - len(field)), len(field))
    if field[0] == "a":
        return pa.array(["AM", "PM"]).take(pa.array(clock.micros // (DAY // 2)))
    return _numbers(min(len(field), 2)).take(pa.array(_number(clock, dates, field[0])))


def _number(clock: _Clock, dates: np.ndarray, letter: str) -> np.ndarray:
    if letter == "d":
        found: np.ndarray = (dates - dates.astype("datetime64[M]").astype("datetime64[D]")).astype(np.int64) + 1
        return found
    hours = clock.micros // (3600 * SECOND)
    if letter == "h":
        twelve: np.ndarray = (hours + 11) % 12 + 1
        return twelve
    return {"H": hours, "m": clock.micros // (60 * SECOND) % 60, "s": clock.micros // SECOND % 60}[letter]


def _year(years: np.ndarray, letters: int) -> pa.Array:
    if letters == 2:
        return _numbers(2).take(pa.array(years % 100))
    return each(_written_year, pa.array(years), len(years), pa.string())


def _written_year(year: int) -> str:
    return f"+{year}" if year > 9999 else f"-{-year:04}" if year < 0 else f"{year:04}"


def _month(months: np.ndarray, letters: int) -> pa.Array:
    if letters > 2:
        return pa.array(_MONTHS if letters == 4 else [m[:3] for m in _MONTHS]).take(pa.array(months))
    return _numbers(min(letters, 2)).take(pa.array(months + 1))


def _digits(numbers: np.ndarray, size: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), size, "0")


def day_text(_call: Call, count: int, value: Any) -> Any:
    return printed_days(as_array(value, count).cast(pa.int32()))


def printed_days(days: pa.Array) -> pa.Array:
    """Of days since 1970."""
    numbers = days.fill_null(0).to_numpy().astype(np.int64)
    return printed(_Clock(numbers, numbers), "yyyy-MM-dd", _nulls(days))


def shown_in_utc(moments: pa.Array) -> _Clock:
    """Of microseconds since 1970."""
    values = moments.fill_null(0).to_numpy()
    return _Clock(values // DAY, values % DAY)


def moment_text(call: Call, count: int, value: Any) -> Any:
    """With as many digits of the second as are not zero."""
    moments = _clocks.micros(value, count)
    clock = _shown(moments, call.option)
    text = printed(clock, "yyyy-MM-dd HH:mm:ss", _nulls(moments))
    if not (clock.micros % SECOND).any():
        return text
    fraction = pc.utf8_rtrim(printed(clock, ".SSSSSS", _nulls(moments)), "0")
    return pc.binary_join_element_wise(text, pc.if_else(pc.equal(fraction, "."), "", fraction), pa.scalar(""))


def _nulls(values: pa.Array) -> np.ndarray:
    found: np.ndarray = values.is_null().to_numpy(zero_copy_only=False)
    return found


def _formatted(call: Call, count: int, value: Any, pattern: Any) -> Any:
    moments = _clocks.micros(value, count)
    return printed(_shown(moments, call.option), pattern.as_py(), _nulls(moments))


def _from_unix(call: Call, count: int, seconds: Any, pattern: Any) -> Any:
    return _formatted(call, count, pc.multiply(as_array(seconds, count), SECOND), pattern)


FUNCTIONS: dict[str, Function] = {
    "DateFormatClass": sized(_formatted),
    "FromUnixTime": sized(_from_unix),
}
