"""How far a Delta source is, and how much of the table goes into a batch. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_ckpt.errors import CkptError, InvalidInputError
from spark_ckpt.sources.delta._changes import Entry

BEGIN: Mapping[str, Any] = {"version": -1, "index": 0}
"""The offset of a stream that has not looked at the table yet."""

Entries = Sequence[Entry | None]


@dataclass(frozen=True)
class Position:
    """Everything ahead of entry ``index`` of version ``version`` is read.

    The stream began with version ``start``: with all its rows, if ``snapshot``, and else with its changes. ``table`` is
    Delta's id of the table, ``changes`` whether its change data feed is read.
    """

    table: str
    changes: bool
    start: int
    snapshot: bool
    version: int
    index: int = 0

    @classmethod
    def of(cls, offset: Mapping[str, Any]) -> Position | None:
        """None for :data:`BEGIN`."""
        if offset["version"] < 0:
            return None
        return cls(*(offset[name] for name in ("table", "changes", "start", "snapshot", "version", "index")))

    def offset(self) -> dict[str, Any]:
        return dict(vars(self))

    @property
    def first(self) -> Position:
        """Where the stream began."""
        return replace(self, version=self.start, index=0)

    @property
    def in_snapshot(self) -> bool:
        return self.snapshot and self.version == self.start

    def at(self, index: int) -> Position:
        return replace(self, index=index)

    @property
    def next_version(self) -> Position:
        return replace(self, version=self.version + 1, index=0)

    def check(self, table: str, changes: bool, shown: str) -> None:
        """Raises ``InvalidInputError`` if the offset is of another table or another way to read it."""
        if self.table != table:
            raise InvalidInputError(
                f"[DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE] {shown} is another table than the stream has read: "
                f"expected Delta's table id {self.table}, found {table}: it was dropped and made again. Begin anew: "
                "another queryName and a new, empty checkpointLocation"
            )
        if self.changes != changes:
            raise InvalidInputError(
                f"{shown}: the stream began with readChangeFeed={str(self.changes).lower()} and cannot go on with "
                f"readChangeFeed={str(changes).lower()}; begin anew: another queryName and a new, empty "
                "checkpointLocation"
            )


@dataclass
class Room:
    """What is left of a batch's limits; None: no limit. As Delta counts: a file that begins below the limit of bytes
    is taken."""

    files: int | None = None
    size_bytes: int | None = None

    @property
    def any(self) -> bool:
        return (self.files is None or self.files > 0) and (self.size_bytes is None or self.size_bytes > 0)

    def take(self, entry: Entry) -> None:
        if entry.again:
            return
        if self.files is not None:
            self.files -= 1
        if self.size_bytes is not None:
            self.size_bytes -= entry.file.size_bytes


def next_position(at: Position, entries_at: Callable[[Position], Entries | None], room: Room) -> Position:
    """The end of the batch that begins at ``at``.

    ``entries_at`` gives the entries of a position's version, or None where there is none yet. What it raises ends a
    batch in front of that version; at its beginning it is raised. Of a change data feed, a version is taken whole.
    """
    start = at
    while True:
        try:
            entries = entries_at(at)
        except CkptError:
            if at == start:
                raise
            return at
        if entries is None or (at.changes and not at.in_snapshot and at != start and not room.any):
            return at
        whole = at.changes and not at.in_snapshot
        for index in range(at.index, len(entries)):
            entry = entries[index]
            if entry is not None and not (whole or room.any):
                return at.at(index)
            if entry is not None:
                room.take(entry)
        at = at.next_version


def between(start: Position, end: Position, entries_at: Callable[[Position], Entries | None]) -> Iterator[Entry]:
    """The entries from ``start`` up to ``end``, in their order."""
    at = start
    while (at.version, at.index) < (end.version, end.index):
        entries = entries_at(at) or ()
        stop = end.index if at.version == end.version else len(entries)
        yield from (entry for entry in entries[at.index : stop] if entry is not None)
        at = at.next_version
