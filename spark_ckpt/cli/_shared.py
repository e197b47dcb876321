"""What the commands share: arguments, how errors and JSON are printed, how a job is opened."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, is_dataclass
from typing import Annotated, Any

import typer
from rich.console import Console

import spark_ckpt
from spark_ckpt.config import STORAGE
from spark_ckpt.errors import CkptError, ConfigError

Dir = Annotated[str, typer.Argument(help="The folder or URL given as spark.ckpt.dir.")]
Name = Annotated[str, typer.Argument(help="The job's name.")]
Path = Annotated[str, typer.Argument(help="An empty folder or URL to write the savepoint to.")]
Storage = Annotated[
    list[str] | None,
    typer.Option("--storage", "-s", metavar="NAME=VALUE", help="Option of the object store; repeat it."),
]
Force = Annotated[bool, typer.Option("--force", help="Though a driver seems to run the job: you know that none does.")]
Watch = Annotated[
    float | None, typer.Option("--watch", metavar="SECONDS", help="Show it again every so many seconds, until Ctrl-C.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def job_of(dir: str, job: str, storage: Sequence[str] | None) -> Any:
    return spark_ckpt.job(dir, job, (), **storage_settings(storage or ()))


def open_job(dir: str, job: str, storage: Sequence[str] | None) -> Any:
    """The job, which there must be."""
    found = job_of(dir, job, storage)
    found.require()
    return found


def storage_settings(pairs: Sequence[str]) -> dict[str, str]:
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
def errors() -> Iterator[None]:
    try:
        yield
    except CkptError as error:
        typer.secho(str(error), fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from None


def repeat(show: Callable[[], str], every_s: float | None) -> None:
    """Print what ``show`` gives, once or every so many seconds, on a cleared screen then."""
    again = False
    while True:
        with errors():
            text = show()
        if again:
            Console().clear()
        typer.echo(text)
        if every_s is None:
            return
        time.sleep(every_s)
        again = True


def json_text(value: Any) -> str:
    return json.dumps(value, indent=2, default=_plain)


def print_names(names: Sequence[Any], label: str, otherwise: str) -> None:
    for name in names:
        typer.echo(f"{label}: {name}")
    if not names:
        typer.echo(otherwise)


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)
