"""Days and moments of each other, and where hours, days and months begin. ``option`` is the session's time zone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.errors import ExpressionError
from spark_ckpt.expressions import zones
from spark_ckpt.expressions._values import Function, as_array, overflowing, plain, refuse, sized
from spark_ckpt.expressions.tree import Call
from spark_ckpt.expressions.zones import DAY, SECOND

_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1000,
    "SECOND": SECOND,
    "MINUTE": 60 * SECOND,
    "HOUR": 3600 * SECOND,
    "DAY": DAY,
}
_MOST_SECONDS = (2**63 - 1) // SECOND
_NAMES = {
    "YEAR": "Y", "YYYY": "Y", "YY": "Y", "QUARTER": "Q", "MONTH": "M", "MM": "M", "MON": "M", "WEEK": "W",
}  # fmt: skip


def unit(name: str | None, of_days: bool) -> str | int | None:
    """What ``trunc`` or ``date_trunc`` calls a unit: microseconds, or one of NumPy's; None if it has none."""
    name = (name or "").upper()
    if name in _NAMES:
        return _NAMES[name]
    return None if of_days else _UNITS.get("DAY" if name == "DD" else name)


def micros(value: Any, count: int) -> pa.Array:
    return as_array(value, count).cast(pa.int64())


def first_day(days: np.ndarray, name: str) -> np.ndarray:
    """Of the week (which begins on Monday), month, quarter or year of each day."""
    if name == "W":
        weeks: np.ndarray = days - (days + 3) % 7
        return weeks
    dates = days.astype("datetime64[D]")
    if name == "Q":
        months = dates.astype("datetime64[M]").astype(np.int64)
        return (months - months % 3).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return dates.astype(f"datetime64[{name}]").astype("datetime64[D]").astype(np.int64)


def _truncated_day(call: Call, count: int, value: Any, name: Any) -> Any:
    days = as_array(value, count).cast(pa.int32())
    found = first_day(days.fill_null(0).to_numpy().astype(np.int64), str(unit(name.as_py(), of_days=True)))
    return pa.array(found.astype(np.int32), mask=_nulls(days)).cast(call.type)


def _truncated(call: Call, count: int, name: Any, value: Any) -> Any:
    """What the clock shows is cut; of two moments that show it, that with the offset that there was."""
    moments, by = micros(value, count), unit(name.as_py(), of_days=False)
    if isinstance(by, int) and by <= SECOND:
        return _cut(moments, by).cast(call.type)
    ahead = zones.offsets(moments, call.option)
    shown = pc.add(moments, ahead)
    if isinstance(by, int):
        found = zones.moments(_cut(shown, by), call.option, ahead)
    else:
        days = first_day(shown.fill_null(0).to_numpy() // DAY, str(by))
        found = zones.beginnings(pa.array(days * DAY, mask=_nulls(shown)), call.option)
    refuse(pc.greater(found, moments), "ARITHMETIC_OVERFLOW", "date_trunc of the first moment that there is")
    return found.cast(call.type)


def _cut(values: pa.Array, size: int) -> pa.Array:
    numbers = values.fill_null(0).to_numpy()
    return pa.array(numbers - numbers % size, mask=_nulls(values))


def _nulls(values: pa.Array) -> np.ndarray:
    found: np.ndarray = values.is_null().to_numpy(zero_copy_only=False)
    return found


def day_of(call: Call, count: int, value: Any) -> Any:
    """The day that the clock shows at a moment."""
    shown = zones.local(micros(value, count), call.option)
    days = shown.fill_null(0).to_numpy() // DAY
    return pa.array(days.astype(np.int32), mask=_nulls(shown)).cast(call.type)


def start_of(call: Call, count: int, value: Any) -> Any:
    """The moment at which a day begins."""
    days = as_array(value, count).cast(pa.int32()).cast(pa.int64())
    try:
        shown = pc.multiply_checked(days, DAY)
    except pa.ArrowInvalid as e:
        raise ExpressionError(
            "date to timestamp: found a day outside of the years -290308 to 294247, which no timestamp has; Spark ends "
            "a query with 'long overflow' there. Leave such days out by a filter in front of it"
        ) from e
    return zones.beginnings(shown, call.option).cast(call.type)


def _later(call: Call, count: int, value: Any, interval: Any) -> Any:
    """Days are those of the calendar, the rest is time that goes by."""
    moments, size = micros(value, count), interval.value
    days = abs(size) // DAY * (1 if size > 0 else -1)
    with overflowing("timestamp"):
        if days:
            ahead = zones.offsets(moments, call.option)
            shown = pc.add_checked(pc.add_checked(moments, ahead), days * DAY)
            moments = zones.moments(shown, call.option, ahead)
        return pc.add_checked(moments, size - days * DAY).cast(call.type)


def whole_seconds(count: int, value: Any) -> pa.Array:
    moments = micros(value, count)
    return pc.divide(_cut(moments, SECOND), SECOND)


def in_seconds(_call: Call, count: int, value: Any) -> pa.Array:
    return pc.divide(micros(value, count).cast(pa.float64(), safe=False), float(SECOND))


def of_seconds(call: Call, count: int, value: Any) -> pa.Array:
    """Beyond the largest moment is the largest."""
    array = as_array(value, count)
    seconds = np.clip(array.cast(pa.int64()).fill_null(0).to_numpy(), -_MOST_SECONDS - 1, _MOST_SECONDS + 1)
    found = np.clip(seconds, -_MOST_SECONDS, _MOST_SECONDS) * SECOND
    found = np.where(seconds > _MOST_SECONDS, 2**63 - 1, np.where(seconds < -_MOST_SECONDS, -(2**63), found))
    return pa.array(found, mask=_nulls(array)).cast(call.type)


def _last_day(value: Any) -> Any:
    days = value.cast(pa.int32())
    array = days if isinstance(days, pa.Array) else pa.array([days.as_py()], pa.int32())
    months = array.fill_null(0).to_numpy().astype("datetime64[D]").astype("datetime64[M]")
    found = (months + 1).astype("datetime64[D]").astype(np.int64) - 1
    last = pa.array(found.astype(np.int32), mask=_nulls(array)).cast(pa.date32())
    return last if isinstance(days, pa.Array) else last[0]


def _months_later(call: Call, count: int, value: Any, more: Any) -> Any:
    """The same day, or the last of the month if it is shorter."""
    days = as_array(value, count).cast(pa.int32())
    dates = days.fill_null(0).to_numpy().astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    inside = (dates - months.astype("datetime64[D]")).astype(np.int64)
    to = months + np.timedelta64(more.as_py(), "M")
    size = ((to + 1).astype("datetime64[D]") - to.astype("datetime64[D]")).astype(np.int64)
    found = pa.array(to.astype("datetime64[D]").astype(np.int64) + np.minimum(inside, size - 1), mask=_nulls(days))
    outside = pc.or_(pc.less(found, -(2**31)), pc.greater(found, 2**31 - 1))
    refuse(outside, "ARITHMETIC_OVERFLOW", "add_months")
    return found.cast(pa.int32()).cast(call.type)


def _unix_date(value: Any) -> Any:
    return value.cast(pa.int32())


FUNCTIONS: dict[str, Function] = {
    "AddMonths": sized(_months_later),
    "LastDay": plain(_last_day),
    "TimestampAddInterval": sized(_later),
    "TruncDate": sized(_truncated_day),
    "TruncTimestamp": sized(_truncated),
    "UnixDate": plain(_unix_date),
}
