"""Giving up checkpoints in the sink's commit: what was declined or cancelled on its way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spark_ckpt.errors import CheckpointFailedError
from spark_ckpt.protocol._fencing import fence
from spark_ckpt.protocol._view import JobView, Steps
from spark_ckpt.protocol.events import Cancel, Decline
from spark_ckpt.protocol.records import (
    DECLINED,
    EXPIRED,
    FAILED,
    LOST,
    SUBSUMED,
    WITHDRAWN,
    AbortedRecord,
    BatchRecord,
    TriggerRecord,
)
from spark_ckpt.protocol.steps import AppendHistory, ReadAborted, ReadTrigger, WriteAborted
from spark_ckpt.types import CheckpointId

OVERTAKEN = "a newer checkpoint's barrier overtook it"


def give_up(view: JobView, record: BatchRecord, now_ms: int, failed: bool = False) -> Steps:
    """Abort what was declined or cancelled on the way, once each, and count failures. ``failed``: there is one."""
    declined = [e for e in record.events if isinstance(e, Decline)]
    cancelled = {e.checkpoint for e in record.events if isinstance(e, Cancel)}
    for k in sorted({e.checkpoint for e in declined} | cancelled):
        if view.state(k).over:
            continue
        why = [e for e in declined if e.checkpoint == k]
        if why:
            view = yield from abort_once(view, k, *_cause(why), record.batch, now_ms)
        else:
            view = yield from _cancelled(view, k, record.batch, now_ms)
        failed = failed or any(e.failed for e in why)
    if failed:
        # Expiries were recorded by the first source, in its own process.
        aborted = yield ReadAborted()
        view = replace(view, failures=view.failures.add(aborted, view.generation).completed(view.last_id))
        _check_failures(view, {a.checkpoint: a.reason for a in aborted})
    return view


def _cause(declined: Sequence[Decline]) -> tuple[str, str]:
    """(cause, reason). A failure is told before what only had to wait too long."""
    first = next((e for e in declined if e.failed), declined[0])
    return FAILED if first.failed else DECLINED, f"{first.uid}: {first.reason}"


def _cancelled(view: JobView, k: int, batch: int, now_ms: int) -> Steps:
    """Its marker has arrived, and no decline. Nobody wrote why: then a newer checkpoint overtook it, or a newer driver
    took its name, and says itself what became of it.
    """
    trigger, aborted = yield ReadTrigger(CheckpointId(k))
    if aborted is not None:
        return (yield from _known_abort(view, aborted, batch, trigger))
    yield from fence(view)
    return (yield from write_aborted(view, k, SUBSUMED, OVERTAKEN, batch, now_ms, trigger))


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


def _check_failures(view: JobView, reasons: Mapping[int, str]) -> None:
    failed = view.failures
    if failed.exceeded:
        last = max(failed.failed)
        raise CheckpointFailedError(
            f"job {view.job!r}: expected at most {failed.tolerable} failed checkpoints in a row "
            f"(spark.ckpt.tolerableFailures), found {len(failed.failed)}, the last one {last}: "
            f"{reasons.get(last, 'see the checkpoint history')}. Nothing is lost: mend that and start the query again"
        )
