"""Texts that are days and moments: Spark's own forms, and patterns of Java's. ``option`` is the session's time zone."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timezone
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions import _formats, zones
from spark_ckpt.expressions._from_text import BLANKS, parsed, refuse_invalid
from spark_ckpt.expressions._values import Function, as_array, sized
from spark_ckpt.expressions.tree import Call
from spark_ckpt.expressions.zones import DAY, SECOND

PLAIN_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
PLAIN_MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
_EPOCH = 719_163
"""The number of 1970's first day, if that of year 1 has number 1."""
_DAY = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_CLOCK = r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9].*)?)?)?"
_MOMENT = re.compile(rf"([+-]?)([0-9]{{4,6}})(?:-([0-9]{{1,2}})(?:-([0-9]{{1,2}})(?:[ T]{_CLOCK})?)?)?", re.DOTALL)
_TIME = re.compile(rf"(T?){_CLOCK}", re.DOTALL)
_SHORT_HOUR, _SHORT_MINUTE = re.compile(r"([+-])(\d):", re.ASCII), re.compile(r"([+-])(\d\d):(\d)$", re.ASCII)
_OFFSET = re.compile(r"([+-])(\d{1,2})(?::?(\d\d)(?::?(\d\d))?)?", re.ASCII)
_SHORT = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka", "CAT": "Africa/Harare",
    "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh", "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip
"""What Java has for short names."""
_NO_ZONES = {"Factory", "localtime", "posixrules", "EST", "MST", "HST", "ROC"}


def day_from_text(call: Call, count: int, text: Any) -> Any:
    plain = by_arrow(as_array(text, count), PLAIN_DAY, call.type)
    return parsed(call, count, text, day, pa.int32()).cast(call.type) if plain is None else plain


def moment_from_text(call: Call, count: int, text: Any) -> Any:
    plain = by_arrow(as_array(text, count), PLAIN_MOMENT, pa.timestamp("us"))
    if plain is not None:
        return zones.moments(plain.cast(pa.int64()), call.option).cast(call.type)
    found = _in_zones(text, count, moment, call.option)
    refuse_invalid(call, text, found, count)
    return found.cast(call.type)


def by_arrow(texts: pa.Array, pattern: str, kind: pa.DataType) -> pa.Array | None:
    """None if one of ``texts`` is not like ``pattern``, or Arrow refuses it."""
    if pc.all(pc.match_substring_regex(texts, pattern)).as_py() is False:
        return None
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return None


def _in_zones(text: Any, count: int, parse: Callable[[str, str], tuple[int, str] | None], zone: str) -> pa.Array:
    """The moments that texts mean; ``parse`` tells what the clock shows, and where."""
    coded = as_array(text, count).dictionary_encode()
    pairs = [parse(one, zone) for one in coded.dictionary.to_pylist()]
    shown = pa.array([pair and pair[0] for pair in pairs], pa.int64())
    where = [pair[1] if pair else zone for pair in pairs]
    found = zones.moments(shown, zone)
    for other in set(where) - {zone}:
        found = pc.if_else(pa.array([name == other for name in where]), zones.moments(shown, other), found)
    return found.take(coded.indices)


def day(text: str) -> int | None:
    """Days since 1970."""
    match = _DAY.fullmatch(text.strip(BLANKS))
    if match is None:
        return None
    sign, year, month, day = match.groups()
    return number_of_day(int(sign + year), int(month or 1), int(day or 1), 2**31)


def number_of_day(year: int, month: int, day: int, below: int) -> int | None:
    """Days since 1970, in the calendar of today in any year."""
    cycles, in_cycle = divmod(year, 400)
    try:
        found = date(in_cycle + 400, month, day).toordinal() - date(400, 1, 1).toordinal()
    except ValueError:
        return None
    # Year 0 began 366 days ahead of year 1.
    found += cycles * 146_097 - 366 + 1 - _EPOCH
    return found if -below <= found < below else None


def local(text: str) -> int | None:
    """What a clock shows, in microseconds since 1970, if ``text`` names a day and no zone."""
    match = _MOMENT.fullmatch(text.strip(BLANKS))
    if match is None or match[9] is not None:
        return None
    days = number_of_day(int(match[1] + match[2]), int(match[3] or 1), int(match[4] or 1), 2**31)
    found = None if days is None else _at(days, list(match.groups()[4:]), "UTC")
    return found and found[0]


def moment(text: str, zone: str) -> tuple[int, str] | None:
    """What the clock shows, in microseconds since 1970, and where."""
    bare = text.strip(BLANKS)
    match = _MOMENT.fullmatch(bare)
    if match:
        sign, year, month, day, *clock = match.groups()
        days = number_of_day(int(sign + year), int(month or 1), int(day or 1), 2**31)
        return None if days is None else _at(days, clock, zone)
    match = _TIME.fullmatch(bare)
    if match is None or (match[3] is None if not match[1] else not text.startswith("T")):
        return None
    found = _at(0, list(match.groups())[1:], zone)
    return found and (found[0] + _today(found[1]) * DAY, found[1])


def _today(zone: str) -> int:
    return datetime.now(timezone.utc if zone == "UTC" else ZoneInfo(zone)).date().toordinal() - _EPOCH


def _at(days: int, clock: list[str | None], zone: str) -> tuple[int, str] | None:
    *times, fraction, name = clock
    hour, minute, second = (int(t or 0) for t in times)
    if hour > 23 or minute > 59 or second > 59:
        return None
    micros = int(((fraction or "") + "000000")[:6])
    shown = days * DAY + (hour * 3600 + minute * 60 + second) * SECOND + micros
    where = (zone, 0) if name is None else _zone(name.strip(BLANKS[:33]))
    if where is None:
        return None
    margin = 0 if where[0] == "UTC" else DAY  # a clock is less than a day ahead of UTC, or behind
    if not -(2**63) + margin <= shown - where[1] * SECOND < 2**63 - margin:
        return None
    return shown - where[1] * SECOND, where[0]


@lru_cache(maxsize=1024)
def _zone(name: str) -> tuple[str, int] | None:
    """A zone, and seconds that its clock is ahead of it."""
    name = _SHORT_MINUTE.sub(r"\1\2:0\3", _SHORT_HOUR.sub(r"\g<1>0\2:", name, count=1), count=1)
    name = _SHORT.get(name, name)
    if name in ("Z", "UTC", "GMT", "UT"):
        return "UTC", 0
    bare = re.sub(r"^(UTC|GMT|UT)(?=[+-])", "", name)
    match = _OFFSET.fullmatch(bare)
    if match:
        return _offset(match, bare.count(":"))
    return (name, 0) if name in available_timezones() - _NO_ZONES else None


def _offset(match: re.Match[str], colons: int) -> tuple[str, int] | None:
    sign, hours, minutes, seconds = match.groups()
    ahead = int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    written = colons in ({0} if minutes is None else {0, 1} if seconds is None else {0, 2})
    if (
        not written
        or (minutes and len(hours) == 1)
        or int(minutes or 0) > 59
        or int(seconds or 0) > 59
        or ahead > 18 * 3600
    ):
        return None
    return "UTC", -ahead if sign == "-" else ahead


@lru_cache(maxsize=256)
def _pattern(pattern: str) -> re.Pattern[str]:
    """Of texts that Java reads by ``pattern``, which is readable."""
    parts = _formats.parts_of(pattern) or ()
    return re.compile("".join(_one(p) for p in parts), re.IGNORECASE | re.DOTALL)


def _one(part: _formats.Part) -> str:
    if not part.field:
        return re.escape(part.text)
    if part.field == "yyyy":
        return r"(?P<yyyy>[0-9]{4}|\+[0-9]{5,9}|-[0-9]{4,9})"
    name = "S" if part.field[0] == "S" else part.field
    return rf"(?P<{name}>[0-9]{{{len(part.field)}}})"


def _read(text: str, pattern: re.Pattern[str], zone: str) -> tuple[int, str] | None:
    match = pattern.fullmatch(text)
    if match is None:
        return None
    found = match.groupdict()
    days = number_of_day(int(found["yyyy"]), int(found["MM"]), int(found["dd"]), 106_751_991)
    clock = [found.get(name) for name in ("HH", "mm", "ss", "S")]
    return None if days is None or found["yyyy"] == "-0000" else _at(days, [*clock, None], zone)


def _by_pattern(call: Call, count: int, text: Any, pattern: Any) -> Any:
    plain = None
    if pattern.as_py() == "yyyy-MM-dd HH:mm:ss":
        pattern_of_all = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}$"
        plain = by_arrow(as_array(text, count), pattern_of_all, pa.timestamp("us"))
    if plain is not None:
        return zones.moments(plain.cast(pa.int64()), call.option)
    compiled = _pattern(pattern.as_py())
    found = _in_zones(text, count, lambda one, zone: _read(one, compiled, zone), call.option)
    refuse_invalid(call, text, found, count, "CANNOT_PARSE_TIMESTAMP")
    return found


def read(text: str, pattern: str, zone: str) -> tuple[int, str] | None:
    """As :func:`moment`, by a readable ``pattern`` of Java's."""
    return _read(text, _pattern(pattern), zone)


def read_day(text: str, pattern: str) -> int | None:
    """As :func:`day`, by a readable ``pattern`` of days only."""
    match = _pattern(pattern).fullmatch(text)
    if match is None or match["yyyy"] == "-0000":
        return None
    return number_of_day(int(match["yyyy"]), int(match["MM"]), int(match["dd"]), 2**31)


def _timestamp(call: Call, count: int, text: Any, pattern: Any) -> Any:
    return _by_pattern(call, count, text, pattern).cast(call.type)


def unix_seconds(call: Call, count: int, value: Any, pattern: Any = None) -> Any:
    """Of moments, days, or texts of a pattern. Towards zero, as in Spark, where the others go down."""
    if pa.types.is_string(value.type):
        return pc.divide(_by_pattern(call, count, value, pattern), SECOND)
    return pc.divide(as_array(value, count).cast(pa.int64()), SECOND)


FUNCTIONS: dict[str, Function] = {
    "GetTimestamp": sized(_timestamp), "ToUnixTimestamp": sized(unix_seconds), "UnixTimestamp": sized(unix_seconds),
}  # fmt: skip
