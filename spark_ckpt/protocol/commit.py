"""The sink's commit on the driver: records a batch, completes checkpoints, commits their transactions.

Coroutines that yield :class:`~spark_ckpt.protocol.steps.Step` and are sent each step's result, so that the I/O shell
and the simulation drive the very same code. The order for a batch:

    WriteBatch,
    for every checkpoint that is now fully acknowledged:
        ReadTrigger, CreateVoid and WriteAborted (instead of the rest, if it is late or its trigger is lost),
        ReadNewestGeneration, CommitState (each uid), TrySinks (if it has committables), ReadNewestGeneration,
        CreateCompletion,
        CommitSinks (each sink with committables that were not abandoned), WriteSavepoint (if it is one),
        ReadNewestGeneration, AnswerRequest (if somebody asked), WriteCommitted, AppendHistory,
        ReadTrigger, WriteAborted, AppendHistory (each older one that it subsumes)
    AbortSink (of what a replaced attempt staged),
    DropCheckpoint (each whose files go), CollectFiles, DropBatches, DropCheckpoint (the rest), if something
        completed
    for every checkpoint that was declined or cancelled: ReadTrigger, ReadNewestGeneration (if nobody wrote why),
        WriteAborted, AppendHistory

If a sink refuses in TrySinks, the query ends: ReadNewestGeneration, CreateVoid (if an older generation triggered it),
WriteAborted, AppendHistory, and ``RefusedError``.

If storage fails in CommitState or CreateCompletion, the checkpoint fails and the query goes on: CreateVoid (if it may
have been created), WriteAborted, AppendHistory, and the same for the older ones. If it fails while something is cleaned
up, that is done after the next checkpoint. Without WriteBatch a batch cannot be committed: Spark would never repeat it,
and what it staged would be forgotten.

Until Spark's own commit log says batch N is done, a restart replays N. Comments name what a crash at each place
leads to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from spark_ckpt.errors import FencedError, ProtocolBugError
from spark_ckpt.protocol._complete import complete_ready
from spark_ckpt.protocol._fencing import fence, unless_fenced
from spark_ckpt.protocol._give_up import give_up
from spark_ckpt.protocol._retention import retain
from spark_ckpt.protocol._view import JobView, Steps, rebuild, trim
from spark_ckpt.protocol.checkpoint_state import CheckpointState
from spark_ckpt.protocol.events import Flushed
from spark_ckpt.protocol.publish import by_sink, publish
from spark_ckpt.protocol.records import BatchRecord, CompletionRecord
from spark_ckpt.protocol.steps import AbortSink, StorageFailed, WriteBatch
from spark_ckpt.types import BEFORE_BARRIERS, Committable, Epoch


def commit_batch(view: JobView, record: BatchRecord, now_ms: int) -> Steps:
    """Driver, sink commit: once a batch, and again with a new ``record`` of the same batch after a crash.

    Raises ``FencedError`` (a newer generation owns the job; nothing was committed), ``CheckpointFailedError``
    (everything of this batch is durable; more checkpoints failed in a row than tolerated), ``RefusedError`` (a target
    does not take rows of a checkpoint; nothing of it is visible), ``CorruptStorageError``
    and ``ProtocolBugError``. After any exception, of a step's too, rebuild the view.
    """
    return (yield from unless_fenced(view, _commit_batch(view, record, now_ms)))


def _commit_batch(view: JobView, record: BatchRecord, now_ms: int) -> Steps:
    _check(view, record)
    own = view.last is not None and view.last.origin == view.origin
    if view.last and own and view.state(view.last.checkpoint) is CheckpointState.COMPLETE:
        view = yield from publish(view, view.last, now_ms)
    view = yield from _stage(view, record)
    previous = view.last
    view, failed = yield from complete_ready(view, record.batch, now_ms)
    view = yield from _abort_garbage(view)
    if view.last and view.last != previous:
        view = yield from retain(view, previous, now_ms)
    view = yield from give_up(view, record, now_ms, failed=failed)
    return view


def commit_completions(view: JobView, records: Iterable[CompletionRecord], now_ms: int) -> Steps:
    """Driver, before a query starts: commit what completion records authorise and no ``committed/`` confirms.

    Raises ``FencedError``. A crash anywhere: the next start does it again.
    """
    return (yield from unless_fenced(view, _commit_completions(view, records, now_ms)))


def _commit_completions(view: JobView, records: Iterable[CompletionRecord], now_ms: int) -> Steps:
    yield from fence(view)
    for record in sorted(records, key=lambda r: r.checkpoint):
        view = yield from publish(view, record, now_ms)
    return view


def labelled(view: JobView, record: BatchRecord) -> BatchRecord:
    """``record`` with a true epoch for what was staged of rows that had none: the oldest that is open. Driver, sink
    commit.

    Their source is the last to send each barrier, so a checkpoint completes in the batch of that barrier or not at all.
    A replay of that batch finds it complete, and its barrier says that the rows are in it.
    """
    epoch = min((*record.barriers, view.last_id + 1))
    staged = tuple(replace(c, epoch=Epoch(epoch)) if c.epoch == BEFORE_BARRIERS else c for c in record.staged)
    return replace(record, staged=staged)


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


__all__ = ["JobView", "Steps", "commit_batch", "commit_completions", "rebuild"]
