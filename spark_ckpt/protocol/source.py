"""A source's next offset: what it reads, which checkpoint it injects, what it gives up, when it stands still.

A coroutine of steps, asked before every batch and while idle. The first source *leads*: it decides about triggers (see
:mod:`spark_ckpt.protocol._source_lead`). The others *follow*: they take up its triggers in order. After Flink's
CheckpointCoordinator (which triggers) and SourceCoordinator and StreamTask (which inject).

Decisions are durable twice: as ``triggers/K`` and in the offset that Spark logs before the batch. A crash in between
leaves a trigger that nobody injected: its id is not used again, and the next start gives it up.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from dataclasses import replace
from typing import Any

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.protocol._source_lead import lead
from spark_ckpt.protocol.records import FINAL, TriggerRecord
from spark_ckpt.protocol.source_offset import PendingTrigger, SourceOffset
from spark_ckpt.protocol.source_steps import (
    AnnounceDrained,
    AskInner,
    InnerRead,
    ReadOpenTriggers,
    ReadPaused,
    ReadSourceStart,
    SourceStart,
    SourceStep,
)
from spark_ckpt.protocol.source_time import turns
from spark_ckpt.protocol.source_view import (
    Injection,
    Position,
    SourceRole,
    SourceView,
    due,
    is_frozen,
    look,
    pending_of,
    sort_out,
)

_PAUSED = (
    "the job is paused, so a run of what is available now cannot come to its end: `spark-ckpt status` shows why. "
    "Resume it (`spark-ckpt resume`) and start the query again. Nothing is lost"
)

Steps = Generator[SourceStep, Any, tuple[SourceView, SourceOffset]]
"""Yields steps, is sent their results, and returns what to remember and the next offset."""


def next_offset(role: SourceRole, view: SourceView | None, start: SourceOffset, now_ms: int) -> Steps:
    """Driver, ``latestOffset``: ``start`` itself when there is nothing new. The only place that injects barriers.

    Raises ``CheckpointFailedError`` when more checkpoints failed in a row than are tolerated, and what steps raise.
    """
    if view is None:
        known: SourceStart = yield ReadSourceStart()
        view = SourceView(
            known.newest_id,
            known.completed,
            known.last_completion_ms,
            known.taken,
            known.last_savepoint_ms,
            paused=known.paused,
        )
    view = yield from look(role, view, start, now_ms)
    at = yield from _position(role, view, start)
    decide = lead if role.leader else _follow
    view, injection = yield from decide(role, view, start, at, now_ms)
    if role.leader:
        view = replace(view, called_ms=now_ms)
    view, now_turns = _turns(role, view, start, at, now_ms)
    return view, _assemble(role, view, start, at, injection, now_turns)


# --- reading ---------------------------------------------------------------------------------------------------


def _position(role: SourceRole, view: SourceView, start: SourceOffset) -> Generator[SourceStep, Any, Position]:
    """A source that is frozen, paused or has ended is not asked."""
    frozen = is_frozen(start, role.generation, view.aborted, view.released)
    if view.paused and not frozen:
        if role.available_now:
            raise InvalidInputError(_PAUSED)
        return Position(start.inner, start.ended, frozen=False, drained=False)
    read = InnerRead(start.inner)
    if not (frozen or start.ended):
        read = yield AskInner(start.inner)
    still = read.inner == start.inner
    drained, ended = not frozen and role.arrived(read.inner, still), start.ended or (still and read.finished)
    if role.end is not None and still and not (frozen or drained) and (role.available_now or ended):
        raise InvalidInputError(_short_of(role, read.inner))
    return Position(read.inner, ended, frozen, drained, read.injected)


def _short_of(role: SourceRole, inner: Any) -> str:
    """Where nothing comes any more: a checkpoint anywhere else would not be the one that was asked for."""
    return (
        f"source {role.source!r} has nothing behind {json.dumps(inner)}, and spark.ckpt.endingAt says "
        f"{json.dumps(role.end)}: expected rows up to there. Start the query again when they are there, or without "
        "availableNow: then it waits for them. Nothing is lost"
    )


def _turns(
    role: SourceRole, view: SourceView, start: SourceOffset, at: Position, now_ms: int
) -> tuple[SourceView, int | None]:
    """After a start, and a pause, the time begins anew: what came meanwhile is not known."""
    if role.idle_ms is None or at.frozen:
        return view, start.turns
    if view.paused:
        return replace(view, moved_ms=None), start.turns
    moved, before = at.inner != start.inner, start.turns or 0
    if moved or view.moved_ms is None:
        view = replace(view, moved_ms=now_ms)
    quiet_ms = None if moved or view.moved_ms is None else now_ms - view.moved_ms
    return view, turns(before, quiet_ms, role.idle_ms) or None


# --- follower --------------------------------------------------------------------------------------------------


def _follow(
    role: SourceRole, view: SourceView, start: SourceOffset, at: Position, now_ms: int
) -> Generator[SourceStep, Any, tuple[SourceView, Injection]]:
    """Take up the leader's triggers, and tell it when this source is drained."""
    _, given_up = sort_out(view, start)
    if at.drained and not view.announced:
        yield AnnounceDrained(role.generation, role.source)
        # Stopped here: of a generation that is over; the next one does not look at it.
        view = replace(view, announced=True)
    early = _early(role, view, start, at, now_ms)
    if early or (at.frozen and start.drain is None):
        return view, Injection(None, given_up)
    found: tuple[TriggerRecord, ...] = yield ReadOpenTriggers(start.epoch)
    # A driver that was halted and fenced may still create one, of which the leader of this generation knows nothing.
    known = role.inherited
    triggers = [t for t in found if known is None or t.generation == role.generation or t.checkpoint in known]
    if role.last:
        triggers = [t for t in triggers if t.checkpoint <= at.injected]
    taken = take_up(triggers, role.generation, at.drained)
    # More of them wait: they are not kept waiting for another poll.
    view = replace(view, followed_ms=now_ms, behind=taken is not None and len(triggers) > 1, injected=at.injected)
    if taken is not None or view.paused:
        # Behind the trigger: who pauses leaves the record first, and asks for a checkpoint then.
        view = replace(view, paused=(yield ReadPaused()))
    return view, Injection(None if taken is None else pending_of(taken, role.generation), given_up)


def _early(role: SourceRole, view: SourceView, start: SourceOffset, at: Position, now_ms: int) -> bool:
    """Whether it is too early to look for triggers. Who is to be the last knows by the others when there is one."""
    if role.last and at.injected < start.epoch:
        return True
    if role.last and at.injected > view.injected:
        return False
    last_call = at.drained and role.available_now
    return not (last_call or view.behind or due(view.followed_ms, now_ms, role.poll_ms))


def take_up(triggers: Iterable[TriggerRecord], generation: int, drained: bool) -> TriggerRecord | None:
    """The oldest of the open triggers ahead: barriers pass every channel in the order of their checkpoints.

    The final checkpoint of this generation waits until the source is at its end, unless it drains: then the end is
    here. One of an earlier generation was final for that run only.
    """
    first = min(triggers, key=lambda t: t.checkpoint, default=None)
    if first is None or (first.kind == FINAL and first.generation == generation and not (drained or first.drain)):
        return None
    return first


# --- the offset ------------------------------------------------------------------------------------------------


def _assemble(
    role: SourceRole,
    view: SourceView,
    start: SourceOffset,
    at: Position,
    injection: Injection,
    now_turns: int | None,
) -> SourceOffset:
    """The next offset, or ``start`` if nothing is new: then Spark plans no batch for this source's sake."""
    injected, drained = injection.barrier, start.drained
    if at.drained and not role.leader:
        # One batch more: the leader, which is asked before its followers, hears of it.
        drained = role.generation
    moved = at.inner != start.inner or at.ended != start.ended or drained != start.drained
    moved = moved or (start.rows is not None and not at.frozen) or now_turns != start.turns
    if not (moved or injected is not None or injection.cancel or start.restore is not None):
        return start
    waiting, _ = sort_out(view, start)
    end = SourceOffset(
        origin=start.origin,
        inner=at.inner,
        epoch=start.epoch,
        pending=waiting,
        cancel=injection.cancel,
        ended=at.ended,
        drained=drained,
        rows=True if role.batch_behind_rows and (at.inner, now_turns) != (start.inner, start.turns) else None,
        terminal=start.terminal if at.frozen else None,
        request=start.request if at.frozen else None,
        drain=start.drain,
        completed=_to_tell(view, start) if role.tells else None,
        turns=now_turns,
        read=True if role.marks_reads and at.inner != start.inner else None,
    )
    if injected is None:
        return end
    if role.closes_windows and (at.drained or at.ended) and not injected.drain:
        end = replace(end, closes=True)
    return _with_barrier(end, injected, role.generation)


def _to_tell(view: SourceView, start: SourceOffset) -> int | None:
    """The newest checkpoint, in the first batch behind it: until an offset is made that knows it, it is pending there.

    The sink's commit has ended by then, so it is committed. A crash in that batch: Spark replays it. What was subsumed
    is not told. Nor is a void record: its checkpoint was not injected here.
    """
    if start.restore is not None:
        return start.restore
    return view.completed if any(p.checkpoint == view.completed for p in start.pending) else None


def _with_barrier(end: SourceOffset, injected: PendingTrigger, generation: int) -> SourceOffset:
    return replace(
        end,
        epoch=injected.checkpoint + 1,
        barrier=injected.checkpoint,
        triggered_ms=injected.triggered_ms,
        pending=(*end.pending, replace(injected, terminal=False, drain=False)),
        terminal=generation if injected.terminal else None,
        request=injected.request if injected.terminal else None,
        drain=injected.checkpoint if injected.drain else end.drain,
    )
