"""Compressed text, as Spark reads it: the ending of a file's name says how. Executor; the driver to count rows.

Spark reads by Hadoop's codecs. Those for ``.lz4`` and ``.snappy`` have a framing of Hadoop's own, which is not that of
the command line tools.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

import pyarrow as pa

from spark_ckpt.sources._bad_records import MalformedFileError

DAMAGE = (zlib.error, lzma.LZMAError, EOFError, pa.ArrowInvalid)
"""And ``OSError`` without a number."""
Opener = Callable[[], Any]
_PIECE = 1 << 20
_LITTLE = 1 << 16
"""Of what may hold a thousand times as much."""
_NUMBER = 4
_MOST_OF_LZ4 = 255
"""Times that a block of lz4 may be shorter than what it holds."""
_BEGINNINGS = {
    b"\x1f\x8b": "gzip, .gz",
    b"\x28\xb5\x2f\xfd": "zstd, .zst",
    b"BZh91AY&SY": "bzip2, .bz2",
    b"\xfd7zXZ\x00": "xz, .xz",
    b"\x78\x9c": "zlib, .deflate",
    b"\x78\xda": "zlib, .deflate",
}
"""What cannot be the beginning of text: the format, and the ending by which it is read."""
_UNREAD = {
    b"PK\x03\x04": "zip",
    b"\x04\x22\x4d\x18": "lz4's own frames",
    b"\xff\x06\x00\x00sNaPpY": "snappy's own frames",
    b"]\x00\x00": "lzma",
}


def opened(open_raw: Opener, path: str) -> IO[bytes]:
    """The file's content, without its compression. Seeking back reads it from its beginning once more.

    Raises ``MalformedFileError`` if it is compressed and its name does not say so: Spark would read it as text, and
    give rows that nobody wrote. What cannot be decompressed raises one of :data:`DAMAGE` where it is read.
    """
    reader = next((reader for ending, reader in _READERS.items() if path.lower().endswith(ending)), None)
    return _plain(open_raw()) if reader is None else reader(open_raw)


def _plain(raw: Any) -> IO[bytes]:
    begin = raw.read(max(map(len, (*_BEGINNINGS, *_UNREAD))))
    raw.seek(0)
    for magic, kind in _BEGINNINGS.items():
        if begin.startswith(magic):
            name, ending = kind.split(", ")
            raise MalformedFileError(f"it is compressed ({name}), and its name does not end with {ending}")
    for magic, name in _UNREAD.items():
        if begin.startswith(magic):
            raise MalformedFileError(f"it is compressed ({name}), which is not read: write it as {_ENDINGS}")
    return cast(IO[bytes], raw)


class _Forward(io.RawIOBase):
    """What ``pieces`` makes of the file, to be read from its beginning on."""

    def __init__(self, open_raw: Opener, pieces: Callable[[Any], Iterator[bytes]]) -> None:
        self._open, self._pieces = open_raw, pieces
        self._rewind()

    def _rewind(self) -> None:
        self._raw = self._open()
        self._found, self._at = self._pieces(self._raw), 0
        self._rest: bytes | memoryview = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._found, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        self._at += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        target = offset + (self._at if whence == io.SEEK_CUR else 0)
        if target < self._at:
            self._raw.close()
            self._rewind()
        while self._at < target and self.read(min(_PIECE, target - self._at)):
            pass
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self._raw.close()
        super().close()


def _zlib_pieces(raw: Any) -> Iterator[bytes]:
    """Of streams of zlib, one behind the other."""
    stream = zlib.decompressobj()
    while data := raw.read(_LITTLE):
        while data:
            if stream.eof:
                stream = zlib.decompressobj()
            yield stream.decompress(data)
            data = stream.unused_data
    if not stream.eof:
        raise EOFError("it ends within its compressed data")


def _zstd_pieces(raw: Any) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd") as stream:
        while piece := stream.read(_PIECE):
            yield piece


def _snappy(chunk: bytes, most: int) -> bytes:
    size, shift = 0, 0
    for byte in chunk:  # the length of what it holds stands in front, seven bits a byte
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if size > most:
        raise OSError(f"expected at most {most} bytes in a block, found {size}")
    return bytes(pa.Codec("snappy").decompress(chunk, size, asbytes=True))


def _lz4(chunk: bytes, most: int) -> bytes:
    """lz4 says how long the block is, not each of its chunks: mostly it has one."""
    codec, size = pa.Codec("lz4_raw"), min(most, _MOST_OF_LZ4 * len(chunk))
    found = bytes(codec.decompress(chunk, size, asbytes=True))
    try:
        if size:
            codec.decompress(chunk, size - 1)
    except OSError:
        return found  # it does not fit into less
    return found[: _lz4_size(chunk)]


def _lz4_size(chunk: bytes) -> int:
    """How much it holds: each sequence is some bytes as they are, and some that stood before."""
    size = at = 0
    while at < len(chunk):
        token, at = chunk[at], at + 1
        literals, at = _lz4_length(chunk, at, token >> 4)
        size, at = size + literals, at + literals
        if at < len(chunk):  # the last has no second part, whose offset takes two bytes
            repeated, at = _lz4_length(chunk, at + 2, token & 15)
            size += repeated + 4
    return size


def _lz4_length(chunk: bytes, at: int, length: int) -> tuple[int, int]:
    more = 255 if length == 15 else 0
    while more == 255:
        more, at = chunk[at], at + 1
        length += more
    return length, at


def _hadoop_pieces(raw: Any, decompress: Callable[[bytes, int], bytes]) -> Iterator[bytes]:
    """Of Hadoop's blocks: how much one holds, and its chunks, each behind its length."""
    while (block := _number(raw)) is not None:
        while block > 0:
            length = _number(raw)
            chunk = b"" if length is None else _exactly(raw, length)
            piece = decompress(chunk, block)
            if not piece:
                raise OSError(f"expected {block} bytes more in a block, found none")
            block -= len(piece)
            yield piece


def _number(raw: Any) -> int | None:
    first = raw.read(1)
    return int.from_bytes(first + _exactly(raw, _NUMBER - 1), "big") if first else None


def _exactly(raw: Any, length: int) -> bytes:
    found = []
    while length:
        data = raw.read(min(length, _PIECE))  # what is damaged may ask for anything
        if not data:
            raise EOFError("it ends within its compressed data")
        found.append(data)
        length -= len(data)
    return b"".join(found)


def _by_pieces(pieces: Callable[[Any], Iterator[bytes]]) -> Callable[[Opener], IO[bytes]]:
    return lambda open_raw: io.BufferedReader(_Forward(open_raw, pieces), _PIECE)


def _gzip(open_raw: Opener) -> IO[bytes]:
    return cast(IO[bytes], gzip.GzipFile(fileobj=open_raw()))


def _bzip2(open_raw: Opener) -> IO[bytes]:
    return cast(IO[bytes], bz2.BZ2File(open_raw()))


def _xz(open_raw: Opener) -> IO[bytes]:
    return cast(IO[bytes], lzma.LZMAFile(open_raw()))


_zstd = _by_pieces(_zstd_pieces)
_READERS: dict[str, Callable[[Opener], IO[bytes]]] = {
    ".gz": _gzip,
    ".gzip": _gzip,
    ".bz2": _bzip2,
    ".deflate": _by_pieces(_zlib_pieces),
    ".lz4": _by_pieces(lambda raw: _hadoop_pieces(raw, _lz4)),
    ".snappy": _by_pieces(lambda raw: _hadoop_pieces(raw, _snappy)),
    ".zst": _zstd,
    ".zstd": _zstd,
    ".xz": _xz,  # not in Spark
}
_ENDINGS = ", ".join(_READERS)
