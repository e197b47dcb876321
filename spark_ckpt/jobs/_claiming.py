"""A savepoint that a start takes over (``spark.ckpt.restore.mode=claim``): the job owns it, and removes it. Driver.

The job has links to its files, or copies, as of every savepoint, so nothing is needed of it once the start is decided.

=================================  ====================================================================
stopped                            what the next start with the same command does
=================================  ====================================================================
ahead of the generation's record   restores the savepoint, which is whole
behind it                          goes on from the job's own checkpoint, and removes the savepoint
in the removal                     the same; what is left is no savepoint any more
=================================  ====================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from spark_ckpt.config import CLAIM, JobConfig
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.faults import reach
from spark_ckpt.jobs._savepoint_target import SavepointMark, read_claim
from spark_ckpt.jobs._savepoint_uses import standing_on
from spark_ckpt.jobs._savepoints import read_mark
from spark_ckpt.jobs.records import left_for_later
from spark_ckpt.jobs.savepoint import Savepoint
from spark_ckpt.protocol.records import Claimed, GenerationRecord
from spark_ckpt.protocol.recovery import AUTO, NONE
from spark_ckpt.redaction import redact_url

_log = logging.getLogger("spark_ckpt")


class Claim:
    """The claim of the savepoint that ``restore`` names."""

    def __init__(self, config: JobConfig, job_url: str) -> None:
        self._job_url = job_url
        self._savepoint = Savepoint(config.restore, config)
        self._path = redact_url(self._savepoint.path)

    @classmethod
    def asked(cls, config: JobConfig, job_url: str) -> Claim | None:
        """None unless the start is to claim a savepoint."""
        names_one = config.restore not in (AUTO, NONE) and not config.restore.isdigit()
        return cls(config, job_url) if names_one and config.restore_mode == CLAIM else None

    def record(self) -> Claimed:
        """What the generation's record says of it. Raises ``InvalidInputError`` if there is no savepoint."""
        mark = read_mark(self._savepoint.store)
        if mark is None:
            raise InvalidInputError(f"expected a savepoint in {self._path}, found none")
        return Claimed(self._path, mark.job, mark.life, mark.checkpoint)

    def is_done(self, decided: Iterable[GenerationRecord]) -> bool:
        """Whether an earlier start of the job has claimed it: it is gone, or is the same still. Another savepoint that
        was written there since is none of the job's."""
        known = [g.claimed for g in decided if g.claimed is not None and g.claimed.path == self._path]
        mark = self._mark() if known else None
        return bool(known) and (mark is None or any(_is_of(claimed, mark) for claimed in known))

    def remove(self, decided: Iterable[GenerationRecord]) -> None:
        """Remove it, if a decided start of the job claimed it; if that fails, the next start does it."""
        try:
            if self.is_done(decided) and self._mark() is not None:
                others = standing_on(self._savepoint.store, self._savepoint.config, besides=self._job_url)
                if others:
                    raise InvalidInputError(f"it is stood on by {'; '.join(others)}")
                reach("savepoint of a claim")
                self._savepoint.dispose(force=True)
                _log.warning(
                    "The savepoint in %s was claimed by this job, which has all of it, and is removed.", self._path
                )
        except Exception as error:  # noqa: BLE001 - the job has what it needs
            left_for_later("removing the savepoint that was claimed", error)

    def _mark(self) -> SavepointMark | None:
        return read_mark(self._savepoint.store) or read_claim(self._savepoint.store)


def _is_of(claimed: Claimed, mark: SavepointMark) -> bool:
    return (claimed.job, claimed.life, claimed.checkpoint) == (mark.job, mark.life, mark.checkpoint)
