"""Moments and days. A timestamp is microseconds since 1970 in UTC; ``option`` is the session's time zone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions._values import Function, as_array, overflowing, plain, sized, typed
from spark_ckpt.expressions.tree import Call
from spark_ckpt.expressions.zones import SECOND, local, near


def _clock(unit: int, size: int) -> Function:
    """What a clock in the zone ``option`` shows: whole units, ``size`` of which are the next larger one."""

    def compute(call: Call, count: int, value: Any) -> Any:
        units = floored(local(near(as_array(value, count).cast(pa.int64())), call.option), unit)
        return pc.subtract(units, pc.multiply(floored(units, size), size)).cast(call.type)

    return sized(compute)


def _calendar(take: Callable[[np.ndarray], np.ndarray]) -> Function:
    """Of days, in any year: Arrow's own functions end at 32,767."""

    def compute(_call: Call, count: int, value: Any) -> Any:
        days = as_array(value, count).cast(pa.int32())
        found = take(days.fill_null(0).to_numpy().astype("datetime64[D]"))
        return pa.array(found.astype(np.int32), mask=days.is_null().to_numpy(zero_copy_only=False))

    return sized(compute)


def _number(days: np.ndarray, unit: str) -> Any:
    return days.astype(f"datetime64[{unit}]").astype(np.int64)


def _since(days: np.ndarray, unit: str) -> Any:
    return (days - days.astype(f"datetime64[{unit}]").astype("datetime64[D]")).astype(np.int64)


def _micros(value: Any) -> Any:
    return value.cast(pa.int64())


def floored(value: Any, unit: int) -> Any:
    """Whole units, towards minus infinity."""
    size = pa.scalar(unit, pa.int64())
    cut = pc.divide(value, size)
    below = pc.less(value, pc.multiply(cut, size))
    return pc.subtract(cut, pc.if_else(below, pa.scalar(1, pa.int64()), pa.scalar(0, pa.int64())))


def _unix(unit: int) -> Function:
    return plain(lambda moment: floored(_micros(moment), unit))


def _moment(unit: int) -> Function:
    def compute(call: Call, value: Any) -> Any:
        with overflowing("long"):
            micros = pc.multiply_checked(value.cast(pa.int64()), pa.scalar(unit, pa.int64()))
        return micros.cast(call.type)

    return typed(compute)


def _days_added(sign: int) -> Function:
    def compute(call: Call, day: Any, more: Any) -> Any:
        days, more = day.cast(pa.int32()), more.cast(pa.int32())
        return (pc.add(days, more) if sign > 0 else pc.subtract(days, more)).cast(call.type)

    return typed(compute)


def _days_between(end: Any, start: Any) -> Any:
    return pc.subtract(end.cast(pa.int32()), start.cast(pa.int32()))


FUNCTIONS: dict[str, Function] = {
    "DateAdd": _days_added(1),
    "DateDiff": plain(_days_between),
    "DateSub": _days_added(-1),
    "DayOfMonth": _calendar(lambda days: _since(days, "M") + 1),
    "DayOfWeek": _calendar(lambda days: (_number(days, "D") + 4) % 7 + 1),  # 1970 began on a Thursday
    "DayOfYear": _calendar(lambda days: _since(days, "Y") + 1),
    "Hour": _clock(3600 * SECOND, 24),
    "MicrosToTimestamp": _moment(1),
    "MillisToTimestamp": _moment(1000),
    "Minute": _clock(60 * SECOND, 60),
    "Month": _calendar(lambda days: _number(days, "M") % 12 + 1),
    "Quarter": _calendar(lambda days: _number(days, "M") % 12 // 3 + 1),
    "Second": _clock(SECOND, 60),
    "SecondsToTimestamp": _moment(SECOND),
    "UnixMicros": _unix(1),
    "UnixMillis": _unix(1000),
    "UnixSeconds": _unix(SECOND),
    "WeekDay": _calendar(lambda days: (_number(days, "D") + 3) % 7),
    "Year": _calendar(lambda days: _number(days, "Y") + 1970),
}
