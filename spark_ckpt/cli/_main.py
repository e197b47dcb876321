"""``spark-ckpt``: look at a job's checkpoints and steer it, from outside its process.

Every command is a thin shell over :func:`spark_ckpt.job`; none starts Spark. Exit codes: 0 done, 1 the job or its
storage is not as it should be (the message says what to do), 2 wrong usage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

import spark_ckpt
from spark_ckpt.cli import _acts_commands, _monitoring_commands, _page_commands, _savepoint_commands, _state_commands
from spark_ckpt.cli._shared import (
    AsJson,
    Dir,
    Force,
    Name,
    Storage,
    Watch,
    errors,
    job_of,
    json_text,
    open_job,
    print_names,
    repeat,
)
from spark_ckpt.cli._statistics import counts_text, restored_text, statistics_text
from spark_ckpt.cli._text_table import terminal_width
from spark_ckpt.cli.history import history_text
from spark_ckpt.errors import ConfigError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

Option = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="SINK.NAME=VALUE", help="Option of one of the job's sinks; repeat it."),
]
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


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"spark-ckpt {spark_ckpt.__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")]


@app.callback()
def main(version: Version = False) -> None:
    """Checkpoints and savepoints of spark_ckpt jobs."""


@app.command("list")
def list_(dir: Dir, job: Name, storage: Storage = None, as_json: AsJson = False, watch: Watch = None) -> None:
    """List the job's checkpoints, newest last."""

    def show() -> str:
        rows = open_job(dir, job, storage).checkpoints()
        if as_json:
            return json_text(rows)
        return history_text(rows, terminal_width()) if rows else f"{job} has no checkpoints in {dir}."

    repeat(show, watch)


@app.command()
def stats(
    dir: Dir,
    job: Name,
    subtasks: Annotated[bool, typer.Option("--subtasks", help="Each operator's subtasks, too.")] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Show what the job's checkpoints were like since it began: counts, durations and sizes, by operator."""
    with errors():
        opened = open_job(dir, job, storage)
        opened.require()
        found = opened.statistics()
    if as_json:
        typer.echo(json_text(found))
        return
    typer.echo(counts_text(found))
    for there, text in (
        (found["checkpoints"], statistics_text(found, subtasks)),
        (found["restored"], restored_text(found)),
    ):
        if there:
            typer.echo(f"\n{text}")


@app.command()
def show(
    dir: Dir,
    job: Name,
    checkpoint: Annotated[int, typer.Argument(help="The checkpoint's id.")],
    storage: Storage = None,
) -> None:
    """Show everything one checkpoint recorded, and the settings it was taken by, as JSON; or why it was given up."""
    with errors():
        found = open_job(dir, job, storage)
        gone = found.aborted(checkpoint)
        if gone is not None:
            typer.echo(json_text(gone.to_json()))
            return
        record = found.show(checkpoint)
        # What hooks keep is theirs, and may be large or secret.
        hook = record.hook and {"name": record.hook.name, "size_bytes": len(record.hook.state)}
        body = {**record.to_json(), "hook": hook}
        given_up = [r.sink for r in found.abandoned() if r.checkpoint == checkpoint]
        settings = found.settings(checkpoint)
    typer.echo(json_text({**body, "abandoned": given_up, "settings": settings}))


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
    with errors():
        open_job(dir, job, storage).abandon(checkpoint, sink, force=force)
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
    with errors():
        open_job(dir, job, storage).accept(checkpoint, sink, force=force)
    typer.echo(f"the job may start with sink {sink} at checkpoint {checkpoint}")


@app.command()
def rollback(
    dir: Dir,
    job: Name,
    checkpoint: Annotated[int, typer.Argument(help="The id of the retained checkpoint to go back to.")],
    partial: Annotated[
        bool, typer.Option("--partial", help="Though some sinks keep their rows, which are then written again.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    option: Option = None,
    confirm: Confirm = None,
    force: Force = False,
    storage: Storage = None,
) -> None:
    """Take state, offsets and sinks back to a checkpoint. Only while the job is stopped; the next start goes on there.

    Delta and Iceberg tables go back to the version of the checkpoint, files and rows behind it are removed. A sink that
    cannot go back keeps what it has: without --partial nothing is done then. Sinks and options are as with gc.
    """
    with errors():
        found = _with_recorded_sinks(open_job(dir, job, storage), option, confirm)
        done = found.rollback(checkpoint, partial, dry_run, force)
    typer.echo(f"{done}\n{'nothing was changed' if dry_run else 'done: the next start goes on from there'}")


@app.command()
def plan(
    dir: Dir,
    job: Name,
    samples: Annotated[
        int, typer.Option("--samples", min=0, help="Rows to show, keys and values, of each state that changes.")
    ] = 0,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Show what the start that waits to be approved would make of the job: what is kept, begins empty, is dropped."""
    with errors():
        found = open_job(dir, job, storage).plan(samples)
    if as_json:
        typer.echo(json_text(None if found is None else found.to_json()))
    else:
        typer.echo(found or f"No start of {job} waits to be approved.")


@app.command()
def approve(dir: Dir, job: Name, storage: Storage = None) -> None:
    """Let the start that waits (spark.ckpt.restore.approve=ask) go on, and lose what its plan says."""
    with errors():
        found = open_job(dir, job, storage).approve()
    typer.echo(f"{found}\napproved")


@app.command()
def gc(
    dir: Dir,
    job: Name,
    option: Option = None,
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
    with errors():
        found = job_of(dir, job, storage)
        if sink:
            found = found.with_sinks(sink, _sink_options(option or ()))
        else:
            found.require()
            found = _with_recorded_sinks(found, option, confirm)
        if others:
            staged = [f"{who} in sink {name}: {count}" for name, who, count in found.staged_by_others()]
        else:
            removed = found.gc(force=force) if gone is None else found.discard(gone)
    if others:
        print_names(staged, "staged", "nothing is staged by others of that name")
    else:
        print_names(removed, "removed", "nothing to remove")


@app.command("repair-history")
def repair_history(dir: Dir, job: Name, storage: Storage = None) -> None:
    """Make the table behind `list` anew, from the job's records and the rows that can still be read."""
    with errors():
        rows = open_job(dir, job, storage).repair_history()
    typer.echo(f"the history has {rows} checkpoint(s)")


_acts_commands.add_to(app)
_monitoring_commands.add_to(app)
_page_commands.add_to(app)
_savepoint_commands.add_to(app)
_state_commands.add_to(app)


def _with_recorded_sinks(job: Any, option: Sequence[str] | None, confirm: Sequence[str] | None) -> Any:
    """The job with the sinks that its folder names; says which are left out."""
    found, left_out = job.with_recorded_sinks(_sink_options(option or ()), confirm or ())
    for reason in left_out:
        typer.secho(f"left out: {reason}", fg=typer.colors.YELLOW, err=True)
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
