"""Figures as people read them, the same in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

_BARS = "▁▂▃▄▅▆▇█"
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"))


def age_text(ms: int | None) -> str:
    """``350 ms``, ``3.2 s``, ``5 min``, ``2 h``, ``4 d``; empty for None."""
    if ms is None:
        return ""
    for size, unit in _UNITS:
        if ms >= size:
            return f"{ms / size:.1f} {unit}" if ms < 10 * size else f"{ms // size} {unit}"
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{max(ms, 0)} ms"


def instant_text(ms: int | None) -> str:
    """In UTC, to the second; empty for None."""
    return "" if ms is None else f"{datetime.fromtimestamp(ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S}"


def sparkline(values: Sequence[int]) -> str:
    """A bar for each value, the largest one full."""
    top = max(values, default=0)
    return "".join(_BARS[round(v / top * (len(_BARS) - 1))] if top else _BARS[0] for v in values)


def size_text(size_bytes: int) -> str:
    """``12.3 KiB`` and the like."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    units = ("KiB", "MiB", "GiB", "TiB")
    power = min((size_bytes.bit_length() - 1) // 10, len(units))
    value = size_bytes / 1024**power
    return f"{value:,.{1 if value < 1000 else 0}f} {units[power - 1]}"
