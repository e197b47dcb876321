"""Rows of the state that a restore plan changes, for the person who is to approve it. They are data: only if asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spark_ckpt.jobs.state import State
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.protocol.restore_plan import RestorePlan
from spark_ckpt.storage.record_store import RecordStore

_LONGEST = 60


def with_samples(plan: RestorePlan, store: RecordStore, record: CompletionRecord, rows: int) -> RestorePlan:
    """``plan`` with up to ``rows`` rows of each state table of ``record`` that it migrates or loses part of. Reads a
    row group of each. Raises ``CorruptStorageError`` if one is missing or damaged."""
    tables = [table for table in plan.changes if table in record.tables]
    found = {t: tuple(map(_text, State(store, record, t).head(rows).to_pylist())) for t in tables}
    return replace(plan, samples={table: texts for table, texts in found.items() if texts})


def _text(row: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_short(repr(value))}" for name, value in row.items())


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
