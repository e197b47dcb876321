"""Control events: what travels in-band between sources, operators and sinks.

Pure values with a JSON form (``encode``/``decode``). An event reaches everyone it concerns by passing through
the stages on its way; a stage that does not know what to do with one passes it on.

Weights: every input stream of a stage (a source, or an operator upstream) stands for ``key_groups`` (G) shares.
A source's lanes, or an operator's partitions, split that total between them, so "all channels of all inputs have
delivered barrier K" is: the weights received for K sum to ``inputs * G``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from spark_ckpt.protocol import codec
from spark_ckpt.protocol.codec import Count, later

NO_STREAM = ""
"""No stream's name; see :class:`Watermark` and :class:`GroupManifest`."""


@dataclass(frozen=True)
class Run:
    """A sorted range of rows of one state file that belongs to one key group.

    ``tombstones`` runs hold keys that were removed: their rows are dead from birth in the Delta table and only
    tell the operator to look no further. ``due_ms`` is the smallest time-out in the run, or None.
    """

    file: str
    start: Count
    count: Count
    epoch: Count
    tombstones: codec.Bit = False
    due_ms: int | None = None

    def to_row(self) -> list[Any]:
        return [self.file, self.start, self.count, self.epoch, int(self.tombstones), self.due_ms]

    @classmethod
    def of_row(cls, value: Any) -> Run | None:
        if type(value) is not list or len(value) != 6:
            return None
        file, start, count, epoch, dead, due_ms = value
        right = type(file) is str and type(start) is int and type(count) is int and type(epoch) is int
        right = right and type(dead) is int and (due_ms is None or type(due_ms) is int)
        if right and start >= 0 and count >= 0 and epoch >= 0 and (dead == 0 or dead == 1):
            return cls(file, start, count, epoch, dead == 1, due_ms)
        return None


@dataclass(frozen=True)
class GroupManifest:
    """The state of one key group at a barrier: its runs, oldest first, and the watermarks it had seen.

    Under ``NO_STREAM`` stands the watermark by which the next batch's late rows are told, if there are watermarks.
    """

    runs: tuple[Run, ...] = ()
    keys: Count = 0
    watermarks_us: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StateFile:
    """A state file written by one task: name relative to the state table, rows and size."""

    file: str
    rows: Count
    size_bytes: Count


@dataclass(frozen=True)
class Barrier:
    """``drain``: the event time is at its end behind it (Flink: MAX_WATERMARK ahead of the last barrier). Operators
    that have it from all inputs call what still waits for the event time, and then pass it on.
    """

    KIND: ClassVar[str] = "barrier"
    checkpoint: Count
    weight: Count
    triggered_ms: int
    drain: bool = later(False)


@dataclass(frozen=True)
class Cancel:
    """Checkpoint ``checkpoint`` was given up; whoever waits for its barriers stops waiting."""

    KIND: ClassVar[str] = "cancel"
    checkpoint: Count


@dataclass(frozen=True)
class Finished:
    """``weight`` shares of an input ended in ``epoch``; they count as arrived for its barrier and every later one."""

    KIND: ClassVar[str] = "finished"
    weight: Count
    epoch: Count = later(0)


@dataclass(frozen=True)
class Watermark:
    """Input ``stream`` promises no more rows older than ``micros`` (event time minus the delay).

    It was seen on rows of ``epoch`` and takes effect with them: an operator in an earlier epoch keeps it back.
    ``NO_STREAM`` promises nothing: sources send it with every batch where time-outs wait for the event time, so that
    time goes on in every subtask, with rows or without.
    """

    KIND: ClassVar[str] = "watermark"
    stream: str
    micros: int
    epoch: Count = later(0)


@dataclass(frozen=True)
class Completed:
    """Checkpoint ``checkpoint`` is complete and committed everywhere: user functions may be told."""

    KIND: ClassVar[str] = "completed"
    checkpoint: Count


@dataclass(frozen=True)
class SourceAck:
    """Source ``source`` stood at ``offset`` when it injected barrier ``checkpoint``."""

    KIND: ClassVar[str] = "source_ack"
    source: str
    checkpoint: Count
    offset: Mapping[str, Any]


@dataclass(frozen=True)
class RowsRead:
    """Tasks of source ``source`` read ``rows`` rows in this batch. ``behind``: what the source had not read yet when
    the batch was planned, if it tells. A report; nothing is decided by it."""

    KIND: ClassVar[str] = "rows_read"
    source: str
    rows: Count
    behind: int | None = codec.optional()


@dataclass(frozen=True)
class TimeSeen:
    """Operator ``uid`` went by the watermark ``watermark_us`` in this batch, and left ``late`` rows out by it.

    The watermark is None for an operator behind another one: the query's is that of those that see it first. A report;
    nothing is decided by it.
    """

    KIND: ClassVar[str] = "time_seen"
    uid: str
    watermark_us: int | None
    late: Count


@dataclass(frozen=True)
class Asked:
    """What a process of the query asked of storage since it told last, by kind (:mod:`spark_ckpt.storage.tally`). Never
    of a task whose output is shuffled: it differs from attempt to attempt. A report; nothing is decided by it."""

    KIND: ClassVar[str] = "asked"
    counts: Mapping[str, Count]


MEASURED = frozenset({"flush_ms", "write_ms"})
"""Statistics that differ between two attempts at the same task."""


@dataclass(frozen=True)
class OperatorAck:
    """Key groups of operator ``uid`` are durable at barrier ``checkpoint``; ``stats`` are sums or maxima."""

    KIND: ClassVar[str] = "operator_ack"
    uid: str
    checkpoint: Count
    partition: Count
    groups: Mapping[int, GroupManifest]
    stats: Mapping[str, int] = later(factory=dict)


@dataclass(frozen=True)
class Flushed:
    """State written in ``epoch``: new files, and rows (a serialised roaring bitmap a file) that died by it.

    Sent in the batch that wrote them, before any barrier, so that the acknowledgement needs only the runs.
    """

    KIND: ClassVar[str] = "flushed"
    uid: str
    epoch: Count
    files: tuple[StateFile, ...]
    dead: Mapping[str, bytes]


@dataclass(frozen=True)
class Decline:
    """Operator ``uid`` could not take checkpoint ``checkpoint``; it goes on without.

    ``failed``: because storage failed; otherwise because it would have held back more rows than it may.
    """

    KIND: ClassVar[str] = "decline"
    uid: str
    checkpoint: Count
    reason: str
    failed: bool = later(False)


@dataclass(frozen=True)
class Restore:
    """Key groups of ``uid`` take over the manifests of ``checkpoint``.

    ``adopt`` is False when a job is restored (the groups are empty and start in epoch ``checkpoint + 1``). It is
    True when a batch is replayed whose checkpoint had already completed: the groups take the recorded manifests
    the moment barrier ``checkpoint`` completes in the replay, so that live state and record cannot diverge.
    """

    KIND: ClassVar[str] = "restore"
    uid: str
    checkpoint: Count
    groups: Mapping[int, GroupManifest]
    adopt: bool = later(False)


Event = (
    Barrier
    | Cancel
    | Finished
    | Watermark
    | Completed
    | SourceAck
    | RowsRead
    | TimeSeen
    | Asked
    | OperatorAck
    | Flushed
    | Decline
    | Restore
)

Groups = Mapping[int, GroupManifest]

codec.as_row(Run)
codec.as_row(StateFile)


def groups_to_json(groups: Mapping[int, GroupManifest]) -> dict[str, Any]:
    return codec.write_as(Groups, groups)


def groups_from_json(value: Any, where: str = "key groups") -> dict[int, GroupManifest]:
    """Raises ``CorruptStorageError``."""
    groups: dict[int, GroupManifest] = codec.read_as(Groups, value, where)
    return groups


def to_json(event: Event) -> dict[str, Any]:
    """The event as plain JSON values, ``kind`` first."""
    return codec.write_as(Event, event)


def from_json(value: Any) -> Event:
    """Inverse of :func:`to_json`. Raises ``CorruptStorageError`` on anything else."""
    event: Event = codec.read_as(Event, value, "control event")
    return event


def encode(event: Event) -> bytes:
    """The bytes that travel in the ``CTL`` column."""
    return json.dumps(to_json(event), separators=(",", ":")).encode()


def decode(data: bytes) -> Event:
    """Inverse of :func:`encode`. Raises ``CorruptStorageError``."""
    return from_json(codec.parsed(data, "an event"))
