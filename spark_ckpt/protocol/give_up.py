"""Giving up checkpoints in the sink's commit: what was declined or cancelled on its way."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from spark_ckpt.errors import CheckpointFailedError
from spark_ckpt.protocol.events import Cancel, Decline
from spark_ckpt.protocol.records import (
    DECLINED,
    EXPIRED,
    LOST,
    SUBSUMED,
    WITHDRAWN,
    AbortedRecord,
    BatchRecord,
    TriggerRecord,
)
from spark_ckpt.protocol.steps import AppendHistory, ReadAborted, ReadTrigger, Step, WriteAborted
from spark_ckpt.protocol.view import JobView
from spark_ckpt.types import CheckpointId

Steps = Generator[Step, Any, JobView]


def give_up(view: JobView, record: BatchRecord, now_ms: int, failed: bool = False) -> Steps:
    """Abort what was declined or cancelled on the way, once each, and count failures. ``failed``: there is one."""
    declined = {e.checkpoint: f"{e.uid}: {e.reason}" for e in reversed(record.events) if isinstance(e, Decline)}
    cancelled = {e.checkpoint for e in record.events if isinstance(e, Cancel)}
    for k in sorted(declined.keys() | cancelled):
        if view.done(k):
            continue
        cause = DECLINED if k in declined else SUBSUMED
        reason = declined.get(k, "a newer checkpoint's barrier overtook it")
        view = yield from abort_once(view, k, cause, reason, record.batch, now_ms)
        failed = failed or cause == DECLINED
    if failed:
        # Expiries were recorded by the first source, in its own process.
        view = replace(view, failures=view.failures.add((yield ReadAborted()), view.generation).completed(view.last_id))
        _check_failures(view)
    return view


def abort_once(view: JobView, k: int, cause: str, reason: str, batch: int, now_ms: int) -> Steps:
    """Abort ``k`` for ``cause``, unless it was aborted before: the first reason stays."""
    trigger, aborted = yield ReadTrigger(CheckpointId(k))
    if aborted is not None:
        return (yield from _known_abort(view, aborted, batch, trigger))
    return (yield from write_aborted(view, k, cause, reason, batch, now_ms, trigger))


def _known_abort(view: JobView, aborted: AbortedRecord, batch: int, trigger: TriggerRecord | None) -> Steps:
    """The first source gave it up; its marker has arrived here. The source does not write the history."""
    if aborted.cause in (EXPIRED, LOST, WITHDRAWN):
        yield _history_of_abort(view, aborted, batch, trigger)
    return view.with_aborted([aborted.checkpoint])


def write_aborted(
    view: JobView, k: int, cause: str, reason: str, batch: int, now_ms: int, trigger: TriggerRecord | None = None
) -> Steps:
    aborted = AbortedRecord(k, cause, reason, now_ms, view.generation)
    yield WriteAborted(aborted)
    # Stopped here: the record stands; a replay of the batch finds it and does not count it again.
    yield _history_of_abort(view, aborted, batch, trigger)
    return view.with_aborted([k])


def _history_of_abort(
    view: JobView, aborted: AbortedRecord, batch: int, trigger: TriggerRecord | None
) -> AppendHistory:
    return AppendHistory(
        CheckpointId(aborted.checkpoint),
        trigger.kind if trigger else None,
        aborted.cause,
        aborted.generation,
        view.origin,
        batch,
        trigger.time_ms if trigger else None,
        aborted.time_ms,
        aborted.reason,
        trigger.target if trigger else None,
    )


def _check_failures(view: JobView) -> None:
    failed = view.failures
    if failed.exceeded:
        raise CheckpointFailedError(
            f"job {view.job!r}: expected at most {failed.tolerable} failed checkpoints in a row "
            f"(spark.ckpt.tolerableFailures), found {len(failed.failed)}, the last one {max(failed.failed)}; "
            f"see the checkpoint history for the reasons"
        )
