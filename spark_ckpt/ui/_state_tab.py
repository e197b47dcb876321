"""What the state tab of a job shows: its tables, and the answer to what a form asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_ckpt.errors import CkptError, InvalidInputError
from spark_ckpt.jobs.job import Job
from spark_ckpt.monitoring import state_tables
from spark_ckpt.monitoring.state_tables import Rows


@dataclass(frozen=True)
class Asked:
    """``act``: head, key or sql; empty: nothing was asked."""

    act: str = ""
    uid: str = ""
    key: tuple[str, ...] = ()
    sql: str = ""
    checkpoint: int | None = None


def state_values(job: Job, form: Mapping[str, list[str]]) -> dict[str, Any]:
    """For the template. What is refused, or cannot be read, is said in its place."""
    asked = _asked(form)
    done = [record.checkpoint for record in job.completed()]
    shown: dict[str, Any] = {"allowed": True, "asked": asked, "answer": None, "answer_of": "", "refused": ""}
    if not done:
        return {**shown, "checkpoint": None, "tables": ()}
    # That of the form, whose answer is to be of what the page showed; it may have been removed meanwhile.
    checkpoint = asked.checkpoint if asked.checkpoint in done else done[-1]
    shown |= {"checkpoint": checkpoint, "retained": done[::-1], "tables": ()}
    try:
        shown["tables"] = state_tables.tables_of(job, checkpoint)
        shown["answer"], shown["answer_of"] = _answer(job, checkpoint, asked)
    except CkptError as error:
        shown["refused"] = str(error)
    return shown


def _asked(form: Mapping[str, list[str]]) -> Asked:
    def one(name: str) -> str:
        return form.get(name, [""])[0]

    checkpoint = int(one("checkpoint")) if one("checkpoint").isdecimal() else None
    return Asked(one("act"), one("uid"), tuple(form.get("key", ())), one("sql"), checkpoint)


def _answer(job: Job, checkpoint: int, asked: Asked) -> tuple[Rows | None, str]:
    if asked.act == "head":
        return state_tables.head_of(job, asked.uid, checkpoint), f"First rows of {asked.uid}"
    if asked.act == "key":
        return state_tables.look_up(job, asked.uid, checkpoint, asked.key), f"{asked.uid} of {', '.join(asked.key)}"
    if asked.act == "sql":
        return state_tables.query(job, checkpoint, asked.sql), "Answer"
    if asked.act:
        raise InvalidInputError(f"expected head, key or sql, found {asked.act!r}")
    return None, ""
