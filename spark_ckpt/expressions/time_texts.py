"""Texts in JSON and the like as days and moments, as Spark's readers of such formats take them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_ckpt.expressions import _from_time_text as texts_of
from spark_ckpt.expressions import zones
from spark_ckpt.expressions._formats import parts_of, readable

_OFFSET = r"(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])$"
_WITH_OFFSET = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?" + _OFFSET
_MOST_DAYS = 2**31
_GREGORIAN = -141_427
"""1582-10-15."""
_JULIAN = 719_164
"""Days between the first one of year 1, in the Julian calendar, and 1970."""


@dataclass(frozen=True)
class TimeTexts:
    """``zone`` is the clock of times that name none. Patterns are Java's, such as :mod:`_formats` can read; without
    one Spark's own forms, and what its first versions took. Any process."""

    zone: str
    timestamp_pattern: str | None = None
    date_pattern: str | None = None
    numbered_days: bool = True
    """Days may be written as their numbers."""
    ahead: int | None = None
    """Of a ``zone`` that is an offset: how many microseconds its clock is ahead of UTC. ``zone`` is UTC then."""

    def moment(self, text: str) -> int | None:
        """Microseconds since 1970."""
        if self.timestamp_pattern is not None:
            found = texts_of.read(text, self.timestamp_pattern, self.zone)
        else:
            found = texts_of.moment(text, self.zone)
            if found is None and "GMT" in text:
                found = texts_of.moment(text.replace("GMT", ""), self.zone)
        if found is None:
            return None
        shown, zone = found
        return shown - self.ahead if self.ahead is not None and not _names_zone(text) else _instant(shown, zone)

    def local(self, text: str) -> int | None:
        """What a clock without a zone shows, in microseconds."""
        return texts_of.local(text)

    def day(self, text: str) -> int | None:
        """Days since 1970."""
        if self.date_pattern is not None:
            return texts_of.read_day(text, self.date_pattern)
        found = texts_of.day(text)
        if found is None and "GMT" in text:
            found = texts_of.day(text.replace("GMT", ""))
        return _numbered_day(text) if found is None and self.numbered_days else found

    def all(self, texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
        """Of all ``texts`` as ``kind``; None if one of them is none."""
        if pt.is_timestamp(kind) and kind.tz is not None:
            found = self._moments(texts)
        elif pt.is_timestamp(kind):
            found = texts_of.by_arrow(texts, texts_of.PLAIN_MOMENT, kind)
        else:
            found = None if self.date_pattern else texts_of.by_arrow(texts, texts_of.PLAIN_DAY, kind)
        if found is None:
            found = _each(texts, self.day if pt.is_date(kind) else self.local, kind)
        return None if found.null_count > texts.null_count else found.cast(kind)

    def _moments(self, texts: pa.Array) -> pa.Array:
        if self.timestamp_pattern is None:
            plain = texts_of.by_arrow(texts, texts_of.PLAIN_MOMENT, pa.timestamp("us"))
            if plain is not None and self.ahead is not None:
                return pc.subtract(plain.cast(pa.int64()), pa.scalar(self.ahead, pa.int64()))
            if plain is not None:
                return zones.moments(plain.cast(pa.int64()), self.zone)
            plain = texts_of.by_arrow(texts, _WITH_OFFSET, pa.timestamp("us", "UTC"))
            if plain is not None:
                return plain
        return _each(texts, self.moment, pa.timestamp("us", "UTC"))


def _each(texts: pa.Array, read: object, kind: pa.DataType) -> pa.Array:
    coded = texts.dictionary_encode()
    numbers = pa.int32() if pt.is_date(kind) else pa.int64()
    found = pa.array([read(one) for one in coded.dictionary.to_pylist()], numbers)  # type: ignore[operator]
    return found.take(coded.indices).cast(kind)


def _names_zone(text: str) -> bool:
    return texts_of.local(text) is None and texts_of.moment(text, "UTC") is not None


@lru_cache(maxsize=4096)
def _instant(shown: int, zone: str) -> int:
    """When the clock of ``zone`` shows that."""
    if zone == "UTC":
        return shown
    return int(zones.moments(pa.array([shown], pa.int64()), zone)[0].as_py())


def _numbered_day(text: str) -> int | None:
    """Spark 1.5 wrote days as their numbers, in the calendar of old."""
    bare = text[1:] if text[:1] in ("+", "-") else text
    if not bare.isdecimal():
        return None
    number = int(text)
    if not -_MOST_DAYS <= number < _MOST_DAYS:
        return None
    return number if number >= _GREGORIAN else _from_julian(number)


def _from_julian(number: int) -> int:
    """The day with the same name in the calendar of today; behind February, if it has none."""
    cycles, days = divmod(number + _JULIAN, 1461)
    year = min(days // 365, 3)
    days -= year * 365
    month = 1
    for length in (31, 29 if year == 3 else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30):
        if days < length:
            break
        days, month = days - length, month + 1
    return texts_of.number_of_day(cycles * 4 + year + 1, month, 1, 2**40) + days  # type: ignore[operator]


readable_moment = readable
"""Whether moments written like that are read here."""


def readable_day(pattern: str) -> bool:
    """Whether days written like that are read here."""
    fields = [part.field for part in parts_of(pattern) or () if part.field]
    return readable(pattern) and sorted(fields) == ["MM", "dd", "yyyy"]
