"""What a job's sink shows under crashes, compared with what it shows without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from spark_ckpt.testing.jobs._rows import Row


class ScheduleError(AssertionError):
    """Under a schedule of crashes the job's sink shows other rows than without crashes."""


def latest_by(*keys: str) -> Callable[[list[Row]], Any]:
    """For ``compare``: of rows with the same ``keys`` only the last counts, as in a sink that merges."""
    return lambda rows: {repr([row[k] for k in keys]): row for row in rows}


def all_rows(rows: list[Row]) -> Any:
    """For ``compare``: every row as often as it is there, in any order."""
    return Counter(map(_frozen, rows))


def _frozen(row: Row) -> str:
    return repr(sorted(row.items()))


def difference(expected: Any, found: Any, alone: bool) -> str:
    if isinstance(expected, Counter) and isinstance(found, Counter):
        missing, more = list((expected - found).elements()), list((found - expected).elements())
    elif isinstance(expected, dict) and isinstance(found, dict):
        missing = [v for k, v in expected.items() if found.get(k) != v]
        more = [v for k, v in found.items() if expected.get(k) != v]
    else:
        missing, more = [expected], [found]
    lines = [f"{len(missing)} rows are missing and {len(more)} are too many"]
    lines += [f"  missing:  {row}" for row in missing[:5]] + [f"  too many: {row}" for row in more[:5]]
    if alone:
        lines.append(
            "No crash is needed: with these batches alone the rows differ, too. If what the job puts out may depend on "
            "how rows fall into batches, compare=latest_by(...) looks at the last row of each key only, and "
            'batches="fixed" keeps them the same.'
        )
    return "\n".join(lines)
