"""A job seen live until it ends: in a notebook as HTML in one place, elsewhere a line for each change. No Spark."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

from spark_ckpt import shown
from spark_ckpt.jobs.heartbeat import beats, heartbeats
from spark_ckpt.jobs.job import Job
from spark_ckpt.monitoring.folder import look_at
from spark_ckpt.monitoring.overview import Overview
from spark_ckpt.monitoring.words import age_text


def watch(
    job: Job,
    alive: Callable[[], bool] | None = None,
    every_s: float = 2.0,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Show ``job`` every ``every_s`` seconds while ``alive()``, and once more when it is no more. ``alive``: whether
    its query runs; not given: whether any driver is heard of. Ctrl-C ends the view and not the job."""
    show, goes_on = _screen(), alive or (lambda: any(map(beats, heartbeats(job.records))))
    try:
        while goes_on():
            show(job)
            wait(every_s)
    except KeyboardInterrupt:
        return
    show(job)


def line_of(overview: Overview) -> str:
    """A job in one line, without what changes with each look."""
    at = f", checkpoint {overview.checkpoint}" if overview.checkpoint is not None else ""
    behind = f", sinks {age_text(overview.behind_ms)} behind" if overview.behind_ms is not None else ""
    why = f": {overview.why}" if overview.why else ""
    return f"{overview.job} {overview.state.value}{why}{at}, {overview.keys:,} keys{behind}"


def _screen() -> Callable[[Job], None]:
    return _Page() if shown.in_notebook() else _Lines()


class _Lines:
    def __init__(self) -> None:
        self._said: tuple[Any, ...] = ()

    def __call__(self, job: Job) -> None:
        seen = look_at(job, newest=0)
        now = (seen.state, seen.why, seen.checkpoint)
        if now != self._said:
            print(line_of(seen), flush=True)  # noqa: T201
        self._said = now


class _Page:
    """One place of the notebook, whose contents are replaced."""

    def __init__(self) -> None:
        self._display = importlib.import_module("IPython.display")
        self._place: Any = None

    def __call__(self, job: Job) -> None:
        text = shown.html("job", job)
        made = self._display.Pretty(line_of(look_at(job, newest=0))) if text is None else self._display.HTML(text)
        if self._place is None:
            self._place = self._display.display(made, display_id=True)
        else:
            self._place.update(made)
