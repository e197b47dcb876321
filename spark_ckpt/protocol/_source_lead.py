"""The first source's part: gives up what is late, lost or withdrawn, and triggers. After Flink's CheckpointCoordinator,
CheckpointRequestDecider and CheckpointFailureManager.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from spark_ckpt.errors import CheckpointFailedError
from spark_ckpt.protocol.coordinator import (
    SCHEDULE,
    FailureCounter,
    TriggerFacts,
    TriggerNow,
    Wait,
    decide_expiry,
    decide_lost,
    decide_trigger,
)
from spark_ckpt.protocol.records import EXPIRED, FAILED, FINAL, LOST, WITHDRAWN, AbortedRecord, TriggerRecord
from spark_ckpt.protocol.source_offset import PendingTrigger, SourceOffset
from spark_ckpt.protocol.source_steps import (
    CallHook,
    CreateTrigger,
    DropRequest,
    GiveUp,
    ManualRequest,
    ReadAborted,
    ReadDrained,
    ReadOpenTriggers,
    ReadPaused,
    ReadRequests,
    SourceStep,
    Withdraw,
)
from spark_ckpt.protocol.source_view import Injection, Position, SourceRole, SourceView, due, look, pending_of, sort_out
from spark_ckpt.protocol.steps import StorageFailed

Led = Generator[SourceStep, Any, tuple[SourceView, Injection]]
Viewed = Generator[SourceStep, Any, SourceView]

_NO_DRAIN = "Spark itself reads this stream and goes on reading, so it cannot be drained; stop with a savepoint instead"


def lead(role: SourceRole, view: SourceView, start: SourceOffset, at: Position, now_ms: int) -> Led:
    """Driver, first source: whether a barrier or a cancel marker goes into the next offset."""
    view, lost = yield from _lost(role, view, start, now_ms)
    if (at.drained and role.available_now) or _too_long(role, view, start, now_ms):
        # What is drained may be asked for the last time. And what completed meanwhile must not be given up.
        view = yield from look(role, view, start, now_ms, fresh=True)
    overdue = _too_long(role, view, start, now_ms)
    if overdue:
        view = yield from _give_up(role, view, overdue, now_ms)
        return replace(view, waiting=None), Injection(None, _markers(view, start, lost))
    view, decision = yield from _decide(role, view, start, at, now_ms)
    cancel = _markers(view, start, lost)
    if isinstance(decision, Wait):
        return view if view.waiting == decision else replace(view, waiting=decision), Injection(None, cancel)
    view, trigger = yield from _trigger(role, view, decision, now_ms)
    while trigger is None and at.drained:
        # It failed, and Spark may not ask again: the next in turn, at last the final one, until one is taken or more
        # failed than are tolerated.
        view, decision = yield from _decide(role, view, start, at, now_ms)
        if isinstance(decision, Wait):
            break
        view, trigger = yield from _trigger(role, view, decision, now_ms)
    return view, Injection(None if trigger is None else pending_of(trigger, role.generation), cancel)


def _markers(view: SourceView, start: SourceOffset, lost: tuple[int, ...]) -> tuple[int, ...]:
    _, given_up = sort_out(view, start)
    return tuple(sorted({*lost, *given_up}))


# --- triggering ------------------------------------------------------------------------------------------------


def _decide(
    role: SourceRole, view: SourceView, start: SourceOffset, at: Position, now_ms: int
) -> Generator[SourceStep, Any, tuple[SourceView, TriggerNow | Wait]]:
    view = yield from _ask(role, view, at, now_ms)
    decision = decide_trigger(role.policy, _facts(role, view, start, at, now_ms))
    if isinstance(decision, Wait):
        return view, decision
    # Decided from what may be a moment old: a checkpoint that completed meanwhile begins the minimum pause, and a
    # request that was just made, or withdrawn, comes first.
    view = yield from look(role, view, start, now_ms, fresh=True)
    view = yield from _ask(role, view, at, now_ms, fresh=True)
    return view, decide_trigger(role.policy, _facts(role, view, start, at, now_ms))


def _facts(role: SourceRole, view: SourceView, start: SourceOffset, at: Position, now_ms: int) -> TriggerFacts:
    pending, _ = sort_out(view, start)
    final = view.final is not None and not view.state(view.final).given_up
    return TriggerFacts(
        now_ms=now_ms,
        started_ms=role.started_ms,
        initial_delay_ms=role.initial_delay_ms,
        last_trigger_ms=view.last_trigger_ms,
        last_completion_ms=view.last_completion_ms,
        pending=pending,
        requests=view.requests,
        at_end=at.drained and view.drained >= role.others,
        final_pending=final,
        final_done=final and view.completed >= (view.final or 0),
        stopping=at.frozen,
        draining=start.drain is not None,
        drain_done=start.drain is not None and view.completed >= start.drain,
        turn_ms=0 if view.called_ms is None else max(0, now_ms - view.called_ms),
        idle=at.inner == start.inner,
        last_savepoint_ms=view.last_savepoint_ms,
    )


def _ask(role: SourceRole, view: SourceView, at: Position, now_ms: int, fresh: bool = False) -> Viewed:
    """What others ask for, and who of them is drained. A request that was taken up before is dropped, not taken again;
    one whose time is over is withdrawn.
    """
    look_now = fresh or due(view.asked_ms, now_ms, role.poll_ms)
    if at.drained and not view.drained >= role.others and (look_now or role.available_now):
        view = replace(view, drained=(yield ReadDrained(role.generation)))
    if not look_now:
        return view
    if view.paused:
        view = replace(view, paused=(yield ReadPaused()))
    asked: tuple[ManualRequest, ...] = yield ReadRequests()
    kept: list[ManualRequest] = []
    for r in asked:
        if r.request in view.taken:
            yield DropRequest(r.request)
        elif r.deadline_ms is not None and now_ms > r.deadline_ms:
            yield Withdraw(r.request, "nobody took it up before its time was over")
            # Stopped here: its time is over; the next start withdraws it again and drops it.
            yield DropRequest(r.request)
        elif r.drain and not role.can_drain:
            yield Withdraw(r.request, _NO_DRAIN)
            # Stopped here: it is answered; the next look at it does this again and drops it.
            yield DropRequest(r.request)
        else:
            kept.append(r)
    return replace(view, requests=tuple(kept), asked_ms=now_ms)


def _trigger(
    role: SourceRole, view: SourceView, now: TriggerNow, now_ms: int
) -> Generator[SourceStep, Any, tuple[SourceView, TriggerRecord | None]]:
    """None: storage or a hook failed, and so did the checkpoint, before anybody heard of it."""
    record, failed = yield from _recorded(role, view, now, now_ms)
    newest = record.checkpoint
    if failed is not None:
        reason = f"its trigger was not recorded: {failed.reason}"
        return (yield from _unsent(role, view, newest, reason, "when the storage answers", now_ms)), None
    # Stopped here: nobody injected it. The next start gives it up as lost and whoever asked for it gets an error; the
    # trigger names the request, so that it is not taken up again.
    if now.request is not None:
        yield DropRequest(now.request)
    view = replace(
        view,
        newest_id=newest,
        last_trigger_ms=now_ms,
        last_savepoint_ms=now_ms if now.by == SCHEDULE else view.last_savepoint_ms,
        final=newest if now.kind == FINAL else view.final,
        taken=view.taken | ({now.request} if now.request is not None else set()),
        requests=tuple(r for r in view.requests if r.request != now.request),
        waiting=None,
    )
    why: str | None = yield CallHook(record)
    # Stopped here, or in the call: as above. Hooks are told of the next checkpoint under another id.
    if why is None:
        # Behind the trigger: who pauses leaves the record first, and asks for a checkpoint then.
        return replace(view, paused=(yield ReadPaused())), record
    return (yield from _unsent(role, view, newest, why, "when the hooks are mended", now_ms)), None


def _recorded(
    role: SourceRole, view: SourceView, now: TriggerNow, now_ms: int
) -> Generator[SourceStep, Any, tuple[TriggerRecord, StorageFailed | None]]:
    newest = view.newest_id
    while True:
        # Whoever else starts this job may have taken the id; ids only need to grow.
        newest += 1
        record = TriggerRecord(
            newest, now.kind, now_ms, now.by, now.target, now.terminal, now.request, role.generation, now.deadline_ms,
            now.drain,
        )  # fmt: skip
        created = yield CreateTrigger(record)
        if isinstance(created, StorageFailed):
            return record, created
        if created:
            return record, None


def _unsent(role: SourceRole, view: SourceView, checkpoint: int, why: str, advice: str, now_ms: int) -> Viewed:
    """Its hook failed, or storage, whose record may be there or not: the checkpoint has failed, and nobody else has
    heard of it. No barrier, no cancel marker."""
    yield GiveUp(AbortedRecord(checkpoint, FAILED, why, now_ms, role.generation))
    # Stopped here: it is settled, and nobody injected it. If storage fails in this too, the query ends.
    yield from _count(role, view, why, advice)
    aborted = view.aborted | {checkpoint}
    return replace(view, newest_id=checkpoint, last_trigger_ms=now_ms, waiting=None, aborted=aborted)


# --- giving up -------------------------------------------------------------------------------------------------


def _lost(
    role: SourceRole, view: SourceView, start: SourceOffset, now_ms: int
) -> Generator[SourceStep, Any, tuple[SourceView, tuple[int, ...]]]:
    """Once after a start: give up what an earlier generation triggered and never injected here."""
    if view.looked_for_lost:
        return view, ()
    triggers: tuple[TriggerRecord, ...] = yield ReadOpenTriggers(start.epoch)
    lost = decide_lost(triggers, role.generation, start.epoch)
    for k in lost:
        reason = "its generation ended before every source had injected it"
        yield GiveUp(AbortedRecord(k, LOST, reason, now_ms, role.generation))
        # Stopped here: the next start looks again. What a follower injected of it is given up with a newer barrier.
    return replace(view, looked_for_lost=True), lost


def _too_long(
    role: SourceRole, view: SourceView, start: SourceOffset, now_ms: int
) -> tuple[tuple[PendingTrigger, str, str], ...]:
    """(pending checkpoint, cause, reason) of those to give up."""
    pending, _ = sort_out(view, start)
    expired = {e.checkpoint: e.reason for e in decide_expiry(role.policy, pending, now_ms, role.started_ms)}
    out: list[tuple[PendingTrigger, str, str]] = []
    for p in pending:
        if p.request is not None and p.request in view.released:
            out.append((p, WITHDRAWN, "whoever asked for it does not wait any more"))
        elif p.deadline_ms is not None and now_ms > p.deadline_ms:
            out.append((p, WITHDRAWN, "it was not complete before the time-out of whoever asked for it"))
        elif p.checkpoint in expired:
            out.append((p, EXPIRED, expired[p.checkpoint]))
    return tuple(out)


def _give_up(
    role: SourceRole, view: SourceView, overdue: tuple[tuple[PendingTrigger, str, str], ...], now_ms: int
) -> Viewed:
    for p, cause, reason in overdue:
        if cause == WITHDRAWN and p.request is not None:
            yield Withdraw(p.request, reason)
            # Stopped here: the request is withdrawn, which the next look at it finds.
        yield GiveUp(AbortedRecord(p.checkpoint, cause, reason, now_ms, role.generation))
        # Stopped here: it stays in the offset's ``pending`` until an offset carries its cancel marker.
    view = replace(view, aborted=view.aborted | {p.checkpoint for p, _, _ in overdue})
    expired = [reason for _, cause, reason in overdue if cause == EXPIRED]
    if expired:
        advice = "with a longer spark.ckpt.timeout if the checkpoints need it"
        yield from _count(role, view, expired[-1], advice)
    return view


def _count(role: SourceRole, view: SourceView, reason: str, advice: str) -> Generator[SourceStep, Any, None]:
    """Raise ``CheckpointFailedError`` if this failure is one too many."""
    aborted: tuple[AbortedRecord, ...] = yield ReadAborted()
    failures = FailureCounter(role.tolerable_failures).add(aborted, role.generation).completed(view.completed)
    if failures.exceeded:
        raise CheckpointFailedError(
            f"{len(failures.failed)} checkpoint(s) in a row failed, spark.ckpt.tolerableFailures allows "
            f"{failures.tolerable}; the last: {reason}. Nothing is lost; start the query again, {advice}."
        )
