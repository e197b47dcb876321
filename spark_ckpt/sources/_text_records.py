"""Where the records of a text file begin and end.

A record is a line; with ``multiLine`` (CSV) a line break inside quotes does not end it. In plain text and by Spark's
rules a carriage return alone ends a line, too. By Spark's rules quotes are those of Spark's parser.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_ckpt.formats.csv_splitter import CsvForm, CsvSplitter
from spark_ckpt.formats.csv_values import CsvWords
from spark_ckpt.sources._bad_records import MalformedFileError
from spark_ckpt.sources._compressed import DAMAGE
from spark_ckpt.sources._csv_bytes import none_is_escaped, quotes_are_plain

CHUNK_BYTES = 4 << 20
PERMISSIVE, FAILFAST = "permissive", "failfast"
_NEWLINE, _RETURN = 10, 13
_BOM = b"\xef\xbb\xbf"
_BEGINNINGS = (_BOM + b"{", _BOM + b"[")
BLANKS = bytes(range(33))
"""Of Java's ``trim``."""


@dataclass(frozen=True)
class SparkRules:
    """Text read by the rules of Spark's readers. ``mode`` is Spark's, in small letters; ``corrupt`` is the column for
    what cannot be read, null in other modes than permissive; patterns are Java's."""

    mode: str
    corrupt: str
    form: CsvForm = field(default_factory=CsvForm)
    words: CsvWords = field(default_factory=CsvWords)
    timestamp_pattern: str | None = None
    date_pattern: str | None = None
    by_position: bool | None = None
    """Columns go by their places although there is a header: True whatever it says, False if it says the same; else by
    name."""


@dataclass(frozen=True)
class TextFormat:
    """How to read the text: ``kind`` is json, csv or text; ``zone`` is that of times which name none. Without
    ``sparks`` the rules are this source's own. The rest concerns csv."""

    kind: str
    sep: str = ","
    quote: str = '"'
    header: bool = False
    multi_line: bool = False
    null_value: str = ""
    zone: str = "UTC"
    sparks: SparkRules | None = None

    @property
    def corrupt(self) -> str | None:
        """The column for what cannot be read."""
        return None if self.sparks is None else self.sparks.corrupt


@dataclass(frozen=True)
class Records:
    """Whole records: where they begin and end in ``data``, behind their line ends. Between them are empty lines."""

    data: bytes
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    def chars(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.data, dtype=np.uint8)

    def part(self, low: int, high: int) -> Records:
        if low >= high:
            return Records(b"", self.starts[:0], self.ends[:0])
        begin = self.starts[low]
        return Records(
            self.data[begin : self.ends[high - 1]], self.starts[low:high] - begin, self.ends[low:high] - begin
        )

    def only(self, those: npt.NDArray[np.bool_]) -> Records:
        starts, ends = self.starts[those].tolist(), self.ends[those].tolist()
        found = [self.data[start:end] for start, end in zip(starts, ends, strict=True)]
        lengths = np.array([len(one) for one in found], np.int64)
        behind = np.cumsum(lengths)
        return Records(b"".join(found), behind - lengths, behind)

    def behind(self) -> npt.NDArray[np.int64]:
        """Where the content of each ends, in front of its line end."""
        chars, ends = self.chars(), self.ends.copy()
        for end in (_NEWLINE, _RETURN):
            ends -= (ends > self.starts) & (chars[np.maximum(ends - 1, 0)] == end)
        return ends

    def without_marks(self) -> Records:
        """Each without a byte order mark in front of its braces, which Spark's parser of JSON passes over."""
        if _BOM not in self.data:
            return self
        marked = [self.data.startswith(_BEGINNINGS, start) for start in self.starts.tolist()]
        return Records(self.data, self.starts + len(_BOM) * np.array(marked, np.int64), self.ends)

    def lines(self) -> pa.BinaryArray:
        """Each without its line end."""
        bounds = np.empty(2 * len(self) + 1, np.int32)
        bounds[0:-1:2], bounds[1::2] = self.starts, self.behind()
        bounds[-1] = len(self.data)
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self.data)]
        found = pa.BinaryArray.from_buffers(pa.binary(), 2 * len(self), buffers)
        return found[::2] if len(self) else found


def record_ends(data: bytes, fmt: TextFormat) -> npt.NDArray[np.int64]:
    """The end (behind the line break) of every record in ``data`` that is complete there."""
    chars = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(chars == _NEWLINE) + 1
    if fmt.sparks is not None and fmt.multi_line:
        return _ends_by_sparks_rules(data, chars, ends, fmt)
    if (fmt.sparks is not None or fmt.kind == "text") and b"\r" in data:
        alone = np.flatnonzero((chars[:-1] == _RETURN) & (chars[1:] != _NEWLINE)) + 1
        ends = np.union1d(ends, alone) if alone.size else ends
    if fmt.multi_line and ends.size:
        ends = ends[quotes_before(chars, ends, fmt) % 2 == 0]
    return ends


def _ends_by_sparks_rules(
    data: bytes, chars: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], fmt: TextFormat
) -> npt.NDArray[np.int64]:
    assert fmt.sparks is not None
    form = fmt.sparks.form
    if not form.quote or form.quote.encode() not in data:
        return ends
    if not form.comment and none_is_escaped(data, form) and quotes_are_plain(chars, form):
        return ends[quotes_before(chars, ends, fmt) % 2 == 0]
    splitter, text, found, at = CsvSplitter(form), data.decode("latin-1"), [], 0
    while at < len(text):
        if text[at] == form.comment:
            at = text.find("\n", at) + 1
            ended = at > 0
        else:
            _, at, ended = splitter.record(text, at)
        if not ended:
            break
        found.append(at)
    return np.array(found, np.int64)


def content_ends(data: bytes, fmt: TextFormat) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Starts and ends of the records in ``data`` that are not empty lines; the last may lack its line break. In plain
    text an empty line is a record, too.
    """
    ends = record_ends(data, fmt)
    if not ends.size or ends[-1] < len(data):
        ends = np.append(ends, len(data))
    starts = np.concatenate(([0], ends[:-1])).astype(np.int64)
    chars = np.frombuffer(data, dtype=np.uint8)
    length = ends - starts
    if fmt.kind == "text":
        return starts[length > 0], ends[length > 0]
    blank = (length == 0) | ((length == 1) & np.isin(chars[ends - 1], (_NEWLINE, _RETURN)))
    blank |= (length == 2) & (chars[ends - 1] == _NEWLINE) & (chars[np.maximum(ends - 2, 0)] == _RETURN)
    return starts[~blank], ends[~blank]


def chunks(file: IO[bytes], start: int, end: int | None, fmt: TextFormat) -> Iterator[tuple[int, bytes]]:
    """Whole records from byte ``start`` to ``end``, some megabytes at a time, each with its place.

    Raises ``MalformedFileError`` if the file cannot be decompressed.
    """
    rest, at = b"", start
    file.seek(start)
    while True:
        data = _read(file, CHUNK_BYTES if end is None else min(CHUNK_BYTES, end - at - len(rest)))
        rest += data
        if not data:
            break
        ends = record_ends(rest, fmt)
        if ends.size:
            yield at, rest[: ends[-1]]
            at, rest = at + int(ends[-1]), rest[ends[-1] :]
    if rest:
        yield at, rest


def data_start(file: IO[bytes], fmt: TextFormat) -> tuple[int, list[str] | None]:
    """Where the records begin, behind byte order mark and header, and the header's names (None: there is none)."""
    file.seek(0)
    bom = len(_BOM) if _read(file, len(_BOM)) == _BOM else 0
    if not fmt.header:
        return bom, None
    for at, data in chunks(file, bom, None, fmt):
        starts, ends = content_ends(data, fmt)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            line = data[start:end]
            if fmt.sparks is None or _may_be_header(line, fmt.sparks.form):
                return at + end, _names(line, fmt)
    return bom, []


def _may_be_header(line: bytes, form: CsvForm) -> bool:
    bare = line.strip(BLANKS)
    return bool(bare) and not (form.comment and bare.startswith(form.comment.encode()))


def _names(line: bytes, fmt: TextFormat) -> list[str]:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise MalformedFileError(f"the header is not UTF-8: {error}") from None
    if fmt.sparks is not None:
        return CsvSplitter(fmt.sparks.form).values(text.removesuffix("\n").removesuffix("\r"))
    return next(csv.reader(io.StringIO(text), delimiter=fmt.sep, quotechar=fmt.quote))


def for_arrow(data: bytes) -> bytes:
    """As Arrow's reader of csv takes all of it: with a line end behind the last record, without which nothing at all,
    behind a value in quotes, is nothing in quotes; and with an empty line in front of a byte order mark, which is no
    content only where the file begins."""
    front = b"\n" if data.startswith(_BOM) else b""
    behind = b"" if data.endswith((b"\n", b"\r")) else b"\n"
    return front + data + behind if front or behind else data


def quotes_before(chars: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], fmt: TextFormat) -> npt.NDArray[np.int64]:
    return np.searchsorted(np.flatnonzero(chars == ord(fmt.quote)), ends)


def _read(file: IO[bytes], size: int) -> bytes:
    try:
        return file.read(size)
    except DAMAGE as error:
        raise MalformedFileError(f"it cannot be decompressed: {error}") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise MalformedFileError(f"it cannot be decompressed: {error}") from None  # gzip, bz2 and Arrow say it so
