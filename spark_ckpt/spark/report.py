"""Rows of the checkpoint history."""

from __future__ import annotations

from collections.abc import Sequence

from spark_ckpt.protocol.steps import AppendHistory
from spark_ckpt.storage.history import HistoryRow, UidSize
from spark_ckpt.storage.manifest import StateManifest


def history_row(step: AppendHistory, manifests: Sequence[StateManifest], now_ms: int) -> HistoryRow:
    """What one checkpoint did. ``manifests``: the state it left, if it completed."""
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
        state={m.uid: UidSize(m.keys, m.size_bytes, len(m.content)) for m in manifests},
    )
