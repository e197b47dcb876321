"""What a process asked of S3, and of the cache of state files, for metrics: counted where it happens. Any process.

Spark's Python workers serve one task after another, of all queries of a session. So each task says for whom it works,
and what a process has counted for a start of a job goes with the next message of that start which no shuffle carries:
what is shuffled must not differ between two attempts at a task.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

HIT, MISS = "hit", "miss"
"""A run was in the cache, or was read from its state file."""

_lock = threading.Lock()
_counts: dict[tuple[str, int], Counter[str]] = {}
_nobody: Counter[str] = Counter()
_current = _nobody


def working_for(url: str, generation: int) -> None:
    """From now on this process works for that start of the job at ``url``. At the beginning of each stage's call."""
    global _current
    with _lock:
        for old in [key for key in _counts if key[0] == url and key[1] < generation]:
            del _counts[old]
        _current = _counts.setdefault((url, generation), Counter())


def count(what: str) -> None:
    with _lock:
        _current[what] += 1


def taken() -> dict[str, int]:
    """What was counted for the start that this process works for, since the last time."""
    with _lock:
        found = {} if _current is _nobody else dict(_current)
        _current.clear()
        return found


def forget() -> None:
    """As a new process. For simulated ones."""
    global _current
    with _lock:
        _counts.clear()
        _current = _nobody


def count_requests(fs: Any) -> None:
    """Of an s3fs file system, each request that leaves the process, a repeated one again. Opens no connection."""
    if getattr(fs, "session", fs) is None:  # else it is counted already, or is not s3fs's own
        import aiobotocore.session

        fs.session = aiobotocore.session.AioSession(**fs.kwargs)
        fs.session.register("before-send.s3", _count_sent)


def _count_sent(event_name: str, **_: Any) -> None:
    count(_kind(event_name.rpartition(".")[2]))


def _kind(operation: str) -> str:
    """Of one of S3's operations, such as ``ListObjectsV2``, as stores charge for them: ``get`` has questions about an
    object, ``put`` has copies and uploads in parts."""
    if operation.startswith("List"):
        return "list"
    if operation.startswith(("Delete", "Abort")):
        return "delete"
    return "get" if operation.startswith(("Get", "Head")) else "put"
