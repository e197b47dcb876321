"""Rows of the checkpoint history: as they are when it happens, and as the records tell it later."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.protocol.publish import history_of_completion
from spark_ckpt.protocol.records import AbortedRecord, CompletionRecord, TriggerRecord
from spark_ckpt.protocol.steps import AppendHistory
from spark_ckpt.redaction import redact_url
from spark_ckpt.storage.history import HistoryRow, UidSize
from spark_ckpt.storage.manifest import StateManifest, read_manifest

Found = TypeVar("Found")


def history_row(
    step: AppendHistory, manifests: Sequence[StateManifest], now_ms: int, driver_ms: Mapping[str, int] | None = None
) -> HistoryRow:
    """What one checkpoint did. ``manifests``: the state it left, if it completed; ``driver_ms``: how long the driver's
    steps took, if this process did them."""
    stats = list(step.stats.values())

    def total(name: str) -> int:
        return sum(s.get(name, 0) for s in stats)

    completed = step.outcome == "completed"
    return HistoryRow(
        id=step.checkpoint,
        kind=step.kind or "checkpoint",
        outcome=step.outcome,
        triggered_ms=step.triggered_ms or step.ended_ms,
        generation=step.generation,
        batch=step.batch,
        reason=step.reason,
        completed_ms=now_ms if completed else None,
        commit_ms=max(0, now_ms - step.ended_ms),
        alignment_ms=max((s.get("alignment_ms", 0) for s in stats), default=0),
        held_back_bytes=total("held_bytes"),
        written_bytes=total("size_bytes"),
        written_rows=total("rows"),
        keys=total("keys"),
        state=sizes_of(manifests),
        phases=_phases(step, driver_ms or {}) if completed else {},
        target=_shown(step.target),
    )


def _phases(step: AppendHistory, driver_ms: Mapping[str, int]) -> dict[str, Any]:
    """Of the driver, and of each operator's subtasks; of the whole operator where subtasks are not known."""
    parts = {uid: {"": stats} for uid, stats in step.stats.items() if uid not in step.subtasks}
    parts |= {uid: {str(n): stats for n, stats in found.items()} for uid, found in step.subtasks.items()}
    times = {
        uid: {n: {name: ms for name, ms in stats.items() if name.endswith("_ms")} for n, stats in found.items()}
        for uid, found in parts.items()
    }
    return {"acknowledged_ms": step.ended_ms, "driver": dict(driver_ms), "operators": times}


def left_state(
    records: JobRecords, checkpoint: int, read: Callable[[str], StateManifest] | None = None
) -> list[StateManifest]:
    """The state that ``checkpoint`` left, as far as it can be read: for a report and nothing else. ``read`` gives what
    a manifest says, if somebody knows it already."""
    record = _sound(records.completion, checkpoint)
    return [] if record is None else left_by(records, record, read)


def left_by(
    records: JobRecords, record: CompletionRecord, read: Callable[[str], StateManifest] | None = None
) -> list[StateManifest]:
    """As :func:`left_state`, of a checkpoint whose record was read already."""
    manifest = read or partial(read_manifest, records.store)
    found = []
    for ref in record.tables.values():
        try:
            found.append(manifest(ref.manifest))
        except CorruptStorageError:
            continue
    return found


def sizes_of(manifests: Sequence[StateManifest]) -> dict[str, UidSize]:
    """By uid."""
    return {m.uid: UidSize(m.keys, m.size_bytes, len(m.content)) for m in manifests}


def recorded_rows(records: JobRecords) -> list[HistoryRow]:
    """What the records that are there and whole tell of the job's checkpoints, by id."""
    found = {}
    for k in sorted({*records.ids("checkpoints"), *records.ids("aborted")}):
        row = recorded_row(records, k)
        if row is not None:
            found[k] = row
    return list(found.values())


def recorded_row(records: JobRecords, checkpoint: int) -> HistoryRow | None:
    """What the records tell of one of them; None if there is none, or none that can be read."""
    completion = _sound(records.completion, checkpoint)
    if isinstance(completion, CompletionRecord):
        step = history_of_completion(completion, _sound(records.committed, checkpoint))
        return history_row(step, left_by(records, completion), completion.completed_ms)
    aborted, trigger = _sound(records.aborted, checkpoint), _sound(records.trigger, checkpoint)
    return aborted_row(aborted, trigger) if aborted is not None else None


def aborted_row(aborted: AbortedRecord, trigger: TriggerRecord | None) -> HistoryRow:
    """What a checkpoint that was given up did; ``trigger``: its own, if that is known."""
    triggered_ms = trigger.time_ms if trigger else aborted.time_ms
    kind = trigger.kind if trigger else "checkpoint"
    target = _shown(trigger.target if trigger else None)
    return HistoryRow(
        aborted.checkpoint, kind, aborted.cause, triggered_ms, aborted.generation, -1, aborted.reason, target=target
    )


def _shown(target: str | None) -> str | None:
    return None if target is None else redact_url(target)


def _sound(read: Callable[[int], Found | None], checkpoint: int) -> Found | None:
    try:
        return read(checkpoint)
    except CorruptStorageError:
        return None
