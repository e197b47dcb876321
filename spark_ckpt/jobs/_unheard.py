"""For people who ask a job for something: whether a driver is there to do it."""

from __future__ import annotations

import time
from collections.abc import Callable

from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.jobs.heartbeat import is_heard
from spark_ckpt.jobs.records import JobRecords

_EVERY_S = 10.0


class Unheard:
    """Called again and again while somebody waits: says, every ten seconds with the time that is left, that no driver
    of the job is heard of any more; and once that one is."""

    def __init__(self, records: JobRecords, job: str, timeout_s: float, tell: Callable[[str], None]) -> None:
        self._records, self._job, self._tell = records, job, tell
        self._deadline = time.monotonic() + timeout_s
        self._next = 0.0
        self._told = False

    def require_heard(self) -> None:
        """Before anything is asked for. Raises ``InvalidInputError`` if nobody is there to answer."""
        if self._is_heard():
            return
        newest = self._records.newest_committed()
        retained = (
            f", or take one of its newest checkpoint, which needs no driver: `spark-ckpt savepoint DIR JOB PATH --from "
            f"{newest}`, in Python savepoint(path, checkpoint={newest})"
        )
        raise InvalidInputError(
            f"no driver of job {self._job!r} is heard of, so nobody can take a savepoint: start its query and ask again"
            f"{retained if newest else ''}"
        )

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
            f"the driver of job {self._job!r} is not heard of any more: start its query again, or stop waiting, which "
            f"withdraws what was asked for; {left}"
        )
        self._tell(f"still no driver of job {self._job!r} heard of; {left}" if self._told else first)
        self._told = True

    def _is_heard(self) -> bool:
        try:
            return is_heard(self._records)
        except CorruptStorageError as damage:  # whether anybody runs the job is for its answer to tell
            self._tell(str(damage))
            return True
