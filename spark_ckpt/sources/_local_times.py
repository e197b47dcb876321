"""Times that name no zone, as the clock of one showed them."""

from __future__ import annotations

import re
from zoneinfo import available_timezones

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_ckpt.errors import ConfigError
from spark_ckpt.expressions.time_texts import TimeTexts
from spark_ckpt.expressions.zones import SECOND, moments

_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
_NO_OFFSET = ("UTC", "GMT", "UT", "Z", "Etc/UTC")


def check_zone(zone: str, schema: pa.Schema) -> None:
    """Raises ``ConfigError`` where ``schema`` has times and ``zone`` is none that is known here."""
    if any(_has_instants(f.type) for f in schema) and _offset(zone) is None and zone not in available_timezones():
        raise ConfigError(
            f"option 'timeZone' of source 'files', or the session's zone: expected a region such as Europe/Paris or an "
            f"offset such as +02:00, found '{zone}', which is Java's only; set option 'timeZone'"
        )


def instants(shown: pa.Array, zone: str) -> pa.Array:
    """``shown``, microseconds without a zone, as microseconds in UTC: of two moments at which the clock of ``zone``
    shows a time the earlier; one that it leaves out as much later, as in Java."""
    ahead, local = _offset(zone), shown.cast(pa.int64())
    if ahead is None:
        return moments(local, zone).cast(pa.timestamp("us", "UTC"))
    return pc.subtract(local, pa.scalar(ahead, pa.int64())).cast(pa.timestamp("us", "UTC"))


def time_texts(
    zone: str, numbered_days: bool, timestamp_pattern: str | None = None, date_pattern: str | None = None
) -> TimeTexts:
    """Texts of times as Spark reads them where its clock is that of ``zone``."""
    ahead = _offset(zone)
    name = zone if ahead is None else "UTC"
    return TimeTexts(name, timestamp_pattern, date_pattern, numbered_days=numbered_days, ahead=ahead)


def _offset(zone: str) -> int | None:
    """Microseconds ahead of UTC; None for a region."""
    if zone in _NO_OFFSET:
        return 0
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return None
    seconds = int(match[2]) * 3600 + int(match[3] or 0) * 60 + int(match[4] or 0)
    return (-seconds if match[1] == "-" else seconds) * SECOND


def _has_instants(kind: pa.DataType) -> bool:
    if pt.is_struct(kind):
        return any(_has_instants(f.type) for f in kind)
    if pt.is_list(kind):
        return _has_instants(kind.value_type)
    return pt.is_timestamp(kind) and kind.tz is not None
