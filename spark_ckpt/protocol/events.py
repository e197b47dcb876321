"""Control events: what travels in-band between sources, operators and sinks.

Pure values with a JSON form (``encode``/``decode``). An event reaches everyone it concerns by passing through
the stages on its way; a stage that does not know what to do with one passes it on.

Weights: every input stream of a stage (a source, or an operator upstream) stands for ``key_groups`` (G) shares.
A source's lanes, or an operator's partitions, split that total between them, so "all channels of all inputs have
delivered barrier K" is: the weights received for K sum to ``inputs * G``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

NO_STREAM = ""
"""No stream's name; see :class:`Watermark` and :class:`GroupManifest`."""


@dataclass(frozen=True)
class Run:
    """A sorted range of rows of one state file that belongs to one key group.

    ``tombstones`` runs hold keys that were removed: their rows are dead from birth in the Delta table and only
    tell the operator to look no further. ``due_ms`` is the smallest time-out in the run, or None.
    """

    file: str
    start: int
    count: int
    epoch: int
    tombstones: bool = False
    due_ms: int | None = None


@dataclass(frozen=True)
class GroupManifest:
    """The state of one key group at a barrier: its runs, oldest first, and the watermarks it had seen.

    Under ``NO_STREAM`` stands the watermark by which the next batch's late rows are told, if there are watermarks.
    """

    runs: tuple[Run, ...] = ()
    keys: int = 0
    watermarks_us: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StateFile:
    """A state file written by one task: name relative to the state table, rows and size."""

    file: str
    rows: int
    size_bytes: int


@dataclass(frozen=True)
class Barrier:
    """``drain``: the event time is at its end behind it (Flink: MAX_WATERMARK ahead of the last barrier). Operators
    that have it from all inputs call what still waits for the event time, and then pass it on.
    """

    KIND: ClassVar[str] = "barrier"
    checkpoint: int
    weight: int
    triggered_ms: int
    drain: bool = False


@dataclass(frozen=True)
class Cancel:
    """Checkpoint ``checkpoint`` was given up; whoever waits for its barriers stops waiting."""

    KIND: ClassVar[str] = "cancel"
    checkpoint: int


@dataclass(frozen=True)
class Finished:
    """``weight`` shares of an input ended in ``epoch``; they count as arrived for its barrier and every later one."""

    KIND: ClassVar[str] = "finished"
    weight: int
    epoch: int = 0


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
    epoch: int = 0


@dataclass(frozen=True)
class Completed:
    """Checkpoint ``checkpoint`` is complete and committed everywhere: user functions may be told."""

    KIND: ClassVar[str] = "completed"
    checkpoint: int


@dataclass(frozen=True)
class SourceAck:
    """Source ``source`` stood at ``offset`` when it injected barrier ``checkpoint``."""

    KIND: ClassVar[str] = "source_ack"
    source: str
    checkpoint: int
    offset: Mapping[str, Any]


@dataclass(frozen=True)
class RowsRead:
    """Tasks of source ``source`` read ``rows`` rows in this batch. A report; nothing is decided by it."""

    KIND: ClassVar[str] = "rows_read"
    source: str
    rows: int


MEASURED = frozenset({"flush_ms", "write_ms"})
"""Statistics that differ between two attempts at the same task."""


@dataclass(frozen=True)
class OperatorAck:
    """Key groups of operator ``uid`` are durable at barrier ``checkpoint``; ``stats`` are sums or maxima."""

    KIND: ClassVar[str] = "operator_ack"
    uid: str
    checkpoint: int
    partition: int
    groups: Mapping[int, GroupManifest]
    stats: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Flushed:
    """State written in ``epoch``: new files, and rows (a serialised roaring bitmap a file) that died by it.

    Sent in the batch that wrote them, before any barrier, so that the acknowledgement needs only the runs.
    """

    KIND: ClassVar[str] = "flushed"
    uid: str
    epoch: int
    files: tuple[StateFile, ...]
    dead: Mapping[str, bytes]


@dataclass(frozen=True)
class Decline:
    """Operator ``uid`` could not take checkpoint ``checkpoint``; it goes on without.

    ``failed``: because storage failed; otherwise because it would have held back more rows than it may.
    """

    KIND: ClassVar[str] = "decline"
    uid: str
    checkpoint: int
    reason: str
    failed: bool = False


@dataclass(frozen=True)
class Restore:
    """Key groups of ``uid`` take over the manifests of ``checkpoint``.

    ``adopt`` is False when a job is restored (the groups are empty and start in epoch ``checkpoint + 1``). It is
    True when a batch is replayed whose checkpoint had already completed: the groups take the recorded manifests
    the moment barrier ``checkpoint`` completes in the replay, so that live state and record cannot diverge.
    """

    KIND: ClassVar[str] = "restore"
    uid: str
    checkpoint: int
    groups: Mapping[int, GroupManifest]
    adopt: bool = False


Event = (
    Barrier
    | Cancel
    | Finished
    | Watermark
    | Completed
    | SourceAck
    | RowsRead
    | OperatorAck
    | Flushed
    | Decline
    | Restore
)

_BY_KIND: dict[str, type[Any]] = {
    c.KIND: c
    for c in (
        Barrier,
        Cancel,
        Finished,
        Watermark,
        Completed,
        SourceAck,
        RowsRead,
        OperatorAck,
        Flushed,
        Decline,
        Restore,
    )
}


def sum_rows(found: Iterable[RowsRead]) -> list[RowsRead]:
    """One for each source."""
    sums: dict[str, int] = {}
    for event in found:
        sums[event.source] = sums.get(event.source, 0) + event.rows
    return [RowsRead(source, rows) for source, rows in sorted(sums.items())]


def run_to_json(run: Run) -> list[Any]:
    return [run.file, run.start, run.count, run.epoch, int(run.tombstones), run.due_ms]


def run_from_json(value: list[Any]) -> Run:
    file, start, count, epoch, tombstones, due_ms = value
    return Run(file, start, count, epoch, bool(tombstones), due_ms)


def group_to_json(group: GroupManifest) -> dict[str, Any]:
    return {
        "runs": [run_to_json(r) for r in group.runs],
        "keys": group.keys,
        "watermarks_us": dict(group.watermarks_us),
    }


def group_from_json(value: Mapping[str, Any]) -> GroupManifest:
    return GroupManifest(tuple(run_from_json(r) for r in value["runs"]), value["keys"], dict(value["watermarks_us"]))


def groups_to_json(groups: Mapping[int, GroupManifest]) -> dict[str, Any]:
    return {str(g): group_to_json(m) for g, m in sorted(groups.items())}


def groups_from_json(value: Mapping[str, Any]) -> dict[int, GroupManifest]:
    return {int(g): group_from_json(m) for g, m in value.items()}


def to_json(event: Event) -> dict[str, Any]:
    """The event as plain JSON values, ``kind`` first."""
    body = {"kind": event.KIND, **{f.name: getattr(event, f.name) for f in fields(event)}}
    if isinstance(event, OperatorAck | Restore):
        body["groups"] = groups_to_json(event.groups)
    if isinstance(event, OperatorAck):
        body["stats"] = dict(event.stats)
    if isinstance(event, Flushed):
        body["files"] = [[f.file, f.rows, f.size_bytes] for f in event.files]
        body["dead"] = {k: base64.b64encode(v).decode() for k, v in event.dead.items()}
    return body


def from_json(value: Mapping[str, Any]) -> Event:
    """Inverse of :func:`to_json`. Raises ``KeyError`` or ``TypeError`` on anything else."""
    body = dict(value)
    cls = _BY_KIND[body.pop("kind")]
    if cls in (OperatorAck, Restore):
        body["groups"] = groups_from_json(body["groups"])
    if cls is Flushed:
        body["files"] = tuple(StateFile(*f) for f in body["files"])
        body["dead"] = {k: base64.b64decode(v) for k, v in body["dead"].items()}
    event: Event = cls(**body)
    return event


def encode(event: Event) -> bytes:
    """The bytes that travel in the ``CTL`` column."""
    return json.dumps(to_json(event), separators=(",", ":")).encode()


def decode(data: bytes) -> Event:
    return from_json(json.loads(data))
