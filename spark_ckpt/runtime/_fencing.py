"""Why something is missing: a driver that was fenced, or a task of it, meets what the newest generation removed."""

from __future__ import annotations

from spark_ckpt.errors import CkptError, FencedError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.spec import RunSpec


def unless_fenced(run: RunSpec, error: CkptError) -> CkptError:
    """``error``, or the ``FencedError`` that explains it. Asked after a failure only: it lists a folder."""
    newest = max(JobRecords(run.url, run.config).ids("generations"), default=0)
    if newest == run.generation:
        return error
    return FencedError(
        f"job {run.job!r}: expected generation {run.generation} to be the newest, found {newest}; another query runs "
        f"this job now, stop this one. It met what that query removed: {error}"
    )
