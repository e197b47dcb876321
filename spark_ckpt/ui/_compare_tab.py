"""What the page of two checkpoints shows: their figures, and which keys of an operator's state changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_ckpt.errors import CkptError, InvalidInputError
from spark_ckpt.jobs.job import Job
from spark_ckpt.monitoring import state_tables
from spark_ckpt.monitoring.comparison import compared
from spark_ckpt.monitoring.facts import history_row_of
from spark_ckpt.storage.history import HistoryRow


def compare_values(job: Job, asked: Mapping[str, str], allowed: bool) -> dict[str, Any]:
    """For the template. ``asked``: ``before``, ``after`` and perhaps ``uid``; ``allowed``: rows of state are shown.
    What is refused, or cannot be read, is said in its place."""
    ids = asked.get("before", ""), asked.get("after", "")
    shown: dict[str, Any] = {"ids": ids, "allowed": allowed, "parts": (), "uids": (), "answer": None, "answer_of": ""}
    if not any(ids):
        return {**shown, "refused": ""}
    try:
        before, after = (_row(job, one) for one in ids)
        shown["parts"] = compared(before, after)
        if allowed:
            shown["uids"] = _in_both(job, before, after)
            shown["answer"], shown["answer_of"] = _answer(job, before.id, after.id, asked.get("uid", ""))
        return {**shown, "refused": ""}
    except CkptError as error:
        return {**shown, "refused": str(error)}


def _row(job: Job, asked: str) -> HistoryRow:
    found = history_row_of(job, int(asked)) if asked.isdecimal() and len(asked) < 19 else None
    if found is None:
        raise InvalidInputError(f"expected the ids of two checkpoints of the history, found {asked!r}")
    return found


def _in_both(job: Job, before: HistoryRow, after: HistoryRow) -> tuple[str, ...]:
    tables = {record.checkpoint: set(record.tables) for record in job.completed()}
    return tuple(sorted(tables.get(before.id, set()) & tables.get(after.id, set())))


def _answer(job: Job, before: int, after: int, uid: str) -> tuple[state_tables.Rows | None, str]:
    if not uid:
        return None, ""
    found = state_tables.changes_of(job, uid, before, after)
    return found, f"What changed in {uid} from checkpoint {before} to {after}"
