"""Barrier alignment of one key group: which rows may be processed now, and when to snapshot.

Theory of operation
===================

A row's *label* is the lowest checkpoint whose barrier can still be behind it: the last barrier its input injected,
plus one. The key group is in *epoch* E: every checkpoint below E is finished or given up here. One call sees all
rows and control events of a batch, so only labels and weights count, never the order inside the batch.

Every input stands for ``key_groups`` shares of weight; barrier K is *aligned* when the weights received for it, plus
those of inputs that finished before it, sum to the total. After Flink's SingleCheckpointBarrierHandler (exactly once)
and CheckpointBarrierTracker (at least once).

Several checkpoints may be under way. Every input delivers its barriers in the order of the checkpoints, so a newer
barrier on an input that has delivered the older one *waits its turn* behind the rows held back there, as in a blocked
channel of Flink. An older one is given up when a newer one is aligned: then some input has left it out.

Checkpoints are looked at oldest first. What has arrived for one by now gives its row, what is left of those before it
its column; E is the epoch at that moment:

=====================  =========================================  ==========================================
checkpoint K           no older one is pending                    an older one is pending
=====================  =========================================  ==========================================
K < E                  ignored                                    cannot be
cancelled              ForwardCancel(K), E := K + 1               cancelled
weights incomplete     pending                                    pending
weights complete       Process(K), Snapshot(K), E := K + 1        ForwardCancel(older), then as on the left
held bytes over limit  Declined(K), ForwardCancel(K), E := K + 1  pending
=====================  =========================================  ==========================================

*Ignored*: it is finished or given up here. *Pending*: rows with a label above E are held back. What is *cancelled* and
waits is given up when the older ones are finished or given up. *Older*: all that is pending or waits before K. Weight
that finished with a label <= K counts for K as if its barrier had arrived. Held bytes are looked at last, as often as
there are more than ``max_buffered_bytes``.

Giving up K sets E to K + 1, which releases the rows behind K's barriers; nothing is lost, they belong to the next
checkpoint then. A cancel is passed on exactly when E advances without a snapshot: rows leave here with label E, and
whoever is downstream would hold them back, waiting for a barrier K that never comes.

At least once differs in one point: rows are processed whatever their label, and leave with label E.

A source whose lanes finish keeps one lane alive for its barriers: an operator learns of a checkpoint from a barrier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_ckpt.errors import ProtocolBugError
from spark_ckpt.protocol import codec
from spark_ckpt.protocol.codec import Bit, Count, optional
from spark_ckpt.protocol.weights import Arrivals, ended_before

EXACTLY_ONCE = "exactly_once"
AT_LEAST_ONCE = "at_least_once"


@dataclass(frozen=True)
class AlignerConfig:
    """``total_weight`` is ``inputs * key_groups``; ``max_buffered_bytes`` None: no limit."""

    total_weight: int
    mode: str = EXACTLY_ONCE
    max_buffered_bytes: int | None = None


@dataclass(frozen=True)
class PendingBarrier:
    """A checkpoint some of whose barriers have arrived, the first one at ``first_ms``."""

    checkpoint: Count
    weight: Count
    triggered_ms: int
    first_ms: int
    held_bytes: Count = 0
    """The most that was held back at the end of a batch while it was pending."""
    drain: Bit = False


codec.as_row(PendingBarrier, shortest=5)


@dataclass(frozen=True)
class AlignerState:
    """What survives a batch. ``finished`` pairs a label with the weight that counts from that checkpoint on.

    ``cancelled``: checkpoints that are given up as soon as the older pending ones are out of their way.
    """

    epoch: Count
    pending: tuple[PendingBarrier, ...] = ()
    finished: tuple[tuple[Count, Count], ...] = ()
    cancelled: tuple[Count, ...] = optional(())

    @classmethod
    def restored(cls, checkpoint: int) -> AlignerState:
        """The state right behind ``checkpoint``'s barrier; 0 for a job's first start."""
        return cls(checkpoint + 1)

    def to_json(self) -> dict[str, Any]:
        return codec.write(self)

    @classmethod
    def from_json(cls, value: Any, where: str = "alignment state") -> AlignerState:
        return codec.read(cls, value, where)


@dataclass(frozen=True)
class BatchInput:
    """What one batch brought to the key group.

    ``barriers`` maps checkpoint to (weight, triggered_ms), ``finished`` the label of ``Finished`` rows to their
    weight. ``bytes_by_label`` counts the rows held back so far and those newly arrived, by label. ``drains``: those of
    the barriers behind which the event time is at its end.
    """

    now_ms: int
    barriers: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    cancels: frozenset[int] = frozenset()
    finished: Mapping[int, int] = field(default_factory=dict)
    bytes_by_label: Mapping[int, int] = field(default_factory=dict)
    drains: frozenset[int] = frozenset()

    @classmethod
    def of(cls, now_ms: int, arrived: Arrivals, bytes_by_label: Mapping[int, int]) -> BatchInput:
        barriers = {k: (b.weight, b.triggered_ms) for k, b in arrived.barriers.items()}
        drains = frozenset(k for k, b in arrived.barriers.items() if b.drain)
        return cls(now_ms, barriers, frozenset(arrived.cancels), arrived.finished, bytes_by_label, drains)


@dataclass(frozen=True)
class Process:
    """Process every row with label <= ``up_to`` (None: every row). Its output leaves with label ``epoch``."""

    up_to: int | None
    epoch: int


@dataclass(frozen=True)
class Snapshot:
    """Snapshot, acknowledge and forward barrier ``checkpoint``. ``aligned_from_ms``: its first barrier's arrival.
    ``drain``: first call what waits for the event time, which is at its end now.
    """

    checkpoint: int
    triggered_ms: int
    aligned_from_ms: int
    held_bytes: int
    drain: bool = False


@dataclass(frozen=True)
class ForwardCancel:
    checkpoint: int


@dataclass(frozen=True)
class Declined:
    """Tell the coordinator that this key group could not take ``checkpoint``."""

    checkpoint: int
    reason: str
    held_bytes: int


@dataclass(frozen=True)
class Hold:
    """Rows with these labels wait for the next batch."""

    epochs: tuple[int, ...]
    bytes: int


Action = Process | Snapshot | ForwardCancel | Declined | Hold


def plan(state: AlignerState, config: AlignerConfig, batch: BatchInput) -> tuple[AlignerState, tuple[Action, ...]]:
    """What to do with a batch, in order. Executor: once a key group and batch; the same again when it is replayed.

    Raises ``ProtocolBugError`` when more weight arrives than there is.
    """
    state = _add_finished(state, batch.finished)
    if not state.pending and not batch.barriers and not batch.cancels:
        return _process(state, config, batch, ())
    pending = _merge(state, batch)
    cancels = {c for c in (*batch.cancels, *state.cancelled) if c >= state.epoch}
    state, actions = _advance(replace(state, pending=(), cancelled=()), config, pending, cancels)
    return _process(state, config, batch, actions)


def _add_finished(state: AlignerState, finished: Mapping[int, int]) -> AlignerState:
    if not finished:
        return state
    total: dict[int, int] = dict(state.finished)
    for label, weight in finished.items():
        # Labels up to the epoch count for every checkpoint that can still come: one entry is enough.
        label = max(label, state.epoch)
        total[label] = total.get(label, 0) + weight
    return replace(state, finished=tuple(sorted(total.items())))


def _merge(state: AlignerState, batch: BatchInput) -> dict[int, PendingBarrier]:
    pending = {p.checkpoint: p for p in state.pending}
    for checkpoint, (weight, triggered_ms) in batch.barriers.items():
        if checkpoint < state.epoch:
            continue
        old = pending.get(checkpoint) or PendingBarrier(checkpoint, 0, triggered_ms, batch.now_ms)
        pending[checkpoint] = replace(old, weight=old.weight + weight, drain=old.drain or checkpoint in batch.drains)
    return pending


def _advance(
    state: AlignerState, config: AlignerConfig, pending: dict[int, PendingBarrier], cancels: set[int]
) -> tuple[AlignerState, tuple[Action, ...]]:
    """Go through the checkpoints, oldest first: snapshot what is aligned, keep what waits, give up what cannot be."""
    actions: list[Action] = []
    for k in sorted(set(pending) | cancels):
        barrier = pending.get(k)
        if barrier is not None and k not in cancels and _aligned(state, config, barrier):
            actions += _given_up(state)
            actions += [Process(k if config.mode == EXACTLY_ONCE else None, state.epoch), _snapshot(barrier)]
            state = replace(state, epoch=k + 1, pending=(), cancelled=())
        elif k in cancels and not state.pending:
            actions.append(ForwardCancel(k))
            state = replace(state, epoch=k + 1)
        elif k in cancels:
            state = replace(state, cancelled=(*state.cancelled, k))
        elif barrier is not None:
            state = replace(state, pending=(*state.pending, barrier))
    return state, tuple(actions)


def _given_up(state: AlignerState) -> list[Action]:
    """Markers for everything that still waits, oldest first."""
    return [ForwardCancel(k) for k in sorted({*(p.checkpoint for p in state.pending), *state.cancelled})]


def _aligned(state: AlignerState, config: AlignerConfig, barrier: PendingBarrier) -> bool:
    finished = ended_before(barrier.checkpoint, state.finished)
    weight = barrier.weight + finished
    if weight > config.total_weight:
        raise ProtocolBugError(
            f"checkpoint {barrier.checkpoint}: expected barriers of weight {config.total_weight}, found {weight} "
            f"({finished} of it finished); the operator's inputs were wired wrongly"
        )
    return weight == config.total_weight


def _snapshot(barrier: PendingBarrier) -> Snapshot:
    return Snapshot(barrier.checkpoint, barrier.triggered_ms, barrier.first_ms, barrier.held_bytes, barrier.drain)


def _process(
    state: AlignerState, config: AlignerConfig, batch: BatchInput, actions: tuple[Action, ...]
) -> tuple[AlignerState, tuple[Action, ...]]:
    """Process what may be processed now and hold back the rest, or decline if that is too much."""
    if config.mode == AT_LEAST_ONCE:
        return state, (*actions, Process(None, state.epoch))
    labels, size = _behind(batch, state.epoch)
    while state.pending and config.max_buffered_bytes is not None and size > config.max_buffered_bytes:
        state, declined = _decline(state, size, config.max_buffered_bytes)
        actions = (*actions, *declined)
        labels, size = _behind(batch, state.epoch)
    actions = (*actions, Process(state.epoch, state.epoch))
    if labels:
        pending = tuple(replace(p, held_bytes=max(p.held_bytes, size)) for p in state.pending)
        return replace(state, pending=pending), (*actions, Hold(labels, size))
    return state, actions


def _decline(state: AlignerState, size: int, limit: int) -> tuple[AlignerState, tuple[Action, ...]]:
    """Decline the oldest checkpoint, which releases the rows up to the next one's barriers; cancelled ones behind it go
    with it."""
    k, rest = state.pending[0].checkpoint, state.pending[1:]
    reason = f"held back {size} bytes of rows while aligning, more than {limit}"
    actions: list[Action] = [Declined(k, reason, size), ForwardCancel(k)]
    epoch, cancelled = k + 1, list(state.cancelled)
    while cancelled and not (rest and rest[0].checkpoint < cancelled[0]):
        epoch = cancelled.pop(0) + 1
        actions.append(ForwardCancel(epoch - 1))
    return replace(state, epoch=epoch, pending=rest, cancelled=tuple(cancelled)), tuple(actions)


def _behind(batch: BatchInput, epoch: int) -> tuple[tuple[int, ...], int]:
    labels = tuple(sorted(label for label in batch.bytes_by_label if label > epoch))
    return labels, sum(batch.bytes_by_label[label] for label in labels)
