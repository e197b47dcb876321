"""The sink commit's picture of the job: derived from the records, never a source of truth itself."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_ckpt.protocol.checkpoint_state import CheckpointState, Name, state_of
from spark_ckpt.protocol.coordinator import FailureCounter, PendingCheckpoint, TriggerPolicy, expired
from spark_ckpt.protocol.events import Cancel, Decline, Event, Flushed, OperatorAck, SourceAck
from spark_ckpt.protocol.records import SAVEPOINT, AbortedRecord, BatchRecord, CompletionRecord, Topology
from spark_ckpt.protocol.steps import Step
from spark_ckpt.protocol.weights import ended_before
from spark_ckpt.types import CheckpointId, Committable


@dataclass(frozen=True)
class JobView:
    """``last``: the completion that the next one builds on. ``open``: batch records behind it, trimmed to its later
    epochs. ``pending``: who acknowledged what, folded from ``open``. ``completed``: ids of the completion records.
    ``own``: those of them that this generation triggered. ``savepoints``: those that are some. ``garbage``: what
    replaced attempts of open batches staged. ``abandoned``: what was given up by hand, as (checkpoint, sink).
    ``started_ms``: when this generation started; ``adopt``: the completed checkpoint whose replay it was told to adopt
    then. ``unread``: ids whose ``checkpoints/K`` is damaged: a good copy of it may come back. ``targets``: where each
    sink writes to, in words.
    """

    job: str
    topology: Topology
    generation: int
    origin: int
    last: CompletionRecord | None = None
    restored_from: int | None = None
    completed: tuple[int, ...] = ()
    own: frozenset[int] = frozenset()
    committed: frozenset[int] = frozenset()
    aborted: frozenset[int] = frozenset()
    open: Mapping[int, BatchRecord] = field(default_factory=dict)
    pending: Mapping[int, PendingCheckpoint] = field(default_factory=dict)
    failures: FailureCounter = field(default_factory=lambda: FailureCounter(0))
    retain: int = 1
    garbage: tuple[Committable, ...] = ()
    life: str = ""
    abandoned: frozenset[tuple[int, str]] = frozenset()
    savepoints: frozenset[int] = frozenset()
    timeout_ms: int | None = None
    started_ms: int = 0
    adopt: int | None = None
    unread: frozenset[int] = frozenset()
    targets: Mapping[str, str] = field(default_factory=dict)

    @property
    def last_id(self) -> int:
        return self.last.checkpoint if self.last else 0

    @property
    def oldest(self) -> CheckpointId | None:
        """The oldest checkpoint that a start, of whatever is restored, may commit again; None if that is not known.

        A start commits what has a completion record. One that was dropped is void or gone for good, and what comes
        with a savepoint has nothing to commit.
        """
        known = (*self.completed, *self.unread)
        return CheckpointId(min(known)) if self.completed else None

    def state(self, checkpoint: int) -> CheckpointState:
        """Of a checkpoint that was triggered: nobody asks for others here."""
        is_complete = checkpoint == self.last_id or checkpoint in self.completed
        return state_of(
            Name.COMPLETION if is_complete else Name.FREE,
            committed=is_complete and checkpoint in self.committed,
            aborted=checkpoint in self.aborted,
            newer=checkpoint < self.last_id,
        )

    def finished_weight(self, checkpoint: int) -> int:
        """Weight at the sink that counts as arrived for ``checkpoint`` because its input ended before it."""
        before = self.last.finished_weight if self.last and self.last.origin == self.origin else 0
        return before + sum(ended_before(checkpoint, r.finished.items()) for r in self.open.values())

    def too_old(self, triggered_ms: int, now_ms: int) -> str | None:
        """Why a checkpoint that is about to complete comes too late, if it does."""
        if self.timeout_ms is None:
            return None
        return expired(TriggerPolicy(timeout_ms=self.timeout_ms), triggered_ms, self.started_ms, now_ms)

    def ready(self) -> tuple[CheckpointId, ...]:
        """Fully acknowledged checkpoints to complete now, oldest first: savepoints are not told apart here."""
        return tuple(
            CheckpointId(k)
            for k, p in sorted(self.pending.items())
            if not self.state(k).over and not p.missing(self.finished_weight(k))
        )

    def with_batch(self, record: BatchRecord) -> JobView:
        """The view after ``record`` was written, in place of an earlier one of the same batch."""
        replaced = record.batch in self.open
        view = replace(self, open={**self.open, record.batch: record})
        if replaced:
            # Acknowledgements of the replaced attempt must not count: fold anew.
            return view._fold(view.open[b] for b in sorted(view.open))
        return replace(view, pending=_acknowledge(view, dict(view.pending), record))

    def with_completion(self, record: CompletionRecord) -> JobView:
        """The view right after ``record`` was created."""
        return replace(
            self,
            last=record,
            completed=tuple(sorted({*self.completed, record.checkpoint})),
            savepoints=self.savepoints | ({record.checkpoint} if record.kind == SAVEPOINT else set()),
            own=self.own | ({record.checkpoint} if record.triggered_by == self.generation else set()),
            open=_open(self.open.values(), record),
            pending={k: p for k, p in self.pending.items() if k > record.checkpoint},
            failures=self.failures.completed(record.checkpoint),
        )

    def with_aborted(self, checkpoints: Iterable[int]) -> JobView:
        aborted = self.aborted | frozenset(checkpoints)
        return replace(self, aborted=aborted, pending={k: p for k, p in self.pending.items() if k not in aborted})

    def flushed(self, uid: str, checkpoint: int) -> tuple[Flushed, ...]:
        """What ``uid`` wrote since ``last``, up to ``checkpoint``, in batch order."""
        found = (e for b in sorted(self.open) for e in self.open[b].events if isinstance(e, Flushed))
        return tuple(e for e in found if e.uid == uid and e.epoch <= checkpoint)

    def _fold(self, records: Iterable[BatchRecord]) -> JobView:
        pending: dict[int, PendingCheckpoint] = {}
        for r in records:
            pending = _acknowledge(self, pending, r)
        return replace(self, pending=pending)


Steps = Generator[Step, Any, JobView]
"""Yields steps, is sent their results, and returns the next view."""


def rebuild(
    *,
    job: str,
    topology: Topology,
    generation: int,
    origin: int,
    restored: CompletionRecord | None,
    completions: Iterable[CompletionRecord],
    batches: Iterable[BatchRecord],
    committed: Iterable[int],
    aborted: Iterable[AbortedRecord],
    voided: Iterable[int] = (),
    tolerable_failures: int = 0,
    retain: int = 1,
    life: str = "",
    abandoned: Iterable[tuple[int, str]] = (),
    timeout_ms: int | None = None,
    started_ms: int = 0,
    adopt: int | None = None,
    unread: Iterable[int] = (),
    targets: Mapping[str, str] | None = None,
) -> JobView:
    """The view after a start or a crash. ``restored``: what ``origin`` began from (None: nothing).

    ``voided``: ids whose ``checkpoints/K`` is a void record. Of several records of one batch the newest generation's
    counts. Records may hold what is long complete (a completion does not rewrite them); it is trimmed away here.
    """
    known = list(completions)
    own = [c for c in known if c.origin == origin]
    last = max(own, key=lambda c: c.checkpoint) if own else restored
    aborted = tuple(aborted)
    view = JobView(
        job=job,
        topology=topology,
        generation=generation,
        origin=origin,
        last=last,
        restored_from=restored.checkpoint if restored else None,
        completed=tuple(sorted(c.checkpoint for c in known)),
        own=frozenset(c.checkpoint for c in known if c.triggered_by == generation),
        committed=frozenset(committed),
        aborted=frozenset(a.checkpoint for a in aborted) | frozenset(voided),
        failures=FailureCounter(tolerable_failures).add(aborted, generation).completed(last.checkpoint if last else 0),
        retain=retain,
        life=life,
        abandoned=frozenset(abandoned),
        savepoints=frozenset(c.checkpoint for c in known if c.kind == SAVEPOINT),
        timeout_ms=timeout_ms,
        started_ms=started_ms,
        adopt=adopt,
        unread=frozenset(unread),
        targets=targets or {},
    )
    newest, replaced = _attempts(r for r in batches if r.origin == origin)
    kept = {c for r in newest for c in r.staged}
    # Epochs up to the last completion are settled; what crashes left of them is for the sinks' gc.
    garbage = tuple(c for r in replaced for c in r.staged if c not in kept and c.epoch > view.last_id)
    view = replace(view, garbage=garbage, open=_open(newest, last if own else None))
    return view._fold(view.open[b] for b in sorted(view.open))


def _attempts(records: Iterable[BatchRecord]) -> tuple[list[BatchRecord], list[BatchRecord]]:
    """The newest attempt of each batch, in batch order, and those it replaced."""
    newest: dict[int, BatchRecord] = {}
    replaced: list[BatchRecord] = []
    for r in sorted(records, key=lambda r: (r.batch, r.generation)):
        replaced += [newest[r.batch]] if r.batch in newest else []
        newest[r.batch] = r
    return list(newest.values()), replaced


def trim(record: BatchRecord, checkpoint: int) -> BatchRecord:
    """What ``record`` holds of epochs behind ``checkpoint``."""
    return replace(
        record,
        staged=tuple(c for c in record.staged if c.epoch > checkpoint),
        events=tuple(e for e in record.events if _epoch(e) > checkpoint),
        barriers={k: w for k, w in record.barriers.items() if k > checkpoint},
        finished={k: w for k, w in record.finished.items() if k > checkpoint},
    )


def is_empty(record: BatchRecord) -> bool:
    return not (record.staged or record.events or record.barriers or record.finished)


def _open(records: Iterable[BatchRecord], last: CompletionRecord | None) -> dict[int, BatchRecord]:
    if last is None:
        return {r.batch: r for r in records}
    trimmed = [trim(r, last.checkpoint) for r in records if r.batch >= last.batches_from]
    return {r.batch: r for r in trimmed if not is_empty(r)}


def _epoch(event: Event) -> int:
    if isinstance(event, Flushed):
        return event.epoch
    if isinstance(event, SourceAck | OperatorAck | Decline | Cancel):
        return event.checkpoint
    return 0


def _acknowledge(
    view: JobView, pending: dict[int, PendingCheckpoint], record: BatchRecord
) -> dict[int, PendingCheckpoint]:
    """``pending`` plus what ``record`` says; what comes too late or from a stranger changes nothing."""

    def of(checkpoint: int) -> PendingCheckpoint:
        return pending.get(checkpoint) or PendingCheckpoint(
            checkpoint, view.topology, discarded=view.state(checkpoint).over
        )

    for event in record.events:
        if isinstance(event, SourceAck | OperatorAck):
            pending[event.checkpoint], _ = of(event.checkpoint).acknowledge(event)
    for checkpoint, weight in record.barriers.items():
        pending[checkpoint] = of(checkpoint).barrier(weight)
    return {k: p for k, p in pending.items() if not view.state(k).over}
