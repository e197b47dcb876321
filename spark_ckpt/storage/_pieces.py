"""Local files written a piece at a time.

A kernel with large folios (Linux 6.16 and newer on ext4; earlier on XFS) asks for contiguous memory as large as the
write. With fragmented memory it compacts memory first: a write of 1 MiB and more took ten times as long as the same
bytes in pieces of 256 KiB, measured on ext4 with Linux 6.18. Pieces cost nothing elsewhere.
"""

from __future__ import annotations

import io
from typing import Any, BinaryIO

_PIECE = 2**18


def write_pieces(file: BinaryIO, data: bytes | memoryview) -> None:
    """All of ``data``, bytes one behind the other."""
    for start in range(0, len(data), _PIECE):
        file.write(data[start : start + _PIECE])


class PieceWriter(io.RawIOBase):
    """A stream onto ``file`` for those who write large buffers at once, as Arrow does. Closing it leaves ``file``
    open."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        write_pieces(self._file, view)
        return len(view)
