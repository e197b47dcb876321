"""What a start says in the log of where it goes on from, when that may surprise. Driver."""

from __future__ import annotations

import logging
from typing import Any

from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.protocol.records import CompletionRecord, Topology
from spark_ckpt.protocol.recovery import AUTO, GoOn, RestoreFrom, StartFresh
from spark_ckpt.protocol.source_starts import ASKED, AT, EARLIEST, LATEST
from spark_ckpt.redaction import redact_url

_log = logging.getLogger("spark_ckpt")
_TWICE = "A sink that merges by key ends with the right rows; one that appends has those rows twice"


def say_where(job: str, restore: str, location: str, records: JobRecords, decision: Any) -> None:
    """``restore``: the setting. Reads records only if it names something."""
    if restore == AUTO:
        return
    if isinstance(decision, GoOn):
        _log.warning(
            "Job %s: spark.ckpt.restore=%s is not used, because the Spark location %s has batches and the job goes on "
            "there. To restore, set checkpointLocation to a new, empty folder.",
            job, redact_url(restore), redact_url(location),
        )  # fmt: skip
        return
    chosen = decision.checkpoint if isinstance(decision, RestoreFrom) else None
    newest = _newer(records, chosen)
    if newest is None or not isinstance(decision, RestoreFrom | StartFresh):
        return
    before = chosen.shown if chosen is not None else {}
    again = sorted(sink for sink, shown in newest.shown.items() if shown != before.get(sink))
    where = f"to checkpoint {_number(restore, chosen)}" if chosen is not None else "to its beginning"
    written = (
        f"what sinks {again} were given since is written again. {_TWICE}" if again else "no sink was given rows since"
    )
    _log.warning("Job %s goes back %s, behind checkpoint %d: %s.", job, where, newest.checkpoint, written)


def say_sources(job: str, topology: Topology, decision: Any) -> None:
    """Which sources begin elsewhere than the checkpoint has them. Offsets are not shown: they may be values of rows."""
    for uid, facts in () if isinstance(decision, GoOn) else topology.begins.items():
        if AT in facts:
            asked = facts[ASKED]
            where = f"at {asked}" if asked in (EARLIEST, LATEST) else "where its options say"
            _log.warning(
                "Job %s: source %r begins %s, as startingFrom asks, and not where the checkpoint has it. This is done "
                "once.", job, uid, "at the offset that is given" if isinstance(asked, dict) else where,
            )  # fmt: skip


def _number(restore: str, chosen: CompletionRecord) -> str:
    return restore if restore.isdigit() else f"{chosen.checkpoint}, which is the savepoint {redact_url(restore)}"


def _newer(records: JobRecords, chosen: CompletionRecord | None) -> CompletionRecord | None:
    """The newest checkpoint of this life of the job, if it is newer than ``chosen``.

    By the time: a savepoint that was restored has an id behind all others.
    """
    known = records.completions()
    if chosen is not None:
        life = chosen.life
        known = [c for c in known if c.life == life and c.completed_ms > chosen.completed_ms]
    return max(known, key=lambda c: c.completed_ms, default=None)
