"""The jobs that queries of this process run, as their metrics show them. Driver; any thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from spark_ckpt.errors import CkptError
from spark_ckpt.jobs.job import Job
from spark_ckpt.monitoring._measures import Sample, measures
from spark_ckpt.monitoring.facts import METERED
from spark_ckpt.monitoring.folder import look_at

_log = logging.getLogger("spark_ckpt")
_NEVER: tuple[float, list[Sample]] = (float("-inf"), [])
_FRESH_S = 5.0
"""So old may figures be: whoever scrapes every second costs no more than who does every five."""


class RunningJobs:
    """A job is running from its start until :meth:`clear`, so that one that failed beside others is seen as failed."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._parts_s: dict[str, Mapping[str, float]] = {}
        self._lock = threading.Lock()
        self._seen: tuple[float, list[Sample]] = _NEVER

    def add(self, job: Job) -> None:
        with self._lock:
            self._jobs[job.name] = job
            self._seen = _NEVER

    def batch_took(self, job: str, parts_s: Mapping[str, float]) -> None:
        """How long the parts of its newest batch took."""
        self._parts_s[job] = parts_s

    def clear(self) -> None:
        with self._lock:
            self._jobs, self._parts_s, self._seen = {}, {}, _NEVER

    def samples(self) -> list[Sample]:
        """Of all jobs that can be looked at now, some seconds old at most."""
        with self._lock:
            at, found = self._seen
            if time.monotonic() - at > _FRESH_S:
                found = [s for job in self._jobs.values() for s in self._of(job)]
                self._seen = time.monotonic(), found
            return found

    def _of(self, job: Job) -> list[Sample]:
        try:
            return list(measures(look_at(job, METERED), self._parts_s.get(job.name, {})))
        except (CkptError, OSError) as error:
            _log.debug("metrics of job %s cannot be told: %s", job.name, error)
            return []
