"""How much of the discovered files goes into a batch, and which splits it makes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from spark_ckpt.sources._file_listing import FileEntry


@dataclass(frozen=True)
class Position:
    """Everything before file ``file`` of the log is read, and ``row`` rows of that file itself.

    ``byte`` is where the next row begins in a text file; in a Parquet file it is the share of the file's bytes that
    the rows make up.
    """

    file: int = 0
    row: int = 0
    byte: int = 0

    @classmethod
    def of(cls, offset: Mapping[str, Any]) -> Position:
        return cls(offset["file"], offset.get("row", 0), offset.get("byte", 0))

    def offset(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Limits:
    """Upper bounds of one batch; None: none. The first file is admitted whatever its bytes."""

    files: int | None = None
    rows: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True)
class Cut:
    """What is left of a file, at most so many rows: how many, and where it stops if there are more behind."""

    rows: int
    stop: Position | None


class FileSplit(InputPartition):
    """Rows of one file: ``[row_start, row_end)``, for text files those in bytes ``[byte_start, byte_end)`` (None: to
    the end), of which this is part ``part`` of ``parts`` by row groups. ``size_bytes`` weighs it."""

    def __init__(self, entry: FileEntry, start: Position, stop: Position | None, part: int = 0, parts: int = 1) -> None:
        self.entry = entry
        self.row_start = start.row
        self.row_end = None if stop is None else stop.row
        self.byte_start = start.byte
        self.byte_end = None if stop is None else stop.byte
        self.part = part
        self.parts = parts
        end = entry.size if stop is None else stop.byte
        self.size_bytes = max(1, (end - start.byte) // parts)


def next_position(
    start: Position,
    entries: Sequence[FileEntry],
    limits: Limits,
    cut: Callable[[FileEntry, Position, int], Cut],
) -> Position:
    """The end of the batch that begins at ``start`` and keeps every limit.

    ``cut`` is asked only if rows are limited.
    """
    at, files, rows, size_bytes = start, 0, 0, 0
    while at.file < len(entries):
        entry = entries[at.file]
        left = max(1, entry.size - at.byte)
        if limits.files is not None and files >= limits.files:
            break
        if limits.size_bytes is not None and files and size_bytes + left > limits.size_bytes:
            break
        if limits.rows is not None:
            if rows >= limits.rows:
                break
            found = cut(entry, at, limits.rows - rows)
            rows += found.rows
            if found.stop is not None:
                return found.stop
        files, size_bytes, at = files + 1, size_bytes + left, Position(at.file + 1)
    return at


def plan_splits(
    start: Position, end: Position, entries: Sequence[FileEntry], max_split_bytes: int | None
) -> list[FileSplit]:
    """The splits between two positions, in the log's order. Depends on nothing but its arguments: it replays.

    ``max_split_bytes`` divides larger whole files (None: never).
    """
    splits = []
    for ordinal in range(start.file, end.file + (1 if end.row else 0)):
        first = start if ordinal == start.file else Position(ordinal)
        stop = end if ordinal == end.file else None
        entry = entries[ordinal]
        whole = first.row == 0 and stop is None
        parts = -(-entry.size // max_split_bytes) if whole and max_split_bytes else 1
        splits += [FileSplit(entry, first, stop, part, parts) for part in range(max(1, parts))]
    return splits
