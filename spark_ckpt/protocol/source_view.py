"""What a source knows while its query runs, how it looks what became of its checkpoints, and when it stands still."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_ckpt.protocol.checkpoint_state import CheckpointState, Name, state_of
from spark_ckpt.protocol.coordinator import TriggerPolicy, Wait
from spark_ckpt.protocol.records import TriggerRecord
from spark_ckpt.protocol.source_offset import PendingTrigger, SourceOffset
from spark_ckpt.protocol.source_steps import Look, Looked, ManualRequest, SourceStep

LOOK_MS = 50
"""How often an idle source looks whether its pending checkpoints are complete."""


@dataclass(frozen=True)
class SourceRole:
    """What does not change while the query runs. ``others``: the sources that follow, known to the leader.

    ``available_now``: what was there at the start is the end of the input. ``poll_ms``: how often an idle source looks
    for requests and triggers. ``batch_behind_rows``: as in Spark, where rows may have moved the watermark, a
    batch follows that lets time-outs see it. ``tells``: user functions want to know of completed checkpoints.
    ``inherited``: the triggers of earlier generations that were open when this one started (None: not known).
    ``idle_ms``: a source that nothing comes from for so long is idle (None: none is). ``closes_windows``: windows end
    at the end of the input. ``can_drain``: rows stop coming when the sources stand still. ``last``: it injects a
    checkpoint only when all others have (its rows have no epochs, see :data:`spark_ckpt.types.BEFORE_BARRIERS`).
    ``marks_reads``: its offsets say whether the inner source moved. ``end``: where the source is to end in this run, in
    its own terms: it never passes it.
    """

    source: str
    leader: bool
    generation: int
    started_ms: int
    initial_delay_ms: int = 0
    poll_ms: int = 500
    others: frozenset[str] = frozenset()
    available_now: bool = False
    batch_behind_rows: bool = False
    tolerable_failures: int = 0
    tells: bool = False
    policy: TriggerPolicy = field(default_factory=TriggerPolicy)
    inherited: frozenset[int] | None = None
    idle_ms: int | None = None
    closes_windows: bool = False
    can_drain: bool = True
    last: bool = False
    marks_reads: bool = False
    end: Mapping[str, Any] | None = None

    def arrived(self, inner: Any, still: bool) -> bool:
        """Whether the source, which stands at ``inner``, is where it is to end; ``still``: nothing new is there."""
        if self.end is not None:
            return all(inner.get(name) == value for name, value in self.end.items())
        return self.available_now and still


@dataclass(frozen=True)
class SourceView:
    """What a source remembers between two calls. Never a source of truth: after a restart it is read anew."""

    newest_id: int
    completed: int
    last_completion_ms: int | None
    taken: frozenset[str]
    last_savepoint_ms: int | None = None
    last_trigger_ms: int | None = None
    aborted: frozenset[int] = frozenset()
    released: frozenset[str | None] = frozenset()
    requests: tuple[ManualRequest, ...] = ()
    drained: frozenset[str] = frozenset()
    final: int | None = None
    announced: bool = False
    behind: bool = False
    looked_for_lost: bool = False
    looked_ms: int | None = None
    asked_ms: int | None = None
    followed_ms: int | None = None
    injected: int = 0
    """What all others had injected when it looked for triggers last. Kept only by the one that is to be the last."""
    waiting: Wait | None = None
    moved_ms: int | None = None
    """When something came last, or the counting began. Kept only where sources fall idle."""
    called_ms: int | None = None
    """When the leader was asked for an offset before."""
    paused: bool = False
    """Nothing is read until somebody resumes the job. Checkpoints go on."""

    def state(self, checkpoint: int) -> CheckpointState:
        """Of a checkpoint that was triggered, as far as the source knows: of complete ones it knows the newest."""
        return state_of(
            Name.COMPLETION if checkpoint == self.completed else Name.FREE,
            aborted=checkpoint in self.aborted,
            newer=checkpoint < self.completed,
        )


@dataclass(frozen=True)
class Injection:
    """What goes into the next offset besides what is read. ``barrier`` None: no barrier is injected."""

    barrier: PendingTrigger | None = None
    cancel: tuple[int, ...] = ()


@dataclass(frozen=True)
class Position:
    """Where the inner source stands now. ``frozen``: nothing may be read. ``drained``: see ``SourceOffset``;
    ``injected``: see ``InnerRead``."""

    inner: Any
    ended: bool
    frozen: bool
    drained: bool
    injected: int = 0


def is_frozen(start: SourceOffset, generation: int, aborted: Iterable[int], released: Collection[str | None]) -> bool:
    """Whether nothing may be read: the barrier of a stop-with-savepoint of this generation went by.

    Not if it was aborted, withdrawn, or could not be written: then whoever asked got an error, and the query goes on
    (Flink restarts the job there; its sources have stopped, ours have not). A later generation was started to run.

    A drain is for good: behind its barrier operators have put out what cannot be taken back.
    """
    if start.drain is not None:
        return True
    if start.terminal != generation:
        return False
    return start.epoch - 1 not in aborted and start.request not in released


def look(
    role: SourceRole, view: SourceView, start: SourceOffset, now_ms: int, fresh: bool = False
) -> Generator[SourceStep, Any, SourceView]:
    """Look what became of what waits; now and then, or if ``fresh`` at once."""
    waits = [p for p in start.pending if view.state(p.checkpoint) is CheckpointState.PENDING]
    ids, requests = [p.checkpoint for p in waits], [p.request for p in waits if p.request is not None]
    if start.drain is None and is_frozen(start, role.generation, view.aborted, view.released):
        ids, requests = [*ids, start.epoch - 1], [*requests, *([start.request] if start.request else [])]
        # What was there at the start is to be read, unless the query was stopped: a stop that failed is to be seen now,
        # or Spark ends the query because no source has anything new.
        fresh = fresh or role.available_now
    if not ids or not (fresh or due(view.looked_ms, now_ms, LOOK_MS)):
        return view
    found: Looked = yield Look(tuple(dict.fromkeys(ids)), tuple(dict.fromkeys(requests)))
    new = found.completed > view.completed
    return replace(
        view,
        looked_ms=now_ms,
        completed=max(found.completed, view.completed),
        last_completion_ms=now_ms if new else view.last_completion_ms,
        aborted=view.aborted | found.aborted,
        released=view.released | found.released,
    )


def sort_out(view: SourceView, start: SourceOffset) -> tuple[tuple[PendingTrigger, ...], tuple[int, ...]]:
    """(what is neither complete nor aborted, what was aborted and has no cancel marker yet).

    An aborted checkpoint leaves ``pending`` with the offset that carries its marker. A crash before that offset is
    logged: it is still pending there, and gets its marker from the next reader. Every source tells of what it
    injected, because operators that the leader does not reach wait for it too (Flink: CancelCheckpointMarker).
    """
    later = [p for p in start.pending if p.checkpoint > view.completed]
    pending = tuple(p for p in later if not view.state(p.checkpoint).given_up)
    return pending, tuple(p.checkpoint for p in later if view.state(p.checkpoint).given_up)


def due(last_ms: int | None, now_ms: int, every_ms: int) -> bool:
    """Storage is read now and then, not with every poll. A clock that was set back does not stop it."""
    return last_ms is None or now_ms - last_ms >= every_ms or now_ms < last_ms


def pending_of(trigger: TriggerRecord, generation: int) -> PendingTrigger:
    """``trigger`` as it stands in the offset that injects it. An earlier generation's stop does not stop this one, its
    drain does: other sources may have injected it.
    """
    terminal = trigger.terminal and trigger.generation == generation
    return PendingTrigger(
        trigger.checkpoint, trigger.time_ms, terminal, trigger.request, trigger.deadline_ms, trigger.drain
    )
