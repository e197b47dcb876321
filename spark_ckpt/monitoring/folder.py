"""The jobs below a folder, and how each is. Any process; no Spark."""

from __future__ import annotations

from spark_ckpt.config import JobConfig
from spark_ckpt.jobs.job import Job
from spark_ckpt.monitoring.facts import NEWEST, facts_of
from spark_ckpt.monitoring.overview import Overview, overview_of
from spark_ckpt.names import name_problem
from spark_ckpt.storage.filesystem import Folder


def jobs_in(dir: str, **options: str) -> list[Job]:
    """Those below ``dir`` (``spark.ckpt.dir``), by name; ``options`` are settings such as ``**{"storage.key": "..."}``.

    Raises ``ConfigError`` for unknown settings, ``StorageUnavailableError`` if storage does not answer.
    """
    config = JobConfig.from_options({"dir": dir, **options})
    names = sorted(Folder(dir, config.storage_options()).folders())
    return [job for job in (Job(config, name) for name in names) if job.exists()]


def job_in(dir: str, name: str, **options: str) -> Job | None:
    """That of this name, without a look at the others; None if there is none, or can be none. Raises as
    :func:`jobs_in`."""
    if name_problem(name) is not None:
        return None
    job = Job(JobConfig.from_options({"dir": dir, **options}), name)
    return job if job.exists() else None


def look_at(job: Job, newest: int = NEWEST, listing: bool = False) -> Overview:
    """How ``job`` is now, with the ``newest`` rows of its history; ``listing`` as of ``facts_of``. Reads some tens of
    small files, and for the history a Delta table; raises as ``facts_of``."""
    return overview_of(facts_of(job, newest, listing))
