"""Drops what no start can need any more, after a checkpoint completed.

Part of the sink's commit: see :mod:`spark_ckpt.protocol.commit` for the order of all steps.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace
from typing import Any

from spark_ckpt.protocol._view import JobView, Steps
from spark_ckpt.protocol.coordinator import plan_retention
from spark_ckpt.protocol.records import CompletionRecord, VoidRecord
from spark_ckpt.protocol.steps import CollectFiles, DropBatches, DropCheckpoint, Step, StorageFailed
from spark_ckpt.types import CheckpointId


def retain(view: JobView, previous: CompletionRecord | None, now_ms: int) -> Steps:
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
