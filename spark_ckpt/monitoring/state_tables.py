"""A job's state tables for people: which there are, the first rows, one key, and SQL over them. It only reads.

Limits are told in each answer. Any process that may read the job's folder; DuckDB (extra ``ui``) for SQL alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

import spark_ckpt
from spark_ckpt.errors import CkptError, InvalidInputError
from spark_ckpt.jobs.job import Job
from spark_ckpt.storage.content import FileEntry, same_rows
from spark_ckpt.storage.filesystem import normalize_url

ROWS = 1000
"""No answer has more rows."""
SECONDS = 30.0
MEMORY_BYTES = 1 << 30
DIFF_BYTES = 64 << 20
"""A comparison of two checkpoints reads no more of state files."""
CHARACTERS = 500
"""A value's text is cut behind so many."""
_AT_ONCE = BoundedSemaphore(1)


@dataclass(frozen=True)
class Table:
    """One state table at a checkpoint. ``keys``: the names of the key columns. ``columns``: name and Arrow type."""

    uid: str
    keys: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Rows:
    """``more``: there are others, which are left out. A value is None for null, else its text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    more: bool = False


def tables_of(job: Job, checkpoint: int) -> tuple[Table, ...]:
    """Those of a retained checkpoint. Reads a manifest each. Raises ``InvalidInputError`` for no such checkpoint."""
    states = (job.state(uid, checkpoint) for uid in job.show(checkpoint).tables)
    return tuple(Table(s.uid, s.key_columns, tuple((f.name, str(f.type)) for f in s.schema)) for s in states)


def head_of(job: Job, uid: str, checkpoint: int, rows: int = 100) -> Rows:
    """Some rows, the first that are found."""
    found = job.state(uid, checkpoint).head(rows + 1)
    return _rows(found.column_names, found.slice(0, rows).to_pylist(), found.num_rows > rows)


def look_up(job: Job, uid: str, checkpoint: int, key: Sequence[str]) -> Rows:
    """The rows of one key, whose values are texts. Raises ``InvalidInputError`` for values of other types."""
    state = job.state(uid, checkpoint)
    found = state.get(*key)
    return _rows(state.schema.names, found[:ROWS], len(found) > ROWS)


def changes_of(job: Job, uid: str, before: int, after: int) -> Rows:
    """Which keys were added, removed and changed between two retained checkpoints. Raises ``InvalidInputError`` if one
    is not retained, and for more than :data:`DIFF_BYTES` to read."""
    state = job.state(uid, after)
    then, now = job.state(uid, before).files().content, state.files().content
    size_bytes = sum(_differs(then.get(file), now.get(file)) for file in {*then, *now})
    if size_bytes > DIFF_BYTES:
        raise InvalidInputError(
            f"the state files in which {before} and {after} differ have {size_bytes >> 20} MiB, more than the "
            f"{DIFF_BYTES >> 20} MiB that are read here: ask `spark-ckpt diff`"
        )
    found = state.diff(before, after)
    return _rows(found.column_names, found.slice(0, ROWS).to_pylist(), found.num_rows > ROWS)


def _differs(then: FileEntry | None, now: FileEntry | None) -> int:
    """How many bytes are read to tell what of one file is in one checkpoint only."""
    if then is not None and now is not None and same_rows(then, now):
        return 0
    return max(entry.size_bytes for entry in (then, now) if entry is not None)


def _rows(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], more: bool) -> Rows:
    return Rows(tuple(columns), tuple(tuple(_text(row[c]) for c in columns) for row in rows), more)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    text = str(value)
    return text if len(text) <= CHARACTERS else f"{text[:CHARACTERS]}…"


def can_query() -> bool:
    """Whether DuckDB is installed."""
    return find_spec("duckdb") is not None


def query(job: Job, checkpoint: int, sql: str, seconds: float = SECONDS, memory_bytes: int = MEMORY_BYTES) -> Rows:
    """What ``sql``, one SELECT, finds in the state tables of ``checkpoint``, which have their uids as names.

    Raises ``InvalidInputError`` for what is no SELECT, or what the engine refuses, for a query that takes longer than
    ``seconds`` or more than ``memory_bytes``, which is killed, and while another one runs.
    """
    if not can_query():
        raise InvalidInputError("SQL needs duckdb: pip install 'spark-ckpt[ui]'")
    if not _AT_ONCE.acquire(blocking=False):
        raise InvalidInputError("another query runs, and there is one at a time: ask again when it is done")
    try:
        return _in_process(job, checkpoint, sql, seconds, memory_bytes)
    finally:
        _AT_ONCE.release()


def _in_process(job: Job, checkpoint: int, sql: str, seconds: float, memory_bytes: int) -> Rows:
    asked = {
        "settings": replace(job.config, dir=normalize_url(job.config.dir)).to_options(),  # it starts in another folder
        "job": job.name,
        "checkpoint": checkpoint,
        "sql": sql,
        "rows": ROWS,
        "memory_bytes": memory_bytes,
    }
    root = Path(spark_ckpt.__file__).parent.parent
    command = [sys.executable, "-m", "spark_ckpt.monitoring.sql_process"]
    try:
        done = subprocess.run(
            command, input=json.dumps(asked), capture_output=True, text=True, timeout=seconds, cwd=root, check=False
        )
    except subprocess.TimeoutExpired:
        raise InvalidInputError(
            f"the query took longer than {seconds:g} s and was ended: read less, or ask Spark: ckpt.state(uid).df()"
        ) from None
    if done.returncode:
        raise CkptError(
            f"the query's process ended with code {done.returncode}; a query may take {memory_bytes >> 20} MiB"
        )
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise InvalidInputError(answer["refused"])
    rows = tuple(tuple(_text(value) for value in row) for row in answer["rows"])
    return Rows(tuple(answer["columns"]), rows, answer["more"])
