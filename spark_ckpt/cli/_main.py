"""``spark-ckpt``: look at a job's checkpoints and steer it, from outside its process.

Every command is a thin shell over :func:`spark_ckpt.job`; none starts Spark. Exit codes: 0 done, 1 the job or its
storage is not as it should be (the message says what to do), 2 wrong usage.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, is_dataclass
from typing import Annotated, Any

import typer
from rich.console import Console

import spark_ckpt
from spark_ckpt.cli._statistics import WIDTH, counts_text, restored_table, statistics_table
from spark_ckpt.cli.history import history_table
from spark_ckpt.config import STORAGE
from spark_ckpt.errors import CkptError, ConfigError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

Dir = Annotated[str, typer.Argument(help="The folder or URL given as spark.ckpt.dir.")]
Name = Annotated[str, typer.Argument(help="The job's name.")]
Path = Annotated[str, typer.Argument(help="An empty folder or URL to write the savepoint to.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait before giving up.")]
Storage = Annotated[
    list[str] | None,
    typer.Option("--storage", "-s", metavar="NAME=VALUE", help="Option of the object store; repeat it."),
]
Force = Annotated[bool, typer.Option("--force", help="Though a driver seems to run the job: you know that none does.")]
Confirm = Annotated[
    list[str] | None,
    typer.Option("--confirm", metavar="SINK", help="Secrets may go where the folder says this sink is; repeat it."),
]
Sinks = Annotated[
    list[str] | None,
    typer.Option("--sink", metavar="FORMAT", help="A sink by its format, not as the folder records it; repeat it."),
]
Others = Annotated[bool, typer.Option("--others", help="Only list what others of the job's name staged.")]
Gone = Annotated[
    str | None, typer.Option("--gone", metavar="WHO", help="Remove what this one of --others staged: it is gone.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def _say(text: str) -> None:
    """To who waits, and not into what is printed for programs."""
    typer.echo(text, err=True)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"spark-ckpt {spark_ckpt.__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")]


@app.callback()
def main(version: Version = False) -> None:
    """Checkpoints and savepoints of spark_ckpt jobs."""


@app.command("list")
def list_(dir: Dir, job: Name, storage: Storage = None, as_json: AsJson = False) -> None:
    """List the job's checkpoints, newest last."""
    with _errors():
        found = _open(dir, job, storage)
        rows = found.checkpoints()
    if as_json:
        typer.echo(_json(rows))
    elif rows:
        Console().print(history_table(rows))
    else:
        typer.echo(f"{job} has no checkpoints in {dir}.")


@app.command()
def stats(
    dir: Dir,
    job: Name,
    subtasks: Annotated[bool, typer.Option("--subtasks", help="Each operator's subtasks, too.")] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Show what the job's checkpoints were like since it began: counts, durations and sizes, by operator."""
    with _errors():
        opened = _open(dir, job, storage)
        opened.require()
        found = opened.statistics()
    if as_json:
        typer.echo(_json(found))
        return
    typer.echo(counts_text(found))
    console = Console(width=max(Console().width, WIDTH))
    if found["checkpoints"]:
        console.print(statistics_table(found, subtasks))
    if found["restored"]:
        console.print(restored_table(found))


@app.command()
def show(
    dir: Dir,
    job: Name,
    checkpoint: Annotated[int, typer.Argument(help="The checkpoint's id.")],
    storage: Storage = None,
) -> None:
    """Show everything one checkpoint recorded, and the settings it was taken by, as JSON; or why it was given up."""
    with _errors():
        found = _open(dir, job, storage)
        gone = found.aborted(checkpoint)
        if gone is not None:
            typer.echo(_json(gone.to_json()))
            return
        record = found.show(checkpoint)
        # What hooks keep is theirs, and may be large or secret.
        hook = record.hook and {"name": record.hook.name, "size_bytes": len(record.hook.state)}
        body = {**record.to_json(), "hook": hook}
        given_up = [r.sink for r in found.abandoned() if r.checkpoint == checkpoint]
        settings = found.settings(checkpoint)
    typer.echo(_json({**body, "abandoned": given_up, "settings": settings}))


@app.command()
def savepoint(dir: Dir, job: Name, path: Path, timeout: Timeout = 600.0, storage: Storage = None) -> None:
    """Ask the running job for a savepoint, and wait until it is complete."""
    with _errors():
        done = _open(dir, job, storage).savepoint(path, timeout, _say)
    typer.echo(f"savepoint of checkpoint {done} is complete: {path}")


@app.command()
def stop(
    dir: Dir,
    job: Name,
    path: Annotated[str | None, typer.Argument(help="An empty folder or URL for the savepoint.")] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="End the job for good: let event-time time-outs fire first. Needs no PATH.")
    ] = False,
    timeout: Timeout = 600.0,
    storage: Storage = None,
) -> None:
    """Ask the running job for a savepoint behind which it processes nothing; then its process can be ended.

    With --drain the query ends by itself, and its job is not meant to go on later.
    """
    if path is None and not drain:
        raise typer.BadParameter("give PATH, a folder for the savepoint, or --drain")
    with _errors():
        done = _open(dir, job, storage).stop(path, timeout, drain, _say)
    what = f"checkpoint {done} is complete" if path is None else f"savepoint of checkpoint {done} is complete: {path}"
    typer.echo(f"{what}; the job {'is drained and ends' if drain else 'stands still and can be ended'}")


@app.command()
def abandon(
    dir: Dir,
    job: Name,
    checkpoint: Annotated[int, typer.Argument(help="The completed checkpoint's id.")],
    sink: Annotated[str, typer.Option("--sink", help="The sink that cannot commit it, as the error names it.")],
    force: Force = False,
    storage: Storage = None,
) -> None:
    """Give up for good what a checkpoint would commit in one sink. Only while the job is stopped."""
    with _errors():
        _open(dir, job, storage).abandon(checkpoint, sink, force=force)
    typer.echo(
        f"checkpoint {checkpoint} will not be committed in sink {sink}; start the job to commit it in the others"
    )


@app.command()
def accept(
    dir: Dir,
    job: Name,
    checkpoint: Annotated[int, typer.Argument(help="The checkpoint that the sink shows, as the error says; 0: none.")],
    sink: Annotated[str, typer.Option("--sink", help="The sink that was set back, as the error names it.")],
    force: Force = False,
    storage: Storage = None,
) -> None:
    """Let a job start though a sink, or the job's folder, was set back to an older copy. Only while it is stopped.

    A sink that is behind lacks the rows in between for good; one that is ahead gets rows again.
    """
    with _errors():
        _open(dir, job, storage).accept(checkpoint, sink, force=force)
    typer.echo(f"the job may start with sink {sink} at checkpoint {checkpoint}")


@app.command()
def gc(
    dir: Dir,
    job: Name,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="SINK.NAME=VALUE", help="Option of one of the job's sinks; repeat it."),
    ] = None,
    confirm: Confirm = None,
    sink: Sinks = None,
    others: Others = False,
    gone: Gone = None,
    force: Force = False,
    storage: Storage = None,
) -> None:
    """Remove what no retained checkpoint needs, from the job's folder and its sinks. Only while the job is stopped.

    The sinks are those of the job's last start, as its folder records them, without secrets. What is missing
    (a URL with a password) comes from --option, or from the environment: SPARK_CKPT_SINK_<ID>_<OPTION>, in
    capitals and with _ for what is no letter or digit, such as SPARK_CKPT_SINK_SQL_URL. Sinks of your own classes
    are left out: use spark_ckpt.job(dir, name, sinks).gc().

    What other lives of the job staged (its folder was removed), or jobs of its name in other folders, is left alone:
    --others lists it, --gone removes it by name. With --sink and --option, for a folder that is not there any more.
    """
    with _errors():
        found = _job(dir, job, storage)
        if sink:
            found = found.with_sinks(sink, _sink_options(option or ()))
        else:
            found.require()
            found, left_out = found.with_recorded_sinks(_sink_options(option or ()), confirm or ())
            for reason in left_out:
                typer.secho(f"left out: {reason}", fg=typer.colors.YELLOW, err=True)
        if others:
            staged = [f"{who} in sink {name}: {count}" for name, who, count in found.staged_by_others()]
        else:
            removed = found.gc(force=force) if gone is None else found.discard(gone)
    if others:
        _print_names(staged, "staged", "nothing is staged by others of that name")
    else:
        _print_names(removed, "removed", "nothing to remove")


@app.command("repair-history")
def repair_history(dir: Dir, job: Name, storage: Storage = None) -> None:
    """Make the table behind `list` anew, from the job's records and the rows that can still be read."""
    with _errors():
        rows = _open(dir, job, storage).repair_history()
    typer.echo(f"the history has {rows} checkpoint(s)")


@app.command()
def verify(dir: Dir, job: Name, storage: Storage = None) -> None:
    """Check that everything the job's checkpoints name is there and whole. Exit code 1 if not."""
    with _errors():
        found = _open(dir, job, storage)
        with Console(stderr=True).status("reading") as status:
            problems = found.verify(lambda name: status.update(f"reading {name}"))
    _print_names(problems, "problem", "everything is there and whole")
    if problems:
        raise typer.Exit(1)


def _job(dir: str, job: str, storage: Sequence[str] | None) -> Any:
    return spark_ckpt.job(dir, job, (), **_storage(storage or ()))


def _open(dir: str, job: str, storage: Sequence[str] | None) -> Any:
    """The job, which there must be."""
    found = _job(dir, job, storage)
    found.require()
    return found


def _sink_options(pairs: Sequence[str]) -> dict[str, str]:
    """``--option`` as SINK.NAME to value."""
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (equals and name):
            # The text may be a secret whose name was forgotten.
            raise ConfigError("--option expects SINK.NAME=VALUE, for example --option sql.url=...")
        options[name] = value
    return options


def _storage(pairs: Sequence[str]) -> dict[str, str]:
    """``--storage`` options as configuration keys."""
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            # The text may be a secret whose name was forgotten.
            raise ConfigError("--storage expects NAME=VALUE, for example --storage key=...")
        options[f"{STORAGE}{name}"] = value
    return options


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except CkptError as error:
        typer.secho(str(error), fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from None


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, default=_plain)


def _print_names(names: Sequence[Any], label: str, otherwise: str) -> None:
    for name in names:
        typer.echo(f"{label}: {name}")
    if not names:
        typer.echo(otherwise)


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)
