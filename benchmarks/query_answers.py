"""What a query came to, so that engines can be compared: from rows as an engine gives them to a number and a digest.

Imported in every environment, so it needs nothing but Python.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

Row = tuple[Any, ...]
ADDED, REMOVED = ("+I", "+U"), ("-U", "-D")


def there(changes: Iterable[tuple[str, Row]]) -> list[Row]:
    """The rows that are there in the end, of kinds of change and rows; ``Counter`` of what was added and removed."""
    count: Counter[Row] = Counter()
    for kind, row in changes:
        count[row] += 1 if kind in ADDED else -1
    if any(n < 0 for n in count.values()):
        raise ValueError("a row was removed that was not there")
    return sorted(count.elements())


def newest(rows: Iterable[Row]) -> list[Row]:
    """Of rows that update each other the last of each key: (key, rows so far, ...)."""
    last: dict[Any, Row] = {}
    for row in rows:
        if row[0] not in last or last[row[0]][1] < row[1]:
            last[row[0]] = row
    return sorted(last.values())


def settled(rows: Iterable[Row], before_us: int) -> list[Row]:
    """Without windows that start too late to be closed on all engines when the input ends; (start, ...)."""
    return sorted(row for row in rows if row[0] < before_us)


def digest(rows: Sequence[Row]) -> dict[str, Any]:
    return {"rows": len(rows), "digest": hashlib.sha256(repr(list(rows)).encode()).hexdigest()[:16]}
