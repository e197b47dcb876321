"""The checkpoint history as a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from rich import box
from rich.table import Table

_COLUMNS = ("id", "kind", "outcome", "start", "batch", "triggered", "took", "aligning", "written", "keys")
_LEFT = ("kind", "outcome", "keys")


def history_table(rows: Sequence[Mapping[str, Any]], title: str | None = None) -> Table:
    """``rows`` as :meth:`spark_ckpt.Job.checkpoints` returns them.

    ``start`` counts the job's starts, ``triggered`` is UTC, ``written`` the state files of the
    checkpoint, ``keys`` the live keys of every operator; in their place the reason if it did not complete.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name in _LEFT else "right")
    for row in rows:
        table.add_row(*_cells(row))
    return table


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


def size_text(size_bytes: int) -> str:
    """``12.3 KiB`` and the like."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    units = ("KiB", "MiB", "GiB", "TiB")
    power = min((size_bytes.bit_length() - 1) // 10, len(units))
    return f"{size_bytes / 1024**power:,.1f} {units[power - 1]}"
