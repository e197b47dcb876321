"""How a query ends: a drained job by itself, whoever asked for the drain; and the job's folder is told of every end.

Driver, the process that started the query.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from spark_ckpt import clock, errors
from spark_ckpt.errors import CkptError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.protocol.records import FINAL, EndedRecord
from spark_ckpt.protocol.recovery import GoOn, RestoreFrom
from spark_ckpt.protocol.startup import Started

_log = logging.getLogger("spark_ckpt")
_LOOK_S = 1.0
_OURS = "|".join(
    name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, CkptError)
)
_OUR_ERROR = re.compile(rf"spark_ckpt\.errors\.({_OURS}): (.+)")
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*(?:Error|Exception|Interrupt))(?::|$)", re.MULTILINE)
_RAISED_AT = re.compile(r'^  File "([^"\n]+)", line (\d+), in (\S+)$', re.MULTILINE)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ")
_FRAMES = {"STREAM_FAILED", "PYTHON_EXCEPTION"}
"""Conditions of Spark that say only that there is another one inside."""


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


def watch_end(query: Any, run: RunSpec, error: Callable[[], Exception | None]) -> None:
    """Stop ``query`` once the checkpoint that drains it is committed, or the final one of a run whose sources have
    ends, and note how it ended, with ``error()``. A process that exits right behind its query may have noted that
    before (:mod:`spark_ckpt.api.query`)."""
    records = JobRecords(run.url, run.config)

    def watch() -> None:
        _end_when_drained(query, records, run.drained, run.generation if run.ends or run.bounded else None)
        try:
            note_end(records, run.generation, error())
        except Exception as gone:  # noqa: BLE001 - the JVM or the server has gone, and knows nothing any more
            _log.debug("how the query ended is not known: %s", gone)

    threading.Thread(target=watch, name="spark-ckpt-end", daemon=True).start()


def _end_when_drained(query: Any, records: JobRecords, drained: int | None, bounded: int | None) -> None:
    """``drained``: known at the start. ``bounded``: the generation whose final checkpoint ends the query, too."""
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
            if bounded is not None and _is_final(records, bounded):
                query.stop()
                return
            pause.wait(_LOOK_S)
    except Exception as error:  # noqa: BLE001 - Spark and Spark Connect raise errors of many kinds when they end
        _log.debug("the end of a drain is not looked for any more: %s", error)


def _is_final(records: JobRecords, generation: int) -> bool:
    """Whether the newest committed checkpoint is the final one of ``generation``."""
    newest = records.completion(records.newest_committed())
    return newest is not None and newest.kind == FINAL and newest.generation == generation


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


def note_end(records: JobRecords, generation: int, error: Exception | None) -> None:
    """The query of ``generation`` has ended, with ``error`` or without. Again changes nothing; fails never."""
    name, text = (None, "") if error is None else told_of(error)
    try:
        # A folder that was removed under the query must not come back.
        if records.generation(generation) is not None:
            records.end(EndedRecord(generation, clock.now_ms(), name, text))
    except Exception as e:  # noqa: BLE001 - whatever a file system raises: a report that is missing changes nothing
        _log.warning("How the query ended cannot be written into the job's folder: %s", e)


def told_of(error: Exception) -> tuple[str, str]:
    """The class of ``error``, as it was raised first, and its text if it is an error of ours; else the line of Python
    that raised it, if one did.

    Spark gives errors of Python processes as text. Texts of others may hold values of rows, and are not kept.
    """
    if isinstance(error, CkptError):
        return type(error).__name__, str(error)
    message = str(error)
    ours = _OUR_ERROR.findall(message)
    if ours:
        return str(ours[-1][0]), str(ours[-1][1])
    raised, conditions = _RAISED.findall(message), [c for c in _CONDITION.findall(message) if c not in _FRAMES]
    places = _RAISED_AT.findall(message) if raised else []
    place = "raised at {}, line {}, in {}".format(*places[-1]) if places else ""
    return str([type(error).__name__, *conditions, *raised][-1]), place
