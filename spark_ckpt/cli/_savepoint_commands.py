"""The commands about savepoints: what there are, what is in them, whether they are whole, copies, their end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

import spark_ckpt
from spark_ckpt.cli._shared import (
    AsJson,
    Path,
    Storage,
    errors,
    json_text,
    open_job,
    print_names,
    storage_settings,
)
from spark_ckpt.cli._text_table import terminal_width, text_table
from spark_ckpt.jobs.savepoint import Savepoint
from spark_ckpt.monitoring.words import instant_text, size_text

Place = Annotated[str, typer.Argument(metavar="PATH", help="The savepoint's folder or URL.")]


def add_to(app: typer.Typer) -> None:
    for command in (savepoints, describe, verify, copy, dispose):
        app.command()(command)


def savepoints(
    dir: Annotated[str, typer.Argument(help="A folder or URL with savepoints in it, or in folders below.")],
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """List the savepoints below a folder."""
    with errors():
        rows = [s.summary() for s in spark_ckpt.savepoints(dir, **storage_settings(storage or ()))]
    if as_json:
        typer.echo(json_text(rows))
    elif rows:
        heads = ("job", "checkpoint", "taken (UTC)", "operators", "path")
        typer.echo(text_table(heads, [_row(r) for r in rows], ("job", "path"), True, terminal_width()))
    else:
        typer.echo(f"There are no savepoints in {dir}.")


def describe(path: Place, storage: Storage = None, as_json: AsJson = False) -> None:
    """Show what is in a savepoint: job, time, sources with offsets, operators with columns and keys, sinks."""
    with errors():
        found = _savepoint(path, storage).describe()
    typer.echo(json_text(found) if as_json else _told(found))


def verify(
    dir: Annotated[str, typer.Argument(help="The folder or URL given as spark.ckpt.dir; without JOB, a savepoint's.")],
    job: Annotated[str | None, typer.Argument(help="The job's name.")] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Check that everything is there and whole that a job's checkpoints name, or a savepoint. Exit code 1 if not."""
    with errors():
        found = _savepoint(dir, storage) if job is None else open_job(dir, job, storage)
        with Console(stderr=True).status("reading") as status:
            problems = found.verify(lambda name: status.update(f"reading {name}"))
    if as_json:
        typer.echo(json_text(problems))
    else:
        print_names(problems, "problem", "everything is there and whole")
    if problems:
        raise typer.Exit(1)


def copy(path: Place, target: Path, storage: Storage = None, as_json: AsJson = False) -> None:
    """Copy a savepoint. Stopped on the way, the same command finishes it."""
    with errors():
        there = _savepoint(path, storage).copy(target)
    typer.echo(json_text({"path": there.path}) if as_json else f"the copy is complete: {target}")


def dispose(
    path: Place,
    force: Annotated[
        bool, typer.Option("--force", help="Though it is unfinished, or a job that began with it stands on it.")
    ] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Remove a savepoint for good. Nothing else is ever removed, and jobs that were started from it go on.

    Refused while a job stands on it: one that began with it and has no checkpoint of its own yet.
    """
    with errors():
        found = _savepoint(path, storage)
        found.dispose(force)
    typer.echo(json_text({"removed": found.path}) if as_json else f"the savepoint is removed: {path}")


def _savepoint(path: str, storage: Sequence[str] | None) -> Savepoint:
    return spark_ckpt.savepoint(path, **storage_settings(storage or ()))


def _row(found: Mapping[str, Any]) -> list[str]:
    taken = instant_text(found["completed_ms"]) if found["complete"] else "unfinished"
    return [found["job"], str(found["checkpoint"]), taken, str(found.get("operators", "")), found["path"]]


def _told(found: Mapping[str, Any]) -> str:
    more = ", drained" if found["drained"] else ""
    lines = [
        found["path"],
        f"job {found['job']}, checkpoint {found['checkpoint']} ({found['kind']}{more})",
        f"taken {instant_text(found['completed_ms'])} UTC, maxParallelism {found['max_parallelism']}",
    ]
    for uid, offset in found["sources"].items():
        lines += ["", f"source {uid}", f"    {json.dumps(offset)}"]
    for uid, table in found["operators"].items():
        lines += [
            "",
            f"operator {uid}: {table['keys']:,} keys, {table['files']} files, {size_text(table['size_bytes'])}",
        ]
        lines += [f"    {name} {kind}" for name, kind in table["columns"].items()]
    for uid, sink in found["sinks"].items():
        newest = "no checkpoint with rows" if sink["checkpoint"] is None else f"checkpoint {sink['checkpoint']}"
        lines += ["", f"sink {uid}: {newest}{' in ' if sink['target'] else ''}{sink['target']}"]
    return "\n".join(lines)
