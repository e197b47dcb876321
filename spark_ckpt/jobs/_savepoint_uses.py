"""Who stands on a savepoint: jobs that were started from it and have completed no checkpoint of their own. Driver, and
whoever removes a savepoint.

``uses/<job>.json`` in the savepoint's folder is written by a start ahead of its first copied file. It goes with the
savepoint, or when the start fails. Whether the job stands on it still is read in the job's folder. A savepoint that
cannot be written is restored all the same: whoever may remove it has to know.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CkptError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.protocol import codec
from spark_ckpt.redaction import redact_url
from spark_ckpt.storage.job_paths import JobPaths, RecordFolder
from spark_ckpt.storage.record_store import RecordStore
from spark_ckpt.storage.retry import describe

_log = logging.getLogger("spark_ckpt")
FOLDER: RecordFolder = "uses"
_KIND = "use"


@dataclass(frozen=True)
class Use:
    """The job in the folder ``url`` (no secrets) made the savepoint its ``checkpoint``, beginning at ``time_ms``."""

    url: str
    checkpoint: int
    time_ms: int


@dataclass(frozen=True)
class Noted:
    """A use that a start noted; ``before``: what an earlier start of the job had noted."""

    savepoint: RecordStore
    use: Use
    before: Use | None

    def take_back(self, records: JobRecords) -> None:
        """The start failed. Nothing changes if it, or a later one, goes on from the savepoint all the same. Never
        raises what storage does.

        Stopped before this: the job seems to stand on the savepoint, so whoever removes it has to say `--force`; the
        next start of the job from it notes its own use, or takes this one back.
        """
        path = _path(self.use.url)
        try:
            chosen = {g.restored_from for g in records.decided()}
            if self.use.checkpoint in chosen or self.savepoint.read(path, _KIND) != codec.write(self.use):
                return
            if self.before is not None and self.before.checkpoint in chosen:
                self.savepoint.replace(path, _KIND, codec.write(self.before))
            else:
                self.savepoint.delete(path)
        except Exception as error:  # noqa: BLE001 - why the start failed is what is to be told
            _log.info("Savepoint %s is told of a use that failed: %s", redact_url(self.savepoint.url), describe(error))


def note_use(savepoint: RecordStore, records: JobRecords, checkpoint: int, now_ms: int) -> Noted:
    """A start is about to make ``savepoint`` its job's ``checkpoint``. Never raises what storage does."""
    use, before = Use(redact_url(records.store.url), checkpoint, now_ms), None
    path = _path(use.url)
    try:
        with contextlib.suppress(CkptError):  # one that is damaged says nothing
            body = savepoint.read(path, _KIND)
            before = None if body is None else codec.read(Use, body, path)
        savepoint.replace(path, _KIND, codec.write(use))
    except Exception as error:  # noqa: BLE001 - it may be read-only, or of somebody else
        _log.info("Savepoint %s is not told that a job uses it: %s", redact_url(savepoint.url), describe(error))
    return Noted(savepoint, use, before)


def standing_on(savepoint: RecordStore, config: JobConfig, besides: str = "") -> list[str]:
    """The jobs that stand on it, in words; without that in the folder ``besides``. A job whose folder is gone does not.
    What cannot be read may: it is among them."""
    own = _path(redact_url(besides)) if besides else None
    names = (JobPaths.listed(FOLDER, name) for name in savepoint.names(FOLDER))
    return [found for path in names if path != own for found in _standing(savepoint, config, path)]


def _standing(savepoint: RecordStore, config: JobConfig, path: str) -> Iterator[str]:
    try:
        body = savepoint.read(path, _KIND)
        use = None if body is None else codec.read(Use, body, path)
    except CkptError as error:
        yield f"one whose record cannot be read ({error})"
        return
    if use is None:
        return
    try:
        stands = _stands(JobRecords(use.url, config), use)
    except Exception as error:  # noqa: BLE001 - clients of object stores raise anything
        yield f"perhaps the job in {use.url}, whose folder cannot be read ({describe(error)})"
        return
    if stands:
        began = datetime.fromtimestamp(use.time_ms / 1000, timezone.utc)
        yield f"the job in {use.url}, which began with it at {began:%Y-%m-%d %H:%M:%S} UTC"


def _stands(records: JobRecords, use: Use) -> bool:
    there = records.store.names("generations") or records.store.names("triggers")
    own = (c.checkpoint for c in records.completions() if c.origin > 0)  # the others were brought in
    return bool(there) and all(k <= use.checkpoint for k in own)


def _path(url: str) -> str:
    return f"{FOLDER}/{hashlib.sha256(url.encode()).hexdigest()[:16]}.json"
