"""Savepoints on a schedule: where they go, when the newest was taken, and which ones are removed. Driver.

Their folders are ``<spark.ckpt.savepoint.dir>/<job>-<UTC time>``. What is called otherwise is never touched.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timezone

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.jobs._savepoint_target import read_claim
from spark_ckpt.jobs._savepoint_uses import standing_on
from spark_ckpt.jobs._savepoints import read_mark
from spark_ckpt.jobs.records import left_for_later, report
from spark_ckpt.jobs.savepoint import Savepoint
from spark_ckpt.protocol.coordinator import SavepointSchedule
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.retry import Retry

_TIME = "%Y%m%dT%H%M%SZ"
"""In the folders' names, which therefore sort by time."""


def schedule(config: JobConfig, job: str) -> SavepointSchedule | None:
    """What the settings say; None if nothing is scheduled."""
    if config.savepoint_every_ms is None or config.savepoint_dir is None:
        return None
    prefix = f"{config.savepoint_dir.rstrip('/')}/{job}-"

    def target(now_ms: int) -> str:
        return f"{prefix}{datetime.fromtimestamp(now_ms / 1000, timezone.utc):{_TIME}}"

    return SavepointSchedule(config.savepoint_every_ms, target)


def newest_ms(config: JobConfig, job: str) -> int | None:
    """When the newest one was triggered, by its name; None if there is none, or nobody can tell now."""
    if config.savepoint_every_ms is None or config.savepoint_dir is None:
        return None
    try:
        names = _names(config, config.savepoint_dir, job)
    except Exception as error:  # noqa: BLE001 - then the next one comes early, which costs a copy
        left_for_later("savepoints", error)
        return None
    return _time_ms(names[-1], job) if names else None


def drop_older(config: JobConfig, job: str, record: CompletionRecord) -> None:
    """Behind the scheduled savepoint ``record``: remove those of this life of the job that are too many.

    Unfinished ones that are older go, too: nobody finishes them behind a newer one. Never fails; what is left goes
    behind the next one.
    """
    if config.savepoint_every_ms is None or config.savepoint_dir is None or record.target is None:
        return
    try:
        folder, newest = config.savepoint_dir.rstrip("/"), record.target.rpartition("/")[2]
        older = [Savepoint(f"{folder}/{n}", config) for n in _names(config, folder, job) if n < newest]
        own = [s for s in older if _is_of(s, job, record.life)]
        complete = [s for s in own if read_mark(s.store) is not None]
        kept = complete[max(0, len(complete) + 1 - config.savepoint_keep) :]
        for savepoint in (s for s in own if s not in kept and not standing_on(s.store, config)):
            # Stopped in it: what is left is no savepoint, and goes behind the next one.
            savepoint.dispose(force=True)
    except Exception as error:  # noqa: BLE001 - nothing depends on it
        left_for_later("savepoints", error)


def _is_of(savepoint: Savepoint, job: str, life: str) -> bool:
    """Not so of one that is damaged, or nobody's: it stays."""
    try:
        found = read_mark(savepoint.store) or read_claim(savepoint.store)
    except CorruptStorageError as damage:
        report(damage)
        return False
    return found is not None and (found.job, found.life) == (job, life)


def _names(config: JobConfig, dir: str, job: str) -> list[str]:
    """Oldest first."""
    folders = Folder(dir, config.storage_options(), Retry.of(config)).folders()
    return [name for name in folders if _time_ms(name, job) is not None]


def _time_ms(name: str, job: str) -> int | None:
    with contextlib.suppress(ValueError):
        found = datetime.strptime(name.removeprefix(f"{job}-"), _TIME).replace(tzinfo=timezone.utc)
        return int(found.timestamp() * 1000) if name.startswith(f"{job}-") else None
    return None
