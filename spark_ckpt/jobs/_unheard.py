"""For people who ask a job for something: whether anybody is there to do it."""

from __future__ import annotations

import time
from collections.abc import Callable

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.jobs.heartbeat import is_heard
from spark_ckpt.jobs.records import JobRecords

_EVERY_S = 10.0


class Unheard:
    """Called again and again while somebody waits: says at once, and then every ten seconds with the time that is left,
    that no driver of the job is heard of; and once that one is."""

    def __init__(self, records: JobRecords, job: str, timeout_s: float, tell: Callable[[str], None]) -> None:
        self._records, self._job, self._tell = records, job, tell
        self._deadline = time.monotonic() + timeout_s
        self._next = 0.0
        self._told = False

    def __call__(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _EVERY_S
        if self._is_heard():
            if self._told:
                self._tell(f"a driver runs job {self._job!r} now")
            self._told = False
            return
        left = f"{max(self._deadline - now, 0):.0f} s left"
        first = (
            f"no driver of job {self._job!r} is heard of: start its query, or stop waiting, which withdraws what was "
            f"asked for; {left}"
        )
        self._tell(f"still no driver of job {self._job!r} heard of; {left}" if self._told else first)
        self._told = True

    def _is_heard(self) -> bool:
        try:
            return is_heard(self._records)
        except CorruptStorageError as damage:  # whether anybody runs the job is for its answer to tell
            self._tell(str(damage))
            return True
