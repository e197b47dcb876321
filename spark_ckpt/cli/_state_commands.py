"""The commands that look into state: one key, and what changed between two checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import spark_ckpt
from spark_ckpt.cli._shared import AsJson, Dir, Name, Storage, errors, json_text, open_job, storage_settings
from spark_ckpt.cli._text_table import text_table
from spark_ckpt.jobs.state import State

Uid = Annotated[str, typer.Argument(help="The operator's uid, or UID.NAME for rows that it keeps many of a key.")]
At = Annotated[int | None, typer.Option("--checkpoint", metavar="ID", help="A retained one; the newest if not given.")]


def add_to(app: typer.Typer) -> None:
    for command in (get, diff):
        app.command()(command)


def get(
    dir: Annotated[str, typer.Argument(help="The folder or URL given as spark.ckpt.dir, or a savepoint's.")],
    job: Annotated[str, typer.Argument(help="The job's name; - if DIR is a savepoint's folder.")],
    uid: Uid,
    key: Annotated[list[str], typer.Argument(help="The key's values, in the order of the operator's key columns.")],
    checkpoint: At = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Print the state of one key. Reads the files only that may hold it. Exit code 1 if there is no such key."""
    with errors():
        state = _state(dir, job, uid, checkpoint, storage)
        rows = state.get(*key)
    if as_json:
        typer.echo(json_text(rows))
    elif rows:
        typer.echo(_table(rows))
    else:
        typer.echo(f"{uid} has no such key at checkpoint {state.checkpoint}")
    if not rows:
        raise typer.Exit(1)


def diff(
    dir: Dir,
    job: Name,
    uid: Uid,
    before: Annotated[int, typer.Argument(help="The id of a retained checkpoint.")],
    after: Annotated[int, typer.Argument(help="The id of another one.")],
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Print which keys of an operator's state were added, removed and changed between two checkpoints."""
    with errors():
        rows = open_job(dir, job, storage).state(uid, after).diff(before, after).to_pylist()
    if as_json:
        typer.echo(json_text(rows))
        return
    if rows:
        typer.echo(_table(rows))
    counts = Counter(r["_change"] for r in rows)
    typer.echo(", ".join(f"{n:,} {what}" for what, n in sorted(counts.items())) or "nothing changed")


def _state(dir: str, job: str, uid: str, checkpoint: int | None, storage: Sequence[str] | None) -> State:
    if job == "-":
        return spark_ckpt.savepoint(dir, **storage_settings(storage or ())).state(uid)
    found: State = open_job(dir, job, storage).state(uid, checkpoint)
    return found


def _table(rows: Sequence[dict[str, Any]]) -> str:
    heads = list(rows[0])
    return text_table(heads, [[_text(r[h]) for h in heads] for r in rows], heads)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}={_text(v)}" for k, v in value.items())
    return "" if value is None else str(value)
