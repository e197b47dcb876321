"""The clock: milliseconds since 1970, as records and offsets have them. What decides is told the time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

_told_by: Callable[[], int] | None = None


def now_ms() -> int:
    return int(time.time() * 1000) if _told_by is None else _told_by()


@contextlib.contextmanager
def told_by(now: Callable[[], int]) -> Iterator[None]:
    """Within, it is the time that ``now`` says: for the simulation, in all threads of this process."""
    global _told_by
    before, _told_by = _told_by, now
    try:
        yield
    finally:
        _told_by = before
