"""The coordinator's decisions: when to trigger, what an acknowledgement means, when to give up, what to retain.

The trigger decision is taken in the first source's ``latestOffset``; acknowledgements are counted in the sink's
commit. Both are one driver's processes and share only the records. After Flink's CheckpointRequestDecider,
PendingCheckpoint and CheckpointFailureManager.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from spark_ckpt.protocol.pending import AckResult, PendingCheckpoint, merge_stats
from spark_ckpt.protocol.records import (
    CHECKPOINT,
    EXPIRED,
    FAILED,
    FINAL,
    SAVEPOINT,
    AbortedRecord,
    TriggerRecord,
)
from spark_ckpt.protocol.source_offset import PendingTrigger
from spark_ckpt.protocol.source_steps import ManualRequest

SCHEDULE = "schedule"
"""By whom a savepoint of ``spark.ckpt.savepoint.every`` is triggered."""

# --- when to trigger ---------------------------------------------------------------------------------------

_REST_MS = 50
"""Where batches take longer than the interval, an idle source would have a barrier at each call: Spark would never find
that nothing is there, and ``processAllAvailable`` never return. A completion is seen in the call behind its batch."""


@dataclass(frozen=True)
class SavepointSchedule:
    """A savepoint ``every_ms``, each in a folder of its own: ``target`` names it by the time."""

    every_ms: int
    target: Callable[[int], str]


@dataclass(frozen=True)
class TriggerPolicy:
    """``spark.ckpt.*`` as numbers. ``interval_ms`` None: no periodic checkpoints."""

    interval_ms: int | None = 10_000
    min_pause_ms: int = 0
    timeout_ms: int = 600_000
    max_concurrent: int = 1
    savepoints: SavepointSchedule | None = None


@dataclass(frozen=True)
class TriggerFacts:
    """What the first source knows. ``initial_delay_ms`` is drawn at random below the interval, once a generation.

    ``requests`` are those not taken up yet. ``at_end``: the input is bounded and every source has read all of it.
    ``final_pending``: the final checkpoint of this run was triggered and not aborted; ``final_done``: it is complete.
    ``stopping``: a stop-with-savepoint of this generation went by, the query only waits to be stopped. ``draining``:
    the barrier of a drain went by, in whatever generation; ``drain_done``: its checkpoint is complete. ``turn_ms``: so
    long ago was the source asked before, which is how long the next batch may take. ``idle``: the source has nothing
    new. ``last_savepoint_ms``: when the newest scheduled savepoint was triggered (None: there is none).
    """

    now_ms: int
    started_ms: int
    initial_delay_ms: int
    last_trigger_ms: int | None = None
    last_completion_ms: int | None = None
    pending: tuple[PendingTrigger, ...] = ()
    requests: tuple[ManualRequest, ...] = ()
    at_end: bool = False
    final_pending: bool = False
    final_done: bool = False
    stopping: bool = False
    draining: bool = False
    drain_done: bool = False
    turn_ms: int = 0
    idle: bool = False
    last_savepoint_ms: int | None = None


class WaitReason(enum.Enum):
    STOPPING = "a stop-with-savepoint is under way"
    PENDING = "as many checkpoints as maxConcurrent allows are pending"
    INTERVAL = "the interval has not passed"
    MIN_PAUSE = "the minimum pause has not passed"
    DISABLED = "periodic checkpoints are off"
    FINAL_PENDING = "the final checkpoint is pending"
    DRAINING = "the checkpoint that drains the job is pending"
    DRAINED = "the job is drained and waits to be stopped"
    FINISHED = "the input has ended and its final checkpoint is complete"


@dataclass(frozen=True)
class TriggerNow:
    kind: str
    by: str
    target: str | None = None
    terminal: bool = False
    request: str | None = None
    deadline_ms: int | None = None
    drain: bool = False


@dataclass(frozen=True)
class Wait:
    """``until_ms`` None: until something else happens."""

    until_ms: int | None
    why: WaitReason


def decide_trigger(policy: TriggerPolicy, facts: TriggerFacts) -> TriggerNow | Wait:
    """Driver, first source, before every batch and while idle. The order is that of Flink's CheckpointRequestDecider:

    savepoints and drains come first, whatever is pending (Flink: they are forced); then, as far as ``max_concurrent``
    allows, other requests and what the interval asks for. Requests know no pause.
    """
    if facts.draining:
        return _drain(policy, facts)
    if facts.stopping:
        return Wait(None, WaitReason.STOPPING)
    request = min(facts.requests, key=_rank, default=None)
    full = len(facts.pending) >= policy.max_concurrent
    if request is not None and (_forced(request) or not full):
        r = request
        return TriggerNow(r.kind, "request", r.target, r.terminal, r.request, r.deadline_ms, r.drain)
    if facts.at_end:
        return _at_end(facts)
    if full:
        return Wait(None, WaitReason.PENDING)
    return _periodic(policy, facts)


def _rank(request: ManualRequest) -> tuple[bool, int, str]:
    return not _forced(request), request.time_ms, request.request


def _forced(request: ManualRequest) -> bool:
    return request.kind == SAVEPOINT or request.drain


def _drain(policy: TriggerPolicy, facts: TriggerFacts) -> TriggerNow | Wait:
    """Rows of the end of time cannot be taken back: if their checkpoint was given up, another one takes them over.
    Nobody waits for that one under a name, and it has no target: whoever asked was told of the first.
    """
    if facts.drain_done:
        return Wait(None, WaitReason.DRAINED)
    if facts.pending:
        return Wait(None, WaitReason.DRAINING)
    last, interval_ms = facts.last_trigger_ms, policy.interval_ms or 0
    if last is not None and _is_within(last, interval_ms, facts.now_ms):
        return Wait(last + interval_ms, WaitReason.INTERVAL)
    return TriggerNow(FINAL, "drain", terminal=True, drain=True)


def _at_end(facts: TriggerFacts) -> TriggerNow | Wait:
    """The final checkpoint waits for nothing: once every source is drained, Spark may not ask again."""
    if facts.final_done:
        return Wait(None, WaitReason.FINISHED)
    if facts.final_pending:
        return Wait(None, WaitReason.FINAL_PENDING)
    return TriggerNow(FINAL, "end of input")


def _periodic(policy: TriggerPolicy, facts: TriggerFacts) -> TriggerNow | Wait:
    if policy.interval_ms is None:
        return Wait(None, WaitReason.DISABLED)
    last = facts.last_trigger_ms
    since_ms, wait_ms = (facts.started_ms, facts.initial_delay_ms) if last is None else (last, policy.interval_ms)
    # Barriers go into batches, so the batch that begins nearest to the time is the one; if it were the first behind it,
    # checkpoints would on average be half a batch late, and each would put off the next.
    if _is_within(since_ms, wait_ms - facts.turn_ms // 2, facts.now_ms):
        return Wait(since_ms + wait_ms, WaitReason.INTERVAL)
    completed_ms = facts.last_completion_ms
    pause_ms = max(policy.min_pause_ms, _REST_MS if facts.idle else 0)
    if completed_ms is not None and _is_within(completed_ms, pause_ms, facts.now_ms):
        return Wait(completed_ms + pause_ms, WaitReason.MIN_PAUSE)
    return _scheduled(policy.savepoints, facts) or TriggerNow(CHECKPOINT, "interval")


def _scheduled(savepoints: SavepointSchedule | None, facts: TriggerFacts) -> TriggerNow | None:
    """A savepoint in the place of a checkpoint, if it is time for one. The first one is at once."""
    last = facts.last_savepoint_ms
    if savepoints is None or (last is not None and _is_within(last, savepoints.every_ms, facts.now_ms)):
        return None
    return TriggerNow(SAVEPOINT, SCHEDULE, savepoints.target(facts.now_ms))


def _is_within(since_ms: int, wait_ms: int, now_ms: int) -> bool:
    """Whether the wait is not over. What lies ahead was noted before the clock was set back: nobody waits for it."""
    return since_ms <= now_ms < since_ms + wait_ms


@dataclass(frozen=True)
class Expire:
    """Write ``aborted/checkpoint`` (cause EXPIRED) and send its cancel marker with the next batch."""

    checkpoint: int
    reason: str


def expired(policy: TriggerPolicy, triggered_ms: int, started_ms: int, now_ms: int) -> str | None:
    """Why a checkpoint that is not complete ``now_ms`` takes too long, if it does.

    Its age counts from its trigger, or from the start of the generation that goes on with it: while nobody ran the
    job, the checkpoint was not late.
    """
    age_ms = now_ms - max(triggered_ms, started_ms)
    if age_ms <= policy.timeout_ms:
        return None
    return f"not complete {age_ms} ms after its trigger (timeout {policy.timeout_ms} ms)"


def decide_expiry(
    policy: TriggerPolicy, pending: Iterable[PendingTrigger], now_ms: int, started_ms: int = 0
) -> tuple[Expire, ...]:
    """Pending checkpoints that took longer than ``timeout``. A late acknowledgement finds them DISCARDED."""
    late = [(p.checkpoint, expired(policy, p.triggered_ms, started_ms, now_ms)) for p in pending]
    return tuple(Expire(k, reason) for k, reason in late if reason is not None)


def decide_lost(open_triggers: Iterable[TriggerRecord], generation: int, leader_epoch: int) -> tuple[int, ...]:
    """Driver, first source, once after a start: triggers of earlier generations that it never injected.

    ``leader_epoch``: the last barrier in its newest planned offset, plus one. Another source may have injected such
    a checkpoint already: write ``aborted/K`` (cause LOST) and send its cancel marker with the next batch.
    """
    return tuple(
        sorted(t.checkpoint for t in open_triggers if t.generation < generation and t.checkpoint >= leader_epoch)
    )


# --- failures ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FailureCounter:
    """Failed checkpoints in a row, in this generation. A completed one starts it anew; each id counts once."""

    tolerable: int
    failed: frozenset[int] = frozenset()

    def add(self, aborted: Iterable[AbortedRecord], generation: int) -> FailureCounter:
        """Count what counts: failures and expiries; not what was declined for its rows held back, subsumed, lost in a
        restart or withdrawn."""
        more = {a.checkpoint for a in aborted if a.cause in (FAILED, EXPIRED) and a.generation == generation}
        return replace(self, failed=self.failed | more)

    def completed(self, checkpoint: int) -> FailureCounter:
        return replace(self, failed=frozenset(k for k in self.failed if k > checkpoint))

    @property
    def exceeded(self) -> bool:
        return len(self.failed) > self.tolerable


# --- retention ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Retention:
    """``drop``: checkpoints whose records and manifests may go. ``keep``: the others, oldest first.

    State files of epochs <= ``files_up_to`` that neither the newest checkpoint, nor ``files_up_to``, nor any of
    ``keep`` names are garbage. It is the completion before the newest one: a replay of the batch that completed the
    newest starts from state that may still name any file of a later epoch. None: no file may go yet.
    """

    keep: tuple[int, ...]
    drop: tuple[int, ...]
    files_up_to: int | None


def plan_retention(
    completed: Iterable[int],
    committed: Iterable[int],
    retain: int,
    previous: int | None = None,
    pinned: Iterable[int] = (),
    savepoints: Iterable[int] = (),
) -> Retention:
    """What may go. Never a checkpoint that is not committed, is ``pinned``, is the newest of all, or is among the
    newest ``retain`` that are no savepoints: those are kept elsewhere and do not count (Flink: FLIP-203).

    ``previous``: the completion the newest one was built on. ``pinned``: the one that a fresh Spark location
    restored, as long as it may have to repeat its first batch.
    """
    ids = sorted(set(completed))
    done, pins = set(committed), set(pinned)
    elsewhere = set(savepoints)
    counted = [k for k in ids if k not in elsewhere]
    kept = {*counted[-max(retain, 1) :], *ids[-1:], *pins}
    drop = tuple(k for k in ids if k in done and k not in kept)
    return Retention(tuple(k for k in ids if k not in drop), drop, previous)


__all__ = [
    "CHECKPOINT",
    "FINAL",
    "SAVEPOINT",
    "SCHEDULE",
    "AckResult",
    "Expire",
    "FailureCounter",
    "ManualRequest",
    "PendingCheckpoint",
    "PendingTrigger",
    "Retention",
    "SavepointSchedule",
    "TriggerFacts",
    "TriggerNow",
    "TriggerPolicy",
    "Wait",
    "WaitReason",
    "decide_expiry",
    "decide_lost",
    "decide_trigger",
    "expired",
    "merge_stats",
    "plan_retention",
]
