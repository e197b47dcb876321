"""Clocks of time zones, in any year. Moments are microseconds since 1970 in UTC, local times as if they were in UTC."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions._values import each

SECOND = 1_000_000
DAY = 86_400 * SECOND
_CYCLE = 146_097 * DAY
"""Four hundred years, after which the calendar is the same."""
_FIRST, _END = -719_162 * DAY, 2_932_897 * DAY
"""Of the years 1 to 9999. Before them zones keep their first offset, behind them their last rules."""
_RULES = 2_114_380_800 * SECOND
"""The year 2037, up to which Arrow knows zones."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def near(micros: pa.Array) -> pa.Array:
    """Moments at which clocks show the same, in years that Arrow knows."""
    bounds = pc.min_max(micros)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is None or (low >= _FIRST and high < _END):
        return micros
    values = micros.fill_null(0).to_numpy()
    values = np.where(values >= _END, _END - _CYCLE + (values - _END) % _CYCLE, values)
    values = np.where(values < _FIRST, _FIRST + (values - _FIRST) % _CYCLE, values)
    return pa.array(values, mask=micros.is_null().to_numpy(zero_copy_only=False))


def offsets(micros: pa.Array, zone: str) -> pa.Array:
    """How far the clock is ahead of UTC at these moments, in microseconds."""
    moments = near(micros)
    local = pc.local_timestamp(moments.cast(pa.timestamp("us", tz=zone)))
    found = pc.subtract(local.cast(pa.int64()), moments)
    later = pc.greater_equal(moments, _RULES)
    if not pc.any(later).as_py() or zone == "UTC":
        return found
    clock = ZoneInfo(zone)
    seconds = pc.divide(pc.if_else(later, moments, pa.scalar(None, pa.int64())), SECOND)
    return pc.coalesce(each(lambda second: _ahead(second, clock), seconds, len(micros), pa.int64()), found)


def _ahead(second: int, clock: ZoneInfo) -> int:
    if second >= _END // SECOND - 86_400:
        second -= _CYCLE // SECOND  # Python's calendar ends with the year 9999, whatever the zone
    ahead = (_EPOCH + timedelta(seconds=second)).astimezone(clock).utcoffset() or timedelta()
    return int(ahead.total_seconds()) * SECOND


def local(micros: pa.Array, zone: str) -> pa.Array:
    """What the clock shows."""
    return pc.add(micros, offsets(micros, zone))


def moments(shown: pa.Array, zone: str, ahead: pa.Array | None = None) -> pa.Array:
    """When the clock shows that, as Java resolves it: of two moments the earlier; what it leaves out is as much later.

    ``ahead``: offsets that are preferred where they are possible.
    """
    first, last = (_with_offset(shown, offsets(_moved(shown, by), zone), zone) for by in (-DAY, DAY))
    found = pc.if_else(first[1], first[0], pc.if_else(last[1], last[0], first[0]))
    if ahead is None:
        return found
    preferred, possible = _with_offset(shown, ahead, zone)
    return pc.if_else(possible, preferred, found)


def beginnings(shown: pa.Array, zone: str) -> pa.Array:
    """The first moment of days that begin at these local times: if the clock leaves it out, when it goes on."""
    found = moments(shown, zone)
    left_out = pc.not_equal(local(found, zone), shown)
    if not pc.any(left_out).as_py():
        return found
    # Zones have such days in the past, or from midnight on, where the clock goes on at that moment.
    known = pc.if_else(pc.and_(left_out, pc.less(shown, _RULES)), shown, pa.scalar(None, pa.int64()))
    after = pc.assume_timezone(known.cast(pa.timestamp("us")), zone, ambiguous="earliest", nonexistent="latest")
    return pc.coalesce(after.cast(pa.int64()), found)


def _with_offset(shown: pa.Array, ahead: pa.Array, zone: str) -> tuple[pa.Array, pa.Array]:
    found = pc.subtract(shown, ahead)
    return found, pc.equal(offsets(found, zone), ahead)


def _moved(shown: pa.Array, by: int) -> pa.Array:
    return pc.add(shown, pa.scalar(by, pa.int64()))
