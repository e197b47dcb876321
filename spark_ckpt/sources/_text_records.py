"""Where the records of a text file begin and end.

A record is a line; with ``multiLine`` (CSV) a line break inside quotes does not end it.
"""

from __future__ import annotations

import csv
import io
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt

from spark_ckpt.sources._bad_records import MalformedFileError

CHUNK_BYTES = 4 << 20
_NEWLINE, _RETURN = 10, 13
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TextFormat:
    """How to read the text: ``kind`` is json, csv or text; ``zone`` is that of times which name none. ``corrupt``: what
    cannot be read is null, and kept in the column of that name, if there is one. The rest concerns csv."""

    kind: str
    sep: str = ","
    quote: str = '"'
    header: bool = False
    multi_line: bool = False
    null_value: str = ""
    zone: str = "UTC"
    corrupt: str | None = None


def record_ends(data: bytes, fmt: TextFormat) -> npt.NDArray[np.int64]:
    """The end (behind the line break) of every record in ``data`` that is complete there."""
    chars = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(chars == _NEWLINE) + 1
    if fmt.multi_line and ends.size:
        ends = ends[quotes_before(chars, ends, fmt) % 2 == 0]
    return ends


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
        if starts.size:
            try:
                line = data[starts[0] : ends[0]].decode()
            except UnicodeDecodeError as error:
                raise MalformedFileError(f"the header is not UTF-8: {error}") from None
            return at + int(ends[0]), next(csv.reader(io.StringIO(line), delimiter=fmt.sep, quotechar=fmt.quote))
    return bom, []


def quotes_before(chars: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], fmt: TextFormat) -> npt.NDArray[np.int64]:
    return np.searchsorted(np.flatnonzero(chars == ord(fmt.quote)), ends)


def _read(file: IO[bytes], size: int) -> bytes:
    try:
        return file.read(size)
    except (zlib.error, lzma.LZMAError, EOFError) as error:
        raise MalformedFileError(f"it cannot be decompressed: {error}") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise MalformedFileError(f"it cannot be decompressed: {error}") from None  # gzip and bz2 say so like this
