"""An Iceberg table's history as a stream: snapshot after snapshot, the data files that each appended.

A position is a snapshot and how many of its files are done. Snapshots and their files never change, so the same two
positions always have the same files between them, for as long as the snapshots do not expire.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table.snapshots import Operation

from spark_ckpt.errors import InvalidInputError

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot

SKIP_OVERWRITE, SKIP_DELETE = "streaming-skip-overwrite-snapshots", "streaming-skip-delete-snapshots"


@dataclass(frozen=True)
class Position:
    """``files`` of ``snapshot`` are done; None is before the first one. ``whole``: not what it added is read, but all
    of the table as it was then. ``since_ms``: snapshots that are older are passed over."""

    snapshot: int | None
    files: int = 0
    whole: bool = False
    since_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        said: dict[str, Any] = {"snapshot": self.snapshot, "files": self.files}
        said |= {"whole": True} if self.whole else {}
        return said if self.since_ms is None else {**said, "sinceMs": self.since_ms}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Position:
        return cls(said["snapshot"], said["files"], said.get("whole", False), said.get("sinceMs"))


@dataclass(frozen=True)
class Skips:
    """Which snapshots that do not only append are passed over, instead of refused."""

    overwrite: bool
    delete: bool


class History:
    """``table`` as it was loaded. Driver."""

    def __init__(self, shown: str, table: Table, skips: Skips) -> None:
        self._shown, self._table, self._skips = shown, table, skips
        self._files: dict[Position, list[FileScanTask]] = {}

    def first(self) -> Position:
        """Where all of the table is ahead. What expired snapshots added is read as it is in the oldest one left."""
        known = list(self._ancestors(self._table.metadata.current_snapshot_id))
        if not known:
            return Position(None)
        return self._oldest(known[-1])

    def knows(self, snapshot: int) -> bool:
        """Whether ``snapshot`` is in the table's current history."""
        return any(s.snapshot_id == snapshot for s in self._ancestors(self._table.metadata.current_snapshot_id))

    def at(self, snapshot: int) -> Position:
        """In front of ``snapshot``. Raises ``InvalidInputError`` unless it is in the table's current history."""
        if not self.knows(snapshot):
            raise InvalidInputError(
                f"{self._shown}: option 'startingSnapshotId' is {snapshot}, which is not in the table's history; "
                f"{self._known()}"
            )
        return Position(snapshot)

    def files(self, start: Position, last: int | None) -> Iterator[tuple[Position, FileScanTask | None]]:
        """Files behind ``start`` up to all of snapshot ``last``, each with the position behind it.

        A snapshot without files to read comes as a position alone.
        """
        for at in self._behind(start, last):
            found = self._of(at)
            for number in range(at.files, len(found)):
                yield replace(at, files=number + 1), found[number]
            if not found and at.snapshot != start.snapshot:
                yield at, None

    def left(self, start: Position, last: int | None) -> int:
        """How many snapshots up to ``last`` are not read from ``start`` on, or not to their end."""
        behind = self._behind(start, last)
        begun = sum(at.snapshot == start.snapshot and start.files >= len(self._of(start)) for at in behind)
        return len(behind) - begun

    def between(self, start: Position, end: Position) -> list[FileScanTask]:
        """Raises ``InvalidInputError`` if the history from ``start`` to ``end`` is not what it was any more."""
        behind = self._behind(start, end.snapshot)
        if end.snapshot is not None and (not behind or replace(behind[-1], files=end.files) != end):
            # Snapshots ahead of ``end`` expired since it was planned, or ``end`` itself did.
            raise self._expired(end.snapshot)
        found = []
        for position, task in self.files(start, end.snapshot):
            if task is not None and (position.snapshot != end.snapshot or position.files <= end.files):
                found.append(task)
        return found

    def _behind(self, start: Position, last: int | None) -> list[Position]:
        """``start`` and the snapshots behind it, the oldest first."""
        chain: list[Snapshot] = []
        for snapshot in self._ancestors(last):
            if snapshot.snapshot_id == start.snapshot:
                return [start, *self._positions(chain, start)]
            chain.append(snapshot)
        if start.snapshot is not None:
            raise self._expired(start.snapshot)
        if chain and start.since_ms is None:
            return [self._oldest(chain[-1]), *self._positions(chain[:-1], start)]
        if chain and chain[-1].timestamp_ms > (start.since_ms or 0) and self._has_past(chain[-1]):
            raise self._too_early(start.since_ms or 0, chain[-1].timestamp_ms)
        return self._positions(chain, start)

    def _oldest(self, snapshot: Snapshot) -> Position:
        """Where a stream begins that has no start. All rows that the oldest snapshot left has count, whatever it did:
        one that compacts or overwrites may have all of them in files that it wrote itself."""
        whole = _operation(snapshot) != Operation.APPEND or self._has_past(snapshot)
        return Position(snapshot.snapshot_id, whole=whole)

    def _too_early(self, since_ms: int, oldest_ms: int) -> InvalidInputError:
        return InvalidInputError(
            f"{self._shown}: expected all snapshots since {_time(since_ms)}, where the stream is to begin, found "
            f"{_time(oldest_ms)} as the time of the oldest that is left: rows that expired snapshots appended since "
            "then cannot be told from older ones. Leave the start out, and all rows of the table are read; or begin at "
            f"{_time(oldest_ms)} or later"
        )

    def _expired(self, snapshot: int) -> InvalidInputError:
        return InvalidInputError(
            f"{self._shown}: snapshot {snapshot}, up to which it was read, is not in its history any more, or others "
            f"in front of it are not: they expired, or the table was rolled back. {self._known()} Start anew, with an "
            "empty job folder and option 'startingSnapshotId', or keep snapshots for longer than the query is down"
        )

    def _positions(self, chain: list[Snapshot], start: Position) -> list[Position]:
        since = start.since_ms or 0
        return [Position(s.snapshot_id) for s in reversed(chain) if s.timestamp_ms >= since]

    def _ancestors(self, snapshot_id: int | None) -> Iterator[Snapshot]:
        while snapshot_id is not None:
            snapshot = self._table.metadata.snapshot_by_id(snapshot_id)
            if snapshot is None:
                return
            yield snapshot
            snapshot_id = snapshot.parent_snapshot_id

    def _has_past(self, oldest: Snapshot) -> bool:
        """Whether it is not the table's first: who expires snapshots may leave its parent's id, or not."""
        if oldest.parent_snapshot_id is not None or _operation(oldest) in (Operation.REPLACE, Operation.DELETE):
            return True
        others = (
            m.added_snapshot_id != oldest.snapshot_id or m.existing_files_count or m.deleted_files_count
            for m in oldest.manifests(self._table.io)
        )
        return any(others)

    def _of(self, at: Position) -> list[FileScanTask]:
        """The files of the snapshot, in an order of their own."""
        key = replace(at, files=0)
        if key not in self._files:
            found = self._whole(at.snapshot) if at.whole else self._added(at.snapshot)
            self._files[key] = sorted(found, key=lambda task: task.file.file_path)
        return self._files[key]

    def _whole(self, snapshot_id: int | None) -> list[FileScanTask]:
        return list(self._table.scan(snapshot_id=snapshot_id).plan_files())

    def _added(self, snapshot_id: int | None) -> list[FileScanTask]:
        from pyiceberg.table import FileScanTask

        snapshot = self._table.metadata.snapshot_by_id(snapshot_id or 0)
        if snapshot is None or not self._is_read(snapshot):
            return []
        found = []
        for manifest in snapshot.manifests(self._table.io):
            if manifest.content != ManifestContent.DATA or manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(self._table.io):
                # A manifest may have entries of other snapshots that were merged into it.
                if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id:
                    found.append(FileScanTask(entry.data_file))
        return found

    def _is_read(self, snapshot: Snapshot) -> bool:
        operation = _operation(snapshot)
        if operation == Operation.DELETE and not self._skips.delete:
            raise self._refused("delete", snapshot.snapshot_id, SKIP_DELETE)
        if operation == Operation.OVERWRITE and not self._skips.overwrite:
            raise self._refused("overwrite", snapshot.snapshot_id, SKIP_OVERWRITE)
        return operation == Operation.APPEND  # one that replaces files by others has the same rows

    def _refused(self, what: str, snapshot: int, option: str) -> InvalidInputError:
        return InvalidInputError(
            f"{self._shown}: cannot process {what} snapshot {snapshot}: a stream has no way to take rows back. To "
            f"ignore {what}s, set {option}=true"
        )

    def _known(self) -> str:
        ids = [s.snapshot_id for s in self._ancestors(self._table.metadata.current_snapshot_id)]
        return f"The history has {len(ids)} snapshots, from {ids[-1]} to {ids[0]}." if ids else "It has no snapshot."


def _operation(snapshot: Snapshot) -> Operation:
    return Operation.APPEND if snapshot.summary is None else snapshot.summary.operation


def _time(ms: int) -> str:
    return dt.datetime.fromtimestamp(ms / 1000, dt.timezone.utc).isoformat(timespec="milliseconds")
