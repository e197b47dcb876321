"""Where a source ends in a run that is to end at a position, and times as positions. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any


def earlier(
    place: Callable[[dict[str, Any]], Any], start: dict[str, Any], found: dict[str, Any], end: dict[str, Any]
) -> dict[str, Any] | None:
    """The earlier of ``found`` and ``end`` by ``place``, which orders offsets; None if ``start`` is behind ``end``.

    ``end`` may have some of an offset's fields, those that ``place`` looks at.
    """
    if place(start) > place(end):
        return None
    return found if place(found) <= place(end) else {**found, **end}


def time_ms(asked: Any) -> int | None:
    """The milliseconds since 1970 of a time of ISO 8601 with a zone, rounded up; None for what is none."""
    if not isinstance(asked, str):
        return None
    try:
        found = dt.datetime.fromisoformat(asked.strip().replace("Z", "+00:00"))
    except ValueError:
        return None
    return None if found.tzinfo is None else -(-round(found.timestamp() * 1_000_000) // 1000)
