"""The commands that show jobs as pages: a server, and a file. They need the extra ``ui``."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from spark_ckpt.cli._shared import Dir, Name, Storage, errors, open_job, storage_settings
from spark_ckpt.errors import ConfigError
from spark_ckpt.monitoring.folder import look_at

_LOOPBACK = ("127.0.0.1", "localhost", "::1")

Host = Annotated[str, typer.Option("--host", help="The address to listen at. Others than loopback need a token.")]
Port = Annotated[int, typer.Option("--port", help="The port to listen at; 0: one that is free.")]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="SPARK_CKPT_UI_TOKEN", help="What a browser has to give. Without: one is made."),
]
ShowState = Annotated[bool, typer.Option("--state", help="Show rows of state, too. Needs a token at any address.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="The HTML file to write.")]


def add_to(app: typer.Typer) -> None:
    for command in (ui, report):
        app.command()(command)


def ui(
    dir: Dir,
    host: Host = "127.0.0.1",
    port: Port = 8466,
    token: Token = None,
    state: ShowState = False,
    storage: Storage = None,
) -> None:
    """Show the jobs of a folder in a browser, while they run or not. It only reads; Ctrl-C ends it."""
    with errors():
        _require_extra()
        from spark_ckpt.ui.app import LOOPBACK, create_app
        from spark_ckpt.ui.server import serve

        if (state or host not in _LOOPBACK) and token is None:
            token = secrets.token_urlsafe(24)
        hosts = LOOPBACK if host in _LOOPBACK else ["*"]
        made = create_app(dir, token, hosts, state, **storage_settings(storage or ()))
        serve(made, host, port, lambda url: typer.echo(f"{url}/?token={token}" if token else url))


def report(dir: Dir, job: Name, file: File, storage: Storage = None) -> None:
    """Write a job's page into one HTML file, which needs nothing else: for a ticket, or a machine without a server."""
    with errors():
        _require_extra()
        from spark_ckpt.ui.pages import report_page

        text = report_page(look_at(open_job(dir, job, storage)))
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"the report cannot be written: {error}") from None
    typer.echo(f"written: {file}")


def _require_extra() -> None:
    try:
        import jinja2  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"the page needs {error.name} and more: pip install 'spark-ckpt[ui]'") from None
