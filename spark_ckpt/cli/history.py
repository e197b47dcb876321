"""The checkpoint history as a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from spark_ckpt.cli._text_table import text_table
from spark_ckpt.monitoring.words import size_text

_COLUMNS = ("id", "kind", "outcome", "start", "batch", "triggered", "took", "aligning", "written", "keys")
_LEFT = ("kind", "outcome", "keys")


def history_text(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """``rows`` as :meth:`spark_ckpt.Job.checkpoints` returns them, in lines of at most ``width`` where that can be.

    ``start`` counts the job's starts, ``triggered`` is UTC, ``written`` the state files of the
    checkpoint, ``keys`` the live keys of every operator; in their place the reason if it did not complete.
    """
    return text_table(_COLUMNS, [_cells(row) for row in rows], _LEFT, detail=True, width=width)


def _cells(row: Mapping[str, Any]) -> list[str]:
    triggered = datetime.fromtimestamp(row["triggered_ms"] / 1000, timezone.utc)
    keys = ", ".join(f"{uid} {size.keys:,}" for uid, size in sorted(row["state"].items()))
    return [
        str(row["id"]),
        str(row["kind"]),
        str(row["outcome"]),
        _text(row.get("start") or row["generation"]),
        _text(row["batch"]),
        f"{triggered:%H:%M:%S}",
        _seconds(row["duration_ms"]),
        _seconds(row["alignment_ms"]),
        size_text(row["written_bytes"]),
        row["reason"] or keys,
    ]


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _seconds(ms: int | None) -> str:
    return "" if ms is None else f"{ms / 1000:.2f} s"
