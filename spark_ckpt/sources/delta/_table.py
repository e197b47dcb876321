"""A Delta table as a stream follows it: what is in each version, and what may not happen in one. Driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.sources.delta._actions import Commit
from spark_ckpt.sources.delta._changes import Entry, Policy, appended, changed, snapshot
from spark_ckpt.sources.delta._log import Listing, TableLog, TableState
from spark_ckpt.sources.delta._offsets import Position
from spark_ckpt.sources.delta._schema import check_metadata, check_readable, differences, same_columns

_REST = 9
"""How many times as long as a look took it rests before the next: looking takes a tenth of the time at most.

Where files are local no rest is needed: Spark asks every 10 ms, and a look takes microseconds."""


_NEWEST_S = 10.0


@dataclass(frozen=True)
class Reading:
    """How the options say that the table is read."""

    changes: bool = False
    policy: Policy = field(default_factory=Policy)
    fail_on_data_loss: bool = True


class FollowedTable:
    """The table as it was when it was opened, ``state``, and every version since. Not pickled.

    Raises ``InvalidInputError`` if there is no table, or one that this source cannot read.
    """

    def __init__(
        self, log: TableLog, reading: Reading, local: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log, self._reading, self._clock = log, reading, clock
        self._rest = 0 if local else _REST
        self.shown = log.shown
        self.listing: Listing = log.listing()
        self.head = self.listing.newest
        self.state: TableState = log.state(self.head, self.listing)
        check_readable(self.state.protocol, self.shown)
        check_metadata(self.state.metadata, reading.changes, self.shown)
        self._head_time = self._log.times([self.head])[0]
        self._next_look = float("-inf")
        self._newest, self._next_newest = self.head, self._clock() + _NEWEST_S
        self._snapshot: tuple[int, Sequence[Entry | None]] | None = None

    @property
    def table(self) -> str:
        """Delta's id of it."""
        return self.state.metadata.table

    def entries(self, at: Position) -> Sequence[Entry | None] | None:
        """Of the version that ``at`` is in; None where there is none yet.

        Raises ``InvalidInputError`` for what a stream cannot follow, ``CorruptStorageError`` for what is lost.
        """
        if at.in_snapshot:
            return self.snapshot(at.version)
        if not self.is_there(at.version):
            return None
        commit = self._commit(at.version)
        if commit is None:
            return []
        self._check(commit)
        if self._reading.changes:
            return changed(commit, self._reading.policy, self.time_ms(commit))
        return appended(commit, self._reading.policy, self.shown)

    def snapshot(self, version: int) -> Sequence[Entry | None]:
        """All rows at ``version``."""
        if self._snapshot is None or self._snapshot[0] != version:
            listing = self.listing if version <= self.listing.newest else self._log.listing()
            state = self._log.state(version, listing, with_files=True)
            at_ms = self.time_ms(self._log.commit(version)) if self._reading.changes else 0
            policy, changes = self._reading.policy, self._reading.changes
            self._snapshot = version, snapshot(state.files, policy, version, at_ms, changes)
        return self._snapshot[1]

    def forget_snapshot(self) -> None:
        """It is read, and may be large."""
        self._snapshot = None

    def is_there(self, version: int) -> bool:
        """Whether the table has come so far. Looks for one version more at a time, and not all the time."""
        if version <= self.head:
            return True
        began = self._clock()
        if began < self._next_look:
            return False
        now, new = self._log.times([self.head, version])
        if now != self._head_time:
            self._check_identity()
        if new is None or version != self.head + 1:
            ended = self._clock()
            self._next_look = ended + self._rest * (ended - began)
            return False
        self.head, self._head_time = version, new
        return True

    def look_now(self) -> int:
        """The newest version of all."""
        self._next_look = float("-inf")
        while self.is_there(self.head + 1):
            pass
        return self.head

    def newest(self) -> int:
        """The newest version of all, as it was some seconds ago: for who shows how far a stream is behind."""
        began = self._clock()
        if began >= self._next_newest:
            self._newest, ended = self._log.listing().newest, self._clock()
            self._next_newest = ended + max(_NEWEST_S, _REST * (ended - began))
        return max(self._newest, self.head)

    def time_ms(self, commit: Commit) -> int:
        """When it was made: what the table notes, else the time of its file, as Delta has it."""
        if commit.time_ms is not None:
            return commit.time_ms
        return self.listing.commits.get(commit.version) or self._log.times([commit.version])[0] or 0

    def time_at(self, version: int) -> int:
        """When ``version`` was made, as it notes it itself if it does."""
        return self.time_ms(self._log.commit(version))

    def state_at(self, version: int) -> TableState:
        """Without its files. Raises ``CorruptStorageError`` if the log does not reach back so far."""
        return self._log.state(version, self.listing)

    def _commit(self, version: int) -> Commit | None:
        """None for one that is lost, where the options say to go on."""
        try:
            return self._log.commit(version)
        except FileNotFoundError:
            if not self._reading.fail_on_data_loss:
                return None
        earliest = self._log.listing().earliest
        raise CorruptStorageError(
            f"{self.shown}: expected to go on with version {version}, found {earliest} as the earliest in the log: it "
            "was cleaned up (delta.logRetentionDuration) before the stream had read so far. Go on with what is left by "
            "option failOnDataLoss=false, or begin anew: another queryName and a new, empty checkpointLocation"
        )

    def _check(self, commit: Commit) -> None:
        """What a version says of the table itself must be what the stream was built for."""
        if commit.protocol is not None:
            check_readable(commit.protocol, self.shown)
        metadata, known = commit.metadata, self.state.metadata
        if metadata is None:
            return
        check_metadata(metadata, self._reading.changes, f"{self.shown} at version {commit.version}")
        if commit.version <= self.state.version:
            return  # how older files fit the newest columns is seen file by file
        if metadata.table != known.table:
            raise _replaced(self.shown, known.table, metadata.table)
        if not same_columns(known, metadata):
            raise InvalidInputError(
                f"[DELTA_SCHEMA_CHANGED_WITH_VERSION] {self.shown}: version {commit.version} changes the table's "
                f"columns: {differences(known, metadata)}. Everything ahead of it is read. Start the query again, from "
                "readStream...load() on: it then goes on from here with the new columns"
            )

    def _check_identity(self) -> None:
        """The newest commit that was seen is not what it was."""
        listing = self._log.listing()
        found = self._log.afresh().state(listing.newest, listing).metadata.table
        if found != self.table or listing.newest < self.head:
            raise _replaced(self.shown, self.table, found)
        self._head_time = self._log.times([self.head])[0]


def _replaced(shown: str, expected: str, found: str) -> InvalidInputError:
    return InvalidInputError(
        f"[DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE] {shown} is another table than it was: expected Delta's "
        f"table id {expected}, found {found}, or an older copy. Begin anew: another queryName and a new, empty "
        "checkpointLocation"
    )
