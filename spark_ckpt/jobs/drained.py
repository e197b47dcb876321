"""A drained job ends by itself: whoever asked for the drain may be another process, or a start before a crash.

Driver, the process that started the query.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.protocol.recovery import GoOn, RestoreFrom
from spark_ckpt.protocol.startup import Started

_log = logging.getLogger("spark_ckpt")
_LOOK_S = 1.0


def drained_before(job: str, started: Started) -> int | None:
    """The checkpoint that drained the location at which the job goes on, if one did. Logs what that means."""
    decision = started.decision
    if isinstance(decision, RestoreFrom) and decision.checkpoint.drained:
        _log.warning(
            "Job %s goes on from checkpoint %d, which drained it: its event-time time-outs have fired. Rows that come "
            "now begin their keys anew, so a key may have a second result.",
            job,
            decision.checkpoint.checkpoint,
        )
    newest = decision.newest if isinstance(decision, GoOn) else None
    if newest is None or not newest.drained or newest.origin != started.generation.origin:
        return None
    _log.warning(
        "Job %s was drained by checkpoint %d and ends at once: at this Spark location nothing is read any more. A "
        "start at an empty location goes on from that checkpoint, or with spark.ckpt.restore from an earlier one.",
        job,
        newest.checkpoint,
    )
    return newest.checkpoint


def end_when_drained(query: Any, records: JobRecords, drained: int | None) -> None:
    """Stop ``query`` once the checkpoint that drains it is committed; ``drained``: known at the start."""
    threading.Thread(target=_watch, args=(query, records, drained), name="spark-ckpt-drained", daemon=True).start()


def _watch(query: Any, records: JobRecords, drained: int | None) -> None:
    pause = threading.Event()
    try:
        if drained is not None:
            # The batch that completed it may be replayed yet.
            query.processAllAvailable()
            query.stop()
        while query.isActive:
            # Spark's own report of the last batch costs no look at storage.
            drain = drain_of(query.lastProgress)
            if drain is not None and records.newest_committed() >= drain:
                query.stop()
                return
            pause.wait(_LOOK_S)
    except Exception as error:  # noqa: BLE001 - Spark and Spark Connect raise errors of many kinds when they end
        _log.debug("the end of a drain is not looked for any more: %s", error)


def drain_of(progress: Mapping[str, Any] | None) -> int | None:
    """The checkpoint that drains the job, as the offsets in Spark's progress report say."""
    sources: Iterable[Mapping[str, Any]] = progress["sources"] if progress else ()
    found = (_drain(source["endOffset"]) for source in sources)
    return max((k for k in found if k is not None), default=None)


def _drain(offset: Any) -> int | None:
    try:
        body = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None
    drain = body.get("drain") if isinstance(body, Mapping) else None
    return drain if isinstance(drain, int) else None
