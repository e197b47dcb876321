"""One JSON record by Spark's rules, guided by the type: for what Arrow's reader refuses or reads otherwise."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_ODD_NUMBER = re.compile(r"NaN|Infinity|[+-]INF|[+-]Infinity")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_SINGLE = re.compile(r"'((?:[^'\\\x00-\x1f]|\\.)*)'")
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[T ].*)?)?)?")
_TIME = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[T ](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?"
    r"\s*(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{1,2})?)?)?)?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNREAD = object()
_anything = json.JSONDecoder().raw_decode


def read_record(record: bytes, kind: pa.StructType) -> Any:
    """The object in ``record`` as Python values for Arrow. Raises ``ValueError`` saying what is wrong."""
    text = record.decode()
    reader = _Reader(text)
    reader.skip()
    try:
        value = reader.value(kind)
    except RecursionError:
        raise ValueError("values within values, too deep to read") from None
    reader.skip()
    if value is None:
        raise ValueError("expected an object, found null")
    if reader.at < len(text):
        raise ValueError(f"text behind the object, at character {reader.at + 1}")
    return value


def read_what_fits(record: bytes, kind: pa.StructType) -> dict[str, Any]:
    """The object in a ``record`` that :func:`read_record` refuses, as Spark's mode PERMISSIVE reads it: a field whose
    value does not fit is null, and so is every field of what is no object. Raises nothing."""
    try:
        reader = _Lenient(record.decode())
        reader.skip()
        value = reader.value(kind)
        reader.skip()
        if value is not None and reader.at == len(reader.text):
            return dict(value)
    except (ValueError, RecursionError):
        pass
    return dict.fromkeys(kind.names)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def field(self, kind: pa.DataType) -> Any:
        """The value of a struct's field."""
        return self.value(kind)

    def skip(self) -> None:
        self.at = _BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]

    def value(self, kind: pa.DataType) -> Any:
        if self.text.startswith("null", self.at):
            self.at += 4
            return None
        if pt.is_struct(kind):
            return self._struct(kind)
        if pt.is_map(kind):
            return list(self._members(lambda _: kind.item_type, self.value))
        if pt.is_list(kind):
            return self._list(kind)
        return self._plain(kind)

    def _struct(self, kind: pa.StructType) -> dict[str, Any]:
        types = {field.name: field.type for field in kind}
        found = dict(self._members(types.get, self.field))
        return {name: found.get(name) for name in types}

    def _members(
        self, type_of: Callable[[str], pa.DataType | None], read: Callable[[pa.DataType], Any]
    ) -> list[tuple[str, Any]]:
        """The members whose names have a type; the last of several of one name counts."""
        found: list[tuple[str, Any]] = []
        first = True
        self._expect("{")
        while not self._closed("}", first):
            first, name = False, self._string()
            self.skip()
            self._expect(":")
            self.skip()
            kind = type_of(name)
            if kind is None:
                self.at = self._end_of_anything()
            else:
                found.append((name, read(kind)))
        return found

    def _list(self, kind: pa.ListType) -> list[Any]:
        found: list[Any] = []
        self._expect("[")
        while not self._closed("]", first=not found):
            found.append(self.value(kind.value_type))
        return found

    def _closed(self, sign: str, first: bool) -> bool:
        """Past ``sign``, or past the comma in front of what comes next."""
        self.skip()
        if self.text.startswith(sign, self.at):
            self.at += 1
            return True
        if not first:
            self._expect(",")
            self.skip()
        return False

    def _plain(self, kind: pa.DataType) -> Any:
        if self.text[self.at : self.at + 1] in ('"', "'"):
            return _of_text(self._string(), kind)
        start, end = self.at, self._end_of_anything()
        self.at = end
        return _of_token(self.text[start:end], kind)

    def _string(self) -> str:
        if self.text.startswith("'", self.at):
            match = _SINGLE.match(self.text, self.at)
            if match is None:
                raise ValueError(f"a string that does not end, at character {self.at + 1}")
            self.at = match.end()
            inner = match[1].replace("\\'", "'")
            return scanstring(inner.replace('"', '\\"') + '"', 0, True)[0]
        self._expect('"')
        found, self.at = scanstring(self.text, self.at, True)
        return found

    def _end_of_anything(self) -> int:
        odd = _ODD_NUMBER.match(self.text, self.at)
        return odd.end() if odd else _anything(self.text, self.at)[1]

    def _expect(self, sign: str) -> None:
        if not self.text.startswith(sign, self.at):
            found = repr(self.text[self.at : self.at + 10]) if self.at < len(self.text) else "the end"
            raise ValueError(f"expected '{sign}' at character {self.at + 1}, found {found}")
        self.at += 1


class _Lenient(_Reader):
    """What does not fit somewhere in a field makes that field null, the innermost; in an array or a map as a whole."""

    def _struct(self, kind: pa.StructType) -> dict[str, Any]:
        types = {field.name: field.type for field in kind}
        found = {n: v for n, v in self._members(types.get, self.field) if v is not _UNREAD}  # an earlier one stays
        return {name: found.get(name) for name in types}

    def field(self, kind: pa.DataType) -> Any:
        start = self.at
        try:
            value = self.value(kind)
            pa.array([value], kind)  # a whole number may be too large
            return value
        except (ValueError, pa.ArrowTypeError, OverflowError):
            self.at = start
            self.at = self._end_of_anything()  # raises for what is no JSON: then nothing of the object is known
            return _UNREAD


def _of_token(token: str, kind: pa.DataType) -> Any:
    """A value that is no string, or for a column of strings any JSON, which stays as it is written."""
    if pt.is_string(kind):
        return token
    if pt.is_boolean(kind) and token in ("true", "false"):
        return token == "true"
    number = _NUMBER.fullmatch(token)
    if pt.is_floating(kind) and (number or _ODD_NUMBER.fullmatch(token)):
        return float(token.replace("INF", "Infinity"))
    if number and pt.is_decimal(kind):
        return _decimal(token, kind)
    if number and not number[1] and not number[2]:
        if pt.is_integer(kind):
            return int(token)
        if pt.is_timestamp(kind) and kind.tz is not None:
            return _EPOCH + timedelta(seconds=int(token))  # as in Spark
    raise ValueError(f"expected {kind}, found {token[:40]}")


def _of_text(text: str, kind: pa.DataType) -> Any:
    if pt.is_string(kind):
        return text
    try:
        if pt.is_floating(kind) and _ODD_NUMBER.fullmatch(text):
            return float(text.replace("INF", "Infinity"))
        if pt.is_decimal(kind):
            return _decimal(text, kind)
        if pt.is_binary(kind):
            return base64.b64decode(text, validate=True)
        if pt.is_date(kind):
            return _date(text.strip())
        if pt.is_timestamp(kind):
            return _timestamp(text.strip(), kind.tz is not None)
    except (ValueError, OverflowError, binascii.Error):
        pass
    raise ValueError(f"expected {kind}, found the string {text[:40]!r}")


def _decimal(text: str, kind: pa.Decimal128Type) -> Decimal:
    plain = text.replace(",", "")
    try:
        if not _DECIMAL.fullmatch(plain):
            raise InvalidOperation
        found = Decimal(plain).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
    except InvalidOperation:
        raise ValueError(f"expected {kind}, found {text[:40]}") from None
    if len(found.as_tuple().digits) > kind.precision:
        raise ValueError(f"expected {kind}, found {text[:40]}")
    return found


def _date(text: str) -> date:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return date(int(match[1]), int(match[2] or 1), int(match[3] or 1))


def _timestamp(text: str, zoned: bool) -> datetime:
    """A time without a zone counts as UTC, whatever the session's zone is."""
    match = _TIME.fullmatch(text)
    if match is None or (match[8] and not zoned):
        raise ValueError(text)
    year, month, day, hour, minute, second = (int(part or low) for part, low in zip(match.groups(), (1, 1, 1, 0, 0, 0)))
    micros = int((match[7] or "").ljust(6, "0")[:6])
    found = datetime(year, month, day, hour, minute, second, micros)
    return found.replace(tzinfo=timezone.utc) - _offset(match[8]) if zoned else found


def _offset(zone: str | None) -> timedelta:
    if zone is None or zone in ("Z", "UTC", "GMT"):
        return timedelta()
    hours, minutes = zone[1:].split(":")[:2] if ":" in zone else (zone[1:3], zone[3:] or "0")
    found = timedelta(hours=int(hours), minutes=int(minutes))
    return -found if zone[0] == "-" else found
