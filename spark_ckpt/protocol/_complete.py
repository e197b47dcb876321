"""Completes checkpoints that everyone has acknowledged, or gives up those that are late, lost or cannot be written.

Part of the sink's commit: see :mod:`spark_ckpt.protocol.commit` for the order of all steps.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace
from typing import Any

from spark_ckpt.errors import RefusedError
from spark_ckpt.protocol._fencing import check_created, fence, take_name
from spark_ckpt.protocol._give_up import abort_once, write_aborted
from spark_ckpt.protocol._refusal import told
from spark_ckpt.protocol._view import JobView, Steps, is_empty, trim
from spark_ckpt.protocol.coordinator import merge_stats
from spark_ckpt.protocol.migration import restored_table
from spark_ckpt.protocol.publish import by_sink, publish
from spark_ckpt.protocol.records import (
    EXPIRED,
    FAILED,
    LOST,
    REJECTED_ROWS,
    SAVEPOINT,
    SINK_REFUSED,
    SUBSUMED,
    CompletionRecord,
    TableRef,
    TriggerRecord,
    VoidRecord,
)
from spark_ckpt.protocol.setback import shown_after, shown_by
from spark_ckpt.protocol.steps import (
    CommitState,
    CreateCompletion,
    Created,
    CreateVoid,
    ReadTrigger,
    SinkRefused,
    Step,
    StorageFailed,
    Tried,
    TrySink,
    TrySinks,
)
from spark_ckpt.types import CheckpointId


def complete_ready(view: JobView, batch: int, now_ms: int) -> Generator[Step, Any, tuple[JobView, bool]]:
    """Complete what everyone has acknowledged; also: whether a checkpoint failed or took too long."""
    view, triggers, expired = yield from _triggers(view, batch, now_ms)
    ready = _to_complete(triggers)
    for trigger in ready:
        view = yield from _complete(view, trigger, batch, now_ms)
    return view, expired or any(t.checkpoint in view.aborted for t in ready)


def _triggers(
    view: JobView, batch: int, now_ms: int
) -> Generator[Step, Any, tuple[JobView, tuple[TriggerRecord, ...], bool]]:
    """(view, triggers of the fully acknowledged checkpoints that were not aborted meanwhile, oldest first, whether one
    took too long).

    A checkpoint's age is looked at here too: with one source, the commit is the first to know that it is late. One
    whose trigger is lost is given up: nobody knows any more whom it was for, and the next one takes its rows over.
    """
    out: list[TriggerRecord] = []
    late = False
    for checkpoint in view.ready():
        trigger, aborted = yield ReadTrigger(checkpoint)
        if trigger is None and aborted is None:
            yield from fence(view)  # else a successor dropped it, with all that it belonged to
            yield from take_name(view, checkpoint, trigger, now_ms)
            reason = f"triggers/{checkpoint} is damaged or missing"
            view = yield from write_aborted(view, checkpoint, LOST, reason, batch, now_ms)
            continue
        why = None if trigger is None else view.too_old(trigger.time_ms, now_ms)
        if aborted is not None:
            view = view.with_aborted([checkpoint])
        elif why is not None:
            yield from take_name(view, checkpoint, trigger, now_ms)
            view, late = (yield from write_aborted(view, checkpoint, EXPIRED, why, batch, now_ms, trigger)), True
        else:
            out.append(trigger)
    return view, tuple(out), late


def _to_complete(ready: tuple[TriggerRecord, ...]) -> tuple[TriggerRecord, ...]:
    """The newest, and every savepoint: somebody waits for it under its own name. The newest subsumes the others."""
    return tuple(t for t in ready if t is ready[-1] or t.kind == SAVEPOINT)


def _complete(view: JobView, trigger: TriggerRecord, batch: int, now_ms: int) -> Steps:
    yield from fence(view)
    tables = yield from _commit_state(view, CheckpointId(trigger.checkpoint))
    if isinstance(tables, StorageFailed):
        return (yield from _fail(view, trigger, tables.reason, batch, now_ms))
    record = _completion(view, trigger, tables, batch, now_ms)
    tried = yield from _try(record)
    # Stopped here: nothing changed. The replay of the batch tries again.
    if tried.refused:
        yield from _refused(view, trigger, tried.refused, batch, now_ms)
    rejected = {sink: {REJECTED_ROWS: rows} for sink, rows in tried.rejected.items()}
    record = replace(record, stats={**record.stats, **rejected})
    # A driver that was restored elsewhere must not complete: its successor began from an earlier checkpoint. The
    # successor voids every checkpoint triggered before it looked; a later one is triggered after its generation was
    # written, which this reads. So no completion can slip through between reading and creating.
    yield from fence(view)
    failed = yield from _create(view, record, now_ms)
    if failed is not None:
        return (yield from _fail(view, trigger, failed.reason, batch, now_ms))
    # Stopped here: K is complete. The next start commits it, and the replay of this batch is covered.
    older = [k for k in view.pending if k < record.checkpoint]
    subtasks = view.pending[record.checkpoint].subtasks
    view = yield from publish(view.with_completion(record), record, now_ms, subtasks)
    return (yield from _subsume(view, older, f"checkpoint {record.checkpoint} completed first", batch, now_ms))


def _commit_state(view: JobView, checkpoint: CheckpointId) -> Generator[Step, Any, dict[str, TableRef] | StorageFailed]:
    tables = {}
    for uid, facts in view.topology.operators.items():
        base = restored_table(facts, uid, view.last) if view.last else None
        groups = view.pending[checkpoint].groups[uid]
        done = yield CommitState(uid, checkpoint, base, view.flushed(uid, checkpoint), groups)
        # Stopped here: the table has a version that no completion names. The replay commits K's state once more,
        # from files of its own, on top of the same base. So does the next checkpoint, if storage failed.
        if isinstance(done, StorageFailed):
            return StorageFailed(f"the state of {uid!r} was not committed: {done.reason}")
        tables[uid] = done
    return tables


def _create(view: JobView, record: CompletionRecord, now_ms: int) -> Generator[Step, Any, StorageFailed | None]:
    """Create the completion record; why not, if storage failed and there is surely none."""
    found = yield CreateCompletion(record)
    if not isinstance(found, StorageFailed):
        check_created(found, record)
        return None
    # It may be there, or still come: a put whose answer was lost. Its name is taken, or found to be ours. If storage
    # fails in that too, nobody knows, and the query ends: the next start reads what is so.
    void = yield CreateVoid(VoidRecord(record.checkpoint, view.generation, now_ms))
    # Stopped here: K is void, or complete; the replay of the batch finds out.
    if isinstance(void, Created):
        return StorageFailed(f"its completion was not recorded: {found.reason}")
    check_created(void, record)
    return None


def _try(record: CompletionRecord) -> Generator[Step, Any, Tried]:
    """What sinks say that their targets would refuse. Once the record is created it is too late: all sinks commit, or
    none."""
    tries = tuple(TrySink(*part) for part in by_sink(record.committables, record.topology.sinks))
    if not tries:
        return Tried()
    tried: Tried = yield TrySinks(CheckpointId(record.checkpoint), tries)
    return tried


def _refused(
    view: JobView, trigger: TriggerRecord, refused: tuple[SinkRefused, ...], batch: int, now_ms: int
) -> Generator[Step, Any, None]:
    """End the query. Another try of the same rows is refused again, and the rows of earlier batches are recorded: so
    the next start gives them up (:mod:`spark_ckpt.protocol._refusal`)."""
    yield from fence(view)  # else a successor may have had other rows
    k = CheckpointId(trigger.checkpoint)
    yield from take_name(view, k, trigger, now_ms)
    reason = "; ".join(f"sink {r.sink!r} refuses its rows: {r.reason}" for r in refused)
    yield from write_aborted(view, k, SINK_REFUSED, reason, batch, now_ms, trigger)
    # Stopped before the record: the replay of the batch tries again, and is refused. Behind it: the next start reads
    # the record, and gives the epoch up.
    raise RefusedError(told(view.job, k, reason, view.last_id))


def _fail(view: JobView, trigger: TriggerRecord, reason: str, batch: int, now_ms: int) -> Steps:
    """Storage failed when everybody had acknowledged. What it would have committed goes to the next checkpoint."""
    yield from fence(view)  # else a successor collected what was missing
    k = trigger.checkpoint
    yield from take_name(view, CheckpointId(k), trigger, now_ms)
    view = yield from write_aborted(view, k, FAILED, reason, batch, now_ms, trigger)
    # Their barriers have passed, so they cannot wait for the next batch. Stopped here: the replay completes the newest.
    older = [j for j in view.pending if j < k]
    return (yield from _subsume(view, older, f"checkpoint {k} behind it failed", batch, now_ms))


def _subsume(view: JobView, checkpoints: Iterable[int], reason: str, batch: int, now_ms: int) -> Steps:
    for k in sorted(checkpoints):
        view = yield from abort_once(view, k, SUBSUMED, reason, batch, now_ms)
    return view


def _completion(
    view: JobView, trigger: TriggerRecord, tables: dict[str, TableRef], batch: int, now_ms: int
) -> CompletionRecord:
    k = trigger.checkpoint
    pending = view.pending[k]
    records = [view.open[b] for b in sorted(view.open)]
    staged = [c for r in records for c in sorted(r.staged, key=lambda c: c.epoch) if c.epoch <= k]
    before = shown_by(view.last, view.life, True, view.abandoned)
    return CompletionRecord(
        checkpoint=k,
        kind=trigger.kind,
        generation=view.generation,
        origin=view.origin,
        batch=batch,
        batches_from=min((r.batch for r in records if not is_empty(trim(r, k))), default=batch + 1),
        sources=pending.sources,
        tables=tables,
        committables=tuple(sorted(staged, key=lambda c: c.epoch)),
        topology=view.topology,
        triggered_ms=trigger.time_ms,
        completed_ms=now_ms,
        stats={uid: merge_stats({}, s) for uid, s in pending.stats.items()},
        target=trigger.target,
        finished_weight=view.finished_weight(k),
        triggered_by=trigger.generation,
        life=view.life,
        request=trigger.request,
        drained=trigger.drain,
        hook=trigger.hook,
        shown=shown_after(before, k, {c.sink for c in staged}, view.targets),
    )
