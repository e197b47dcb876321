"""The commands that ask a running job for something, and wait for its answer or leave an id to ask for later."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from spark_ckpt.cli._shared import AsJson, Dir, Name, Path, Storage, errors, json_text, open_job

Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait before giving up.")]
Detach = Annotated[bool, typer.Option("--detach", help="Do not wait: print an id, for `spark-ckpt requested`.")]


def add_to(app: typer.Typer) -> None:
    for command in (checkpoint, savepoint, stop, pause, resume, requested):
        app.command()(command)
    app.command("await")(await_)


def checkpoint(
    dir: Dir,
    job: Name,
    detach: Detach = False,
    timeout: Timeout = 600.0,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Ask the running job for a checkpoint, and wait until every sink has committed it."""
    with errors():
        found = open_job(dir, job, storage)
        if detach:
            _tell_request(found.request_checkpoint(timeout), as_json)
            return
        done = found.checkpoint(timeout, say)
    _tell(as_json, f"checkpoint {done} is complete", checkpoint=done)


def savepoint(
    dir: Dir,
    job: Name,
    path: Path,
    from_: Annotated[
        int | None,
        typer.Option("--from", metavar="CHECKPOINT", help="Copy this retained checkpoint. The job need not run."),
    ] = None,
    detach: Detach = False,
    timeout: Timeout = 600.0,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Ask the running job for a savepoint, and wait until it is complete."""
    with errors():
        found = open_job(dir, job, storage)
        if detach:
            _tell_request(found.request_savepoint(path, timeout), as_json)
            return
        done = found.savepoint(path, timeout, say, from_)
    _tell(as_json, f"savepoint of checkpoint {done} is complete: {path}", checkpoint=done, path=path)


def stop(
    dir: Dir,
    job: Name,
    path: Annotated[str | None, typer.Argument(help="An empty folder or URL for the savepoint.")] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="End the job for good: let event-time time-outs fire first. Needs no PATH.")
    ] = False,
    detach: Detach = False,
    timeout: Timeout = 600.0,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Ask the running job for a savepoint behind which it processes nothing; then its process can be ended.

    With --drain the query ends by itself, and its job is not meant to go on later.
    """
    if path is None and not drain:
        raise typer.BadParameter("give PATH, a folder for the savepoint, or --drain")
    with errors():
        found = open_job(dir, job, storage)
        if detach:
            _tell_request(found.request_stop(path, timeout, drain), as_json)
            return
        done = found.stop(path, timeout, drain, say)
    what = f"checkpoint {done} is complete" if path is None else f"savepoint of checkpoint {done} is complete: {path}"
    then = "is drained and ends" if drain else "stands still and can be ended"
    _tell(as_json, f"{what}; the job {then}", checkpoint=done, path=path, drained=drain)


def pause(
    dir: Dir,
    job: Name,
    reason: Annotated[str, typer.Option("--reason", help="Why: `spark-ckpt status` and starts of the job show it.")],
    detach: Detach = False,
    timeout: Timeout = 600.0,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Let a job's sources stand still behind a checkpoint, until `spark-ckpt resume`. The query goes on.

    It holds for later starts, too. Of a job that does not run the next start reads nothing.
    """
    with errors():
        found = open_job(dir, job, storage)
        if detach:
            request = found.request_pause(reason, timeout)
            if request is not None:
                _tell_request(request, as_json)
                return
            done = None
        else:
            done = found.pause(reason, timeout, say)
        stands = found.paused()
    still = "no driver runs it: the next start reads nothing"
    shown = f"its sinks show all that was read, with checkpoint {done}"
    _tell(as_json, f"{job} is paused ({stands.reason}); {still if done is None else shown}",
          checkpoint=done, reason=stands.reason, since_ms=stands.time_ms)  # fmt: skip


def resume(dir: Dir, job: Name, storage: Storage = None, as_json: AsJson = False) -> None:
    """Let a job that is paused read on."""
    with errors():
        was = open_job(dir, job, storage).resume()
    text = f"{job} was not paused" if was is None else f"{job} is resumed; it was paused: {was.reason}"
    _tell(as_json, text, resumed=was is not None, reason=was and was.reason)


def await_(
    dir: Dir,
    job: Name,
    offsets: Annotated[
        str,
        typer.Option("--offsets", metavar="JSON", help="Uid to offset, as in `spark-ckpt status --json`."),
    ],
    timeout: Timeout = 600.0,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Wait until every sink shows all that sources had in front of these offsets. Exit code 1 if time runs out."""
    try:
        wanted = json.loads(offsets)
    except ValueError:
        wanted = None
    if not isinstance(wanted, dict):
        raise typer.BadParameter('expected a JSON object such as {"orders": {"version": 12, "index": 0}}')
    with errors():
        done = open_job(dir, job, storage).await_visible(wanted, timeout, say)
    _tell(as_json, f"every sink shows it, with checkpoint {done}", checkpoint=done)


def requested(
    dir: Dir,
    job: Name,
    request: Annotated[str, typer.Argument(help="What --detach printed.")],
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Show what became of what was asked for with --detach. Exit code 1 if it failed."""
    with errors():
        found = open_job(dir, job, storage).requested(request)
    typer.echo(json_text(found) if as_json else found)
    if found.state == "failed":
        raise typer.Exit(1)


def say(text: str) -> None:
    """To who waits, and not into what is printed for programs."""
    typer.echo(text, err=True)


def _tell(as_json: bool, text: str, **facts: Any) -> None:
    typer.echo(json_text(facts) if as_json else text)


def _tell_request(request: str, as_json: bool) -> None:
    _tell(as_json, request, request=request)
