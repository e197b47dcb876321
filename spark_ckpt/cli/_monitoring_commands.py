"""The commands that only look: which jobs there are, how one is, what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any

import typer

from spark_ckpt.cli._shared import (
    AsJson,
    Dir,
    Name,
    Storage,
    Watch,
    errors,
    json_text,
    open_job,
    repeat,
    storage_settings,
)
from spark_ckpt.cli._text_table import terminal_width, text_table
from spark_ckpt.cli._top import live_screen
from spark_ckpt.monitoring.facts import BRIEF
from spark_ckpt.monitoring.findings import Finding, Severity, findings_of
from spark_ckpt.monitoring.folder import jobs_in, look_at
from spark_ckpt.monitoring.overview import Overview, SourceView, State
from spark_ckpt.monitoring.words import age_text, instant_text, size_text, sparkline

Every = Annotated[float, typer.Option("--every", min=0.1, metavar="SECONDS", help="Look again after so long.")]

_JOBS = ("job", "state", "since", "checkpoint", "behind", "keys", "state size", "durations", "why")
_LEFT = ("job", "state", "durations", "why")
_URGENT = {state: at for at, state in enumerate((State.FAILED, State.CRASHED, State.STUCK, State.WAITS))}
_TEXTS = ("source", "operator", "sink", "reads", "offset", "target")


def add_to(app: typer.Typer) -> None:
    for command in (jobs, top, status, doctor):
        app.command()(command)


def jobs(dir: Dir, storage: Storage = None, as_json: AsJson = False, watch: Watch = None) -> None:
    """List the jobs of a folder: state, newest checkpoint, how old what the sinks show is, size of the state."""

    def show() -> str:
        found = _looks(dir, storage)
        return json_text([as_plain(o) for o in found]) if as_json else _jobs_text(dir, found)

    repeat(show, watch)


def top(dir: Dir, every: Every = 2.0, storage: Storage = None) -> None:
    """Show the jobs of a folder on one live screen, those that need somebody first. q or Ctrl-C ends it."""

    def show() -> str:
        found = sorted(_looks(dir, storage), key=lambda o: (_URGENT.get(o.state, len(_URGENT)), o.job))
        return _jobs_text(dir, found)

    with errors():
        live_screen(show, every)


def status(dir: Dir, job: Name, storage: Storage = None, as_json: AsJson = False, watch: Watch = None) -> None:
    """Show how a job is: its state, what each source has read, the state of each operator, what each sink shows."""

    def show() -> str:
        found = look_at(open_job(dir, job, storage))
        return json_text(as_plain(found)) if as_json else _status_text(found)

    repeat(show, watch)


def doctor(dir: Dir, job: Name, storage: Storage = None, as_json: AsJson = False) -> None:
    """Say what is wrong with a job or about to be, and what to do. Exit code 1 for an error, 0 for warnings alone."""
    with errors():
        found = findings_of(look_at(open_job(dir, job, storage), listing=True))
    if as_json:
        typer.echo(json_text([{**vars(f), "severity": f.severity.value} for f in found]))
    else:
        for finding in found:
            _print_finding(finding)
        if not found:
            typer.echo(f"Nothing is wrong with {job}, as far as its folder tells.")
    if any(f.severity is Severity.ERROR for f in found):
        raise typer.Exit(1)


def _looks(dir: str, storage: list[str] | None) -> list[Overview]:
    return [look_at(job, BRIEF) for job in jobs_in(dir, **storage_settings(storage or ()))]


def _jobs_text(dir: str, found: Sequence[Overview]) -> str:
    if not found:
        return f"There are no jobs in {dir}."
    return text_table(_JOBS, [_row(o) for o in found], _LEFT, True, terminal_width() or 80)


def _print_finding(finding: Finding) -> None:
    bad = finding.severity is Severity.ERROR
    typer.secho(f"{finding.severity.value}: {finding.what}", fg=typer.colors.RED if bad else typer.colors.YELLOW)
    typer.echo(f"    {finding.todo}")


def as_plain(overview: Overview) -> dict[str, Any]:
    """For programs: the overview without the facts that it is made of."""
    plain = {f.name: getattr(overview, f.name) for f in fields(overview) if f.name != "facts"}
    plain["state"] = overview.state.value
    plain["behind_ms"] = overview.behind_ms
    plain["problems"] = list(overview.facts.problems)
    return plain


def _row(overview: Overview) -> Sequence[str]:
    return (
        overview.job,
        overview.state.value,
        _age(overview, overview.since_ms),
        str(overview.checkpoint or ""),
        age_text(overview.behind_ms),
        f"{overview.keys:,}",
        size_text(overview.state_bytes),
        sparkline(overview.durations_ms[-12:]),
        overview.why,
    )


def _age(overview: Overview, at_ms: int | None) -> str:
    return "" if at_ms is None else age_text(overview.facts.now_ms - at_ms)


def _status_text(o: Overview) -> str:
    since = "" if o.since_ms is None else f" for {_age(o, o.since_ms)}"
    lines = [f"{o.job}: {o.state.value}{since}" + (f", {o.why}" if o.why else "")]
    if o.checkpoint is not None and o.completed_ms is not None:
        lines.append(
            f"checkpoint {o.checkpoint} is complete since {_age(o, o.completed_ms)}; start {o.start} of the job"
        )
    sections = (
        (
            ("source", "not read yet", "reads", "offset"),
            [[s.uid, _left(s), s.reads, "" if s.offset is None else str(s.offset)] for s in o.sources],
        ),
        (
            ("operator", "keys", "size", "files", "watermark (UTC)", "late"),
            [
                [p.uid, f"{p.keys:,}", size_text(p.size_bytes), str(p.files), instant_text(p.watermark_ms), str(p.late)]
                for p in o.operators
            ],
        ),
        (
            ("sink", "shows", "behind", "event time (UTC)", "waiting", "target"),
            [
                [s.id, str(s.shows), age_text(s.behind_ms), instant_text(s.event_time_ms), _ids(s.waiting), s.target]
                for s in o.sinks
            ],
        ),
    )
    width = terminal_width() or 80
    for heads, rows in sections:
        if rows:
            lines += [
                "",
                text_table(heads, rows, _TEXTS, heads[0] != "operator", width),
            ]
    lines += [f"\nnot read: {problem}" for problem in o.facts.problems]
    return "\n".join(lines)


def _left(source: SourceView) -> str:
    return "" if source.behind is None else f"{source.behind:,} {source.counts}".rstrip()


def _ids(checkpoints: Sequence[int]) -> str:
    return ", ".join(map(str, checkpoints))
