"""Tells what becomes of the checkpoints of a query that runs, one by one. Driver, the process that started the query.

It asks Spark's own report, which costs no look at storage, and reads the history only when a barrier is newer than what
was told.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from spark_ckpt.errors import CkptError
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.storage.history import History, HistoryRow

_log = logging.getLogger("spark_ckpt")
_NEWEST = 20
"""So many checkpoints may end between two looks; of more, the older ones are not told."""


class Follower:
    """Of one start. ``tell`` is called once for each of its checkpoints, by the thread that looks."""

    def __init__(self, run: RunSpec, tell: Callable[[HistoryRow], None]) -> None:
        self._run, self._tell = run, tell
        self._history = History(run.paths.history, run.config.storage_options(), patience_s=1.0)
        self._told: set[int] = set()
        self._newest = 0

    def look(self, progress: Mapping[str, Any] | None) -> None:
        """``progress``: Spark's of the newest batch. Never fails."""
        if newest_barrier(progress) > self._newest:
            self.look_again()

    def look_again(self) -> None:
        """As when the query has ended: whatever its last report says."""
        try:
            rows = self._history.read(_NEWEST)
        except (CkptError, OSError) as error:
            _log.debug("which checkpoints ended is not known: %s", error)
            return
        for row in rows:
            if row.generation == self._run.generation and row.id not in self._told:
                self._told.add(row.id)
                self._newest = max(self._newest, row.id)
                self._tell(row)


def newest_barrier(progress: Mapping[str, Any] | None) -> int:
    """The newest checkpoint whose barrier a source has sent, as the offsets in Spark's progress say; 0 for none."""
    sources: Iterable[Mapping[str, Any]] = progress["sources"] if progress else ()
    return max((_epoch(source["endOffset"]) - 1 for source in sources), default=0)


def _epoch(offset: Any) -> int:
    try:
        body = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return 1
    epoch = body.get("epoch") if isinstance(body, Mapping) else None
    return epoch if isinstance(epoch, int) else 1


def log_checkpoint(run: RunSpec, row: HistoryRow, trace: str | None) -> None:
    """The one line of a checkpoint. ``trace``: the id of its trace, if there is one."""
    facts = {"generation": row.generation, "checkpoint": row.id, "outcome": row.outcome, "batch": row.batch}
    traced = {} if trace is None else {"trace_id": trace}
    if row.duration_ms is None:
        _log.warning(
            "Job %s: %s %d was given up (%s): %s", run.job, row.kind, row.id, row.outcome, row.reason,
            extra={"job": run.job, **facts, **traced},
        )  # fmt: skip
        return
    figures = {"duration_ms": row.duration_ms, "alignment_ms": row.alignment_ms, "written_bytes": row.written_bytes}
    _log.info(
        "Job %s: %s %d took %.3f s, %d bytes written, %d keys%s", run.job, row.kind, row.id, row.duration_ms / 1000,
        row.written_bytes, row.keys, "" if trace is None else f", trace {trace}",
        extra={"job": run.job, **facts, **figures, "keys": row.keys, **traced},
    )  # fmt: skip
