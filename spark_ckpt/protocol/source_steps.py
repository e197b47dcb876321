"""What a source's decisions ask their surroundings to do, one step at a time, and what they are told back.

As in :mod:`spark_ckpt.protocol.steps`, the real shell and the simulation both execute these, and every step may be
repeated after a crash. Driver, source process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_ckpt.protocol.records import AbortedRecord, TriggerRecord
from spark_ckpt.protocol.steps import ReadAborted


@dataclass(frozen=True)
class ManualRequest:
    """Somebody asks for a checkpoint or savepoint (``requests/<request>``) and waits for it until ``deadline_ms``.
    ``drain``: as in :class:`~spark_ckpt.protocol.records.TriggerRecord`.
    """

    request: str
    kind: str
    time_ms: int
    target: str | None = None
    terminal: bool = False
    deadline_ms: int | None = None
    drain: bool = False


@dataclass(frozen=True)
class ReadSourceStart:
    """Once after a start. Result: ``SourceStart``."""


@dataclass(frozen=True)
class SourceStart:
    """``newest_id``: the largest checkpoint id ever used. ``completed``: the newest completed one; void ones are none.

    ``last_completion_ms``: when the newest of the job's checkpoints completed. ``taken``: the requests that triggers
    name. ``last_savepoint_ms``: when the newest scheduled savepoint was triggered, as far as that can be seen.
    """

    newest_id: int = 0
    completed: int = 0
    last_completion_ms: int | None = None
    taken: frozenset[str] = frozenset()
    last_savepoint_ms: int | None = None
    paused: bool = False


@dataclass(frozen=True)
class ReadPaused:
    """Whether the job is paused: ``paused.json`` is there. Asked behind each trigger that a source takes up, so a pause
    begins at a barrier, and now and then while it lasts. Result: a bool."""


@dataclass(frozen=True)
class AskInner:
    """Ask the inner source for its latest offset behind ``inner``. Result: ``InnerRead``."""

    inner: Any


@dataclass(frozen=True)
class InnerRead:
    """``finished``: nothing will ever come behind ``inner`` (only asked when it did not move). ``injected``: the newest
    checkpoint whose barrier all other sources have sent, by the offsets that Spark has logged (only asked of a source
    that is to be the last)."""

    inner: Any
    finished: bool = False
    injected: int = 0


@dataclass(frozen=True)
class Look:
    """Read what became of ``checkpoints`` and of ``requests``. Result: ``Looked``."""

    checkpoints: tuple[int, ...]
    requests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Looked:
    """``completed``: the newest completed checkpoint. ``aborted``: those of the checkpoints asked for that are void or
    have an ``aborted/`` record. ``released``: those of the requests that were withdrawn, or answered with an error.
    """

    completed: int = 0
    aborted: frozenset[int] = frozenset()
    released: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ReadOpenTriggers:
    """Triggers from id ``epoch`` on that are neither complete, void nor aborted. Result: those, by id."""

    epoch: int


@dataclass(frozen=True)
class ReadRequests:
    """Everything in ``requests/``. Result: a tuple of ``ManualRequest``."""


@dataclass(frozen=True)
class CreateTrigger:
    """Create ``triggers/K`` if absent. Result: whether it was created (False: the id is taken) or ``StorageFailed``."""

    record: TriggerRecord


@dataclass(frozen=True)
class CallHook:
    """Tell the job's hooks of a trigger that was just created; what they return is put into ``triggers/K``. Result:
    None, or why they failed."""

    record: TriggerRecord


@dataclass(frozen=True)
class DropRequest:
    """Delete ``requests/<request>``; if that fails, it is asked for again at the next look. Result: None."""

    request: str


@dataclass(frozen=True)
class Withdraw:
    """Create ``answers/<request>`` as withdrawn, if absent. Result: whether the request is withdrawn now (False: it was
    answered before)."""

    request: str
    reason: str


@dataclass(frozen=True)
class GiveUp:
    """Create ``aborted/K`` if absent: the first reason stays. Result: None."""

    record: AbortedRecord


@dataclass(frozen=True)
class AnnounceDrained:
    """Create ``drained/<generation>-<source>``, if absent. Result: None."""

    generation: int
    source: str


@dataclass(frozen=True)
class ReadDrained:
    """The sources that announced themselves drained in ``generation``. Result: a frozenset."""

    generation: int


SourceStep = (
    ReadSourceStart
    | AskInner
    | Look
    | ReadOpenTriggers
    | ReadRequests
    | CreateTrigger
    | CallHook
    | DropRequest
    | Withdraw
    | GiveUp
    | AnnounceDrained
    | ReadDrained
    | ReadAborted
    | ReadPaused
)

__all__ = [
    "AnnounceDrained",
    "AskInner",
    "CallHook",
    "CreateTrigger",
    "DropRequest",
    "GiveUp",
    "InnerRead",
    "Look",
    "Looked",
    "ManualRequest",
    "ReadAborted",
    "ReadDrained",
    "ReadOpenTriggers",
    "ReadPaused",
    "ReadRequests",
    "ReadSourceStart",
    "SourceStart",
    "SourceStep",
    "Withdraw",
]
