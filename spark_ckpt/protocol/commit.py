"""The sink's commit on the driver: records a batch, completes checkpoints, commits their transactions.

Coroutines that yield :class:`~spark_ckpt.protocol.steps.Step` and are sent each step's result, so that the I/O shell
and the simulation drive the very same code. The order for a batch:

    WriteBatch,
    for every checkpoint that is now fully acknowledged:
        ReadTrigger, CreateVoid and WriteAborted (instead of the rest, if it is late or its trigger is lost),
        ReadNewestGeneration, CommitState (each uid), ReadNewestGeneration, CreateCompletion,
        CommitSink (each sink with committables that were not abandoned), WriteSavepoint (if it is one),
        ReadNewestGeneration, AnswerRequest (if somebody asked), WriteCommitted, AppendHistory,
        ReadTrigger, WriteAborted, AppendHistory (each older one that it subsumes)
    AbortSink (of what a replaced attempt staged),
    DropCheckpoint (each whose files go), CollectFiles, DropBatches, DropCheckpoint (the rest), if something
        completed
    for every checkpoint that was declined or cancelled: ReadTrigger, WriteAborted, AppendHistory

If storage fails in CommitState or CreateCompletion, the checkpoint fails and the query goes on: CreateVoid (if it may
have been created), WriteAborted, AppendHistory, and the same for the older ones. If it fails while something is cleaned
up, that is done after the next checkpoint. Without WriteBatch a batch cannot be committed: Spark would never repeat it,
and what it staged would be forgotten.

Until Spark's own commit log says batch N is done, a restart replays N. Comments name what a crash at each place
leads to.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from typing import Any

from spark_ckpt.errors import CkptError, FencedError, ProtocolBugError
from spark_ckpt.protocol._give_up import abort_once, give_up, write_aborted
from spark_ckpt.protocol._view import JobView, is_empty, rebuild, trim
from spark_ckpt.protocol.abandon import with_ways_out
from spark_ckpt.protocol.checkpoint_state import CheckpointState
from spark_ckpt.protocol.coordinator import merge_stats, plan_retention
from spark_ckpt.protocol.events import Flushed
from spark_ckpt.protocol.permit import permit_for
from spark_ckpt.protocol.records import (
    EXPIRED,
    FAILED,
    LOST,
    SAVEPOINT,
    SUBSUMED,
    BatchRecord,
    CommittedRecord,
    CompletionRecord,
    TableRef,
    TriggerRecord,
    VoidRecord,
)
from spark_ckpt.protocol.steps import (
    AbortSink,
    AnswerRequest,
    AppendHistory,
    CollectFiles,
    CommitSink,
    CommitState,
    CreateCompletion,
    Created,
    CreateVoid,
    DropBatches,
    DropCheckpoint,
    Exists,
    ReadNewestGeneration,
    ReadTrigger,
    SavepointFailed,
    Step,
    StorageFailed,
    WriteBatch,
    WriteCommitted,
    WriteSavepoint,
)
from spark_ckpt.types import CheckpointId, Committable

Steps = Generator[Step, Any, JobView]
"""Yields steps, is sent their results, and returns the next view."""


def commit_batch(view: JobView, record: BatchRecord, now_ms: int) -> Steps:
    """Driver, sink commit: once a batch, and again with a new ``record`` of the same batch after a crash.

    Raises ``FencedError`` (a newer generation owns the job; nothing was committed), ``CheckpointFailedError``
    (everything of this batch is durable; more checkpoints failed in a row than tolerated), ``CorruptStorageError``
    and ``ProtocolBugError``. After any exception, of a step's too, rebuild the view.
    """
    return (yield from _unless_fenced(view, _commit_batch(view, record, now_ms)))


def _commit_batch(view: JobView, record: BatchRecord, now_ms: int) -> Steps:
    _check(view, record)
    own = view.last is not None and view.last.origin == view.origin
    if view.last and own and view.state(view.last.checkpoint) is CheckpointState.COMPLETE:
        view = yield from _publish(view, view.last, now_ms)
    view = yield from _stage(view, record)
    previous = view.last
    view, triggers, expired = yield from _triggers(view, record.batch, now_ms)
    ready = _to_complete(triggers)
    for trigger in ready:
        view = yield from _complete(view, trigger, record.batch, now_ms)
    view = yield from _abort_garbage(view)
    if view.last and view.last != previous:
        view = yield from _retain(view, previous, now_ms)
    failed = expired or any(t.checkpoint in view.aborted for t in ready)
    view = yield from give_up(view, record, now_ms, failed=failed)
    return view


def commit_completions(view: JobView, records: Iterable[CompletionRecord], now_ms: int) -> Steps:
    """Driver, before a query starts: commit what completion records authorise and no ``committed/`` confirms.

    Raises ``FencedError``. A crash anywhere: the next start does it again.
    """
    return (yield from _unless_fenced(view, _commit_completions(view, records, now_ms)))


def _commit_completions(view: JobView, records: Iterable[CompletionRecord], now_ms: int) -> Steps:
    yield from _fence(view)
    for record in sorted(records, key=lambda r: r.checkpoint):
        view = yield from _publish(view, record, now_ms)
    return view


def _unless_fenced(view: JobView, steps: Steps) -> Steps:
    """A driver believed dead that moves on meets what its successor dropped: records, files, staged rows. Then it is
    told that it was fenced, and not that they are missing."""
    try:
        return (yield from steps)
    except FencedError:
        raise
    except Exception:
        yield from _fence(view)
        raise


def _check(view: JobView, record: BatchRecord) -> None:
    if (record.origin, record.generation) != (view.origin, view.generation):
        raise ProtocolBugError(
            f"batch {record.batch}: expected origin {view.origin} and generation {view.generation}, "
            f"found {record.origin} and {record.generation}"
        )
    newest = max((*view.open, view.last.batch if view.last and view.last.origin == view.origin else -1), default=-1)
    if record.batch < newest:
        raise ProtocolBugError(f"batch {record.batch} came after batch {newest}; Spark replays only its last batch")
    if _covered(view, record):
        _check_adopted(view)
        return
    late = [c.epoch for c in record.staged] + [e.epoch for e in record.events if isinstance(e, Flushed)]
    if late and min(late) <= view.last_id:
        raise ProtocolBugError(
            f"batch {record.batch}: found rows of epoch {min(late)}, but checkpoint {view.last_id} is complete"
        )


def _check_adopted(view: JobView) -> None:
    """The state that the replay leaves behind must be what the record says.

    An older driver may have been halted right before it created the record, and created it when this start had looked
    for one already. Stopped by this, the next start adopts it.
    """
    if view.last is not None and view.topology.operators and view.last.checkpoint != view.adopt:
        raise FencedError(
            f"job {view.job!r}: expected checkpoint {view.last.checkpoint} to be open, found it completed by an older "
            f"driver while this one started; start the query again, it goes on from there"
        )


def _covered(view: JobView, record: BatchRecord) -> bool:
    """Whether the batch is a replay of the one that completed the last checkpoint."""
    return view.last is not None and (view.last.origin, view.last.batch) == (record.origin, record.batch)


# --- staging -----------------------------------------------------------------------------------------------


def _stage(view: JobView, record: BatchRecord) -> Steps:
    """Record what the batch staged; what an earlier attempt of the same batch staged is garbage.

    If the earlier attempt completed a checkpoint K, K's record is canonical: what the replay staged of epochs <= K is
    garbage, and what it staged of later epochs replaces what the first attempt did.
    """
    garbage: list[Committable] = []
    if view.last and _covered(view, record):
        canonical = set(view.last.committables)
        garbage += [c for c in record.staged if c.epoch <= view.last.checkpoint and c not in canonical]
        record = trim(record, view.last.checkpoint)
    if record.batch in view.open:
        garbage += [c for c in view.open[record.batch].staged if c not in record.staged]
    yield WriteBatch(record)
    # Stopped here: Spark replays the batch, and its next record replaces this one.
    return replace(view.with_batch(record), garbage=(*view.garbage, *garbage))


def _abort_garbage(view: JobView) -> Steps:
    """Abort what replaced attempts staged. Only now: their driver, if it still lives, may have been about to create a
    completion record that names it. It lost that race to ours, or has nothing left to create.
    """
    canonical = set(view.last.committables) if view.last else set()
    left: list[Committable] = []
    for sink, group in by_sink(c for c in view.garbage if c not in canonical):
        if isinstance((yield AbortSink(sink, group)), StorageFailed):
            left.extend(group)
        # Stopped here: the replaced records still name the rest, or else the sink's gc finds it.
    return replace(view, garbage=tuple(left))


def by_sink(
    committables: Iterable[Committable], order: tuple[str, ...] = ()
) -> list[tuple[str, tuple[Committable, ...]]]:
    """The committables of each sink that has any, in the order they were staged; sinks of ``order`` first."""
    groups: dict[str, list[Committable]] = {sink: [] for sink in order}
    for c in committables:
        groups.setdefault(c.sink, []).append(c)
    return [(sink, tuple(g)) for sink, g in groups.items() if g]


# --- completing --------------------------------------------------------------------------------------------


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
            yield from _fence(view)  # else a successor dropped it, with all that it belonged to
            yield from _void(view, checkpoint, trigger, now_ms)
            reason = f"triggers/{checkpoint} is damaged or missing"
            view = yield from write_aborted(view, checkpoint, LOST, reason, batch, now_ms)
            continue
        why = None if trigger is None else view.too_old(trigger.time_ms, now_ms)
        if aborted is not None:
            view = view.with_aborted([checkpoint])
        elif why is not None:
            yield from _void(view, checkpoint, trigger, now_ms)
            view, late = (yield from write_aborted(view, checkpoint, EXPIRED, why, batch, now_ms, trigger)), True
        else:
            out.append(trigger)
    return view, tuple(out), late


def _void(
    view: JobView, checkpoint: CheckpointId, trigger: TriggerRecord | None, now_ms: int
) -> Generator[Step, Any, None]:
    """Take the name of a checkpoint that everyone has acknowledged and that is given up.

    An older driver may have been halted right before it created the record. If it still could, its rows would become
    visible once with that checkpoint and once with the next one, for which they were staged again.
    """
    if trigger is not None and trigger.generation == view.generation:
        return  # nobody older knows of it
    found = yield CreateVoid(VoidRecord(checkpoint, view.generation, now_ms))
    # Stopped here: it can never complete; the next start takes it for aborted.
    if isinstance(found, Exists) and isinstance(found.record, CompletionRecord):
        raise FencedError(
            f"job {view.job!r}: expected checkpoint {checkpoint} to be open, found it completed by an older driver "
            f"while this one gave it up; start the query again, it goes on from there"
        )


def _to_complete(ready: tuple[TriggerRecord, ...]) -> tuple[TriggerRecord, ...]:
    """The newest, and every savepoint: somebody waits for it under its own name. The newest subsumes the others."""
    return tuple(t for t in ready if t is ready[-1] or t.kind == SAVEPOINT)


def _complete(view: JobView, trigger: TriggerRecord, batch: int, now_ms: int) -> Steps:
    yield from _fence(view)
    tables = yield from _commit_state(view, CheckpointId(trigger.checkpoint))
    if isinstance(tables, StorageFailed):
        return (yield from _fail(view, trigger, tables.reason, batch, now_ms))
    record = _completion(view, trigger, tables, batch, now_ms)
    # A driver that was restored elsewhere must not complete: its successor began from an earlier checkpoint. The
    # successor voids every checkpoint triggered before it looked; a later one is triggered after its generation was
    # written, which this reads. So no completion can slip through between reading and creating.
    yield from _fence(view)
    failed = yield from _create(view, record, now_ms)
    if failed is not None:
        return (yield from _fail(view, trigger, failed.reason, batch, now_ms))
    # Stopped here: K is complete. The next start commits it, and the replay of this batch is covered.
    older = [k for k in view.pending if k < record.checkpoint]
    subtasks = view.pending[record.checkpoint].subtasks
    view = yield from _publish(view.with_completion(record), record, now_ms, subtasks)
    return (yield from _subsume(view, older, f"checkpoint {record.checkpoint} completed first", batch, now_ms))


def _commit_state(view: JobView, checkpoint: CheckpointId) -> Generator[Step, Any, dict[str, TableRef] | StorageFailed]:
    tables = {}
    for uid in view.topology.operators:
        base = view.last.tables.get(uid) if view.last else None
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
        _check_created(found, record)
        return None
    # It may be there, or still come: a put whose answer was lost. Its name is taken, or found to be ours. If storage
    # fails in that too, nobody knows, and the query ends: the next start reads what is so.
    void = yield CreateVoid(VoidRecord(record.checkpoint, view.generation, now_ms))
    # Stopped here: K is void, or complete; the replay of the batch finds out.
    if isinstance(void, Created):
        return StorageFailed(f"its completion was not recorded: {found.reason}")
    _check_created(void, record)
    return None


def _fail(view: JobView, trigger: TriggerRecord, reason: str, batch: int, now_ms: int) -> Steps:
    """Storage failed when everybody had acknowledged. What it would have committed goes to the next checkpoint."""
    yield from _fence(view)  # else a successor collected what was missing
    k = trigger.checkpoint
    yield from _void(view, CheckpointId(k), trigger, now_ms)
    view = yield from write_aborted(view, k, FAILED, reason, batch, now_ms, trigger)
    # Their barriers have passed, so they cannot wait for the next batch. Stopped here: the replay completes the newest.
    older = [j for j in view.pending if j < k]
    return (yield from _subsume(view, older, f"checkpoint {k} behind it failed", batch, now_ms))


def _subsume(view: JobView, checkpoints: Iterable[int], reason: str, batch: int, now_ms: int) -> Steps:
    for k in sorted(checkpoints):
        view = yield from abort_once(view, k, SUBSUMED, reason, batch, now_ms)
    return view


def _fence(view: JobView) -> Generator[Step, Any, None]:
    newest = yield ReadNewestGeneration()
    if newest != view.generation:
        why = "another query runs this job now" if newest else "the job's folder was removed"
        raise FencedError(
            f"job {view.job!r}: expected generation {view.generation} to be the newest, found {newest or 'none'}; "
            f"{why}, stop this one"
        )


def _check_created(found: Any, record: CompletionRecord) -> None:
    if isinstance(found, Created) or found.record == record:
        return
    there = found.record
    if there.generation != record.generation:
        raise FencedError(
            f"checkpoint {record.checkpoint}: expected to own it as generation {record.generation}, found it owned by "
            f"generation {there.generation}; stop this query (starting it again goes on from what is there)"
        )
    raise ProtocolBugError(f"checkpoint {record.checkpoint} was completed twice by generation {record.generation}")


def _completion(
    view: JobView, trigger: TriggerRecord, tables: dict[str, TableRef], batch: int, now_ms: int
) -> CompletionRecord:
    k = trigger.checkpoint
    pending = view.pending[k]
    records = [view.open[b] for b in sorted(view.open)]
    staged = [c for r in records for c in sorted(r.staged, key=lambda c: c.epoch) if c.epoch <= k]
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
    )


def _publish(
    view: JobView,
    record: CompletionRecord,
    now_ms: int,
    subtasks: Mapping[str, Mapping[int, Mapping[str, int]]] | None = None,
) -> Steps:
    """Make a complete checkpoint visible. The only place that asks for a commit permit."""
    permit = permit_for(record, view.job, view.oldest)
    abandoned: list[str] = []
    for sink, group in by_sink(record.committables, record.topology.sinks):
        if (record.checkpoint, sink) in view.abandoned:
            abandoned.append(sink)
            continue
        try:
            yield CommitSink(permit, sink, group)
        except FencedError:
            raise
        except CkptError as error:
            error.args = (with_ways_out(str(error), view.job, record.checkpoint, sink),)
            raise
        except Exception as error:  # a user's sink; what it says may hold secrets
            raise CkptError(with_ways_out(type(error).__name__, view.job, record.checkpoint, sink)) from error
        # Stopped here: the record authorises the rest; the next start commits every sink again, which changes nothing
        # where it was done.
    failed: SavepointFailed | None = None
    if record.kind == SAVEPOINT and record.target is not None:
        # After the sinks: whoever restores the savepoint, perhaps under another job's name that no ledger knows, finds
        # nothing left to commit. Before `committed/K`: that announces it, so it is complete when announced.
        failed = yield WriteSavepoint(record)
        # Stopped here: no `committed/K`, so the next start commits and writes it again.
    # A driver that was fenced since must not confirm what its successor may have dropped by now.
    yield from _fence(view)
    unwritten = failed.reason if failed else None
    if record.request is not None:
        # Before `committed/K`, after which nobody comes here again: no request stays open that was answered.
        yield AnswerRequest(record.request, CheckpointId(record.checkpoint), unwritten)
        # Stopped here: as above; the answer stands.
    done = CommittedRecord(record.checkpoint, view.generation, now_ms, unwritten, tuple(abandoned))
    yield WriteCommitted(done)
    # Stopped here: K is done; the history misses a row, and what may be dropped is dropped after the next checkpoint.
    yield replace(history_of_completion(record, done), subtasks=subtasks or {})
    return replace(view, committed=view.committed | {record.checkpoint})


def history_of_completion(record: CompletionRecord, done: CommittedRecord | None) -> AppendHistory:
    remarks = [f"given up in sink {sink!r}" for sink in (done.abandoned if done else ())]
    if done and done.savepoint_error:
        remarks.append(f"savepoint not written: {done.savepoint_error}")
    return AppendHistory(
        CheckpointId(record.checkpoint),
        record.kind,
        "completed",
        record.generation,
        record.origin,
        record.batch,
        record.triggered_ms,
        record.completed_ms,
        "; ".join(remarks) or None,
        record.target,
        record.stats,
    )


def _retain(view: JobView, previous: CompletionRecord | None, now_ms: int) -> Steps:
    """Drop what is not needed any more. Stopped anywhere in here: it is dropped after the next checkpoint."""
    assert view.last is not None
    # Spark commits the first batch of a location only after this returned: until the second, it may start over.
    pinned = {view.restored_from} if view.restored_from is not None and view.last.batch == 0 else set()
    # A savepoint of another place is not ours to look into.
    before = previous.checkpoint if previous and previous.checkpoint in view.completed else None
    plan = plan_retention(view.completed, view.committed, view.retain, before, pinned, view.savepoints)
    named_by = {*plan.keep, view.last.checkpoint, *(() if plan.files_up_to is None else (plan.files_up_to,))}
    # Records go before files, so that a checkpoint that is listed can be restored, wherever this stops.
    unnamed = {k for k in plan.drop if k not in named_by}
    dropped = yield from _drop(view, sorted(unnamed), now_ms)
    # What could not be dropped may be listed still: its files stay.
    if plan.files_up_to is not None and dropped == unnamed:
        yield CollectFiles(CheckpointId(plan.files_up_to), tuple(CheckpointId(k) for k in sorted(named_by)))
    # The newest stays for those who ask for the query's progress; to a start it says nothing new.
    yield DropBatches(view.origin, min(view.last.batches_from, view.last.batch))
    # The one whose files stay until the next collection: the batch may be replayed from state that names them.
    dropped |= yield from _drop(view, [k for k in plan.drop if k in named_by], now_ms)
    # What could not be dropped is still there to drop.
    completed = tuple(k for k in view.completed if k not in dropped)
    committed, savepoints = view.committed - dropped, view.savepoints - dropped
    return replace(view, completed=completed, committed=committed, savepoints=savepoints)


def _drop(view: JobView, checkpoints: Iterable[int], now_ms: int) -> Generator[Step, Any, set[int]]:
    """Those that were dropped."""
    dropped = set()
    for k in checkpoints:
        # An older driver may still be about to create K. If its name became free, it would authorise what it staged
        # then a second time. Nobody older knows of what this generation triggered.
        void = None if k in view.own else VoidRecord(k, view.generation, now_ms)
        if not isinstance((yield DropCheckpoint(CheckpointId(k), void)), StorageFailed):
            dropped.add(k)
    return dropped


__all__ = ["JobView", "Steps", "by_sink", "commit_batch", "commit_completions", "rebuild"]
