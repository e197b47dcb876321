"""Pages of HTML from what a look at jobs has found. The template engine escapes every name and value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from spark_ckpt.monitoring import state_tables
from spark_ckpt.monitoring.findings import findings_of
from spark_ckpt.monitoring.overview import Overview, State
from spark_ckpt.monitoring.timeline import WORDS, timeline_of
from spark_ckpt.monitoring.words import age_text, instant_text, size_text
from spark_ckpt.storage.history import HistoryRow
from spark_ckpt.ui import _charts as charts

_ROWS = 50
_BAD = (State.FAILED, State.CRASHED, State.STUCK, State.ROLLING_BACK)


def jobs_page(dir: str, overviews: Sequence[Overview]) -> str:
    bad = sum(o.state in _BAD for o in overviews)
    states = Counter(o.state.value for o in overviews)
    now_ms = max((o.facts.now_ms for o in overviews), default=0)
    return render("jobs.html", dir=dir, jobs=overviews, bad=bad, states=states, now_ms=now_ms)


def job_page(overview: Overview | None) -> str | None:
    return None if overview is None else render("job.html", **_of_job(overview))


def checkpoint_page(job: str, row: HistoryRow | None) -> str | None:
    return None if row is None else render("checkpoint.html", job=job, **_of_checkpoint(row))


def compare_page(job: str, shown: Mapping[str, Any]) -> str:
    """``shown``: what the template ``compare.html`` asks for."""
    return render("compare.html", job=job, **shown)


def state_page(job: str, shown: Mapping[str, Any]) -> str:
    """``shown``: what the template ``state.html`` asks for."""
    return render("state.html", job=job, limits=state_tables, sql_works=state_tables.can_query(), **shown)


def report_page(overview: Overview) -> str:
    """Everything in one file: job, and its newest checkpoint that has a timeline. No script, nothing to load."""
    row = next((r for r in reversed(overview.facts.history) if timeline_of(r) is not None), None)
    found = {} if row is None else _of_checkpoint(row)
    style = Markup(files("spark_ckpt.ui").joinpath("static/style.css").read_text())
    return render("report.html", style=style, **_of_job(overview), **found)


def _of_job(overview: Overview) -> dict[str, Any]:
    history = overview.facts.history
    taken = [(_took(r), r.duration_ms or 0, r.outcome == "completed") for r in history]
    return {
        "o": overview,
        "now_ms": overview.facts.now_ms,
        "findings": findings_of(overview),
        "history": list(reversed(history))[:_ROWS],
        "savepoints": list(reversed(overview.facts.savepoints)),
        "statistics": overview.facts.statistics.get("checkpoints", {}),
        "durations": charts.bars(taken, f"How long the newest {len(taken)} checkpoints took"),
        "graph": charts.graph(overview),
    }


def _took(row: HistoryRow) -> str:
    return f"{row.id}: {row.outcome} {age_text(row.duration_ms)}".rstrip()


def _of_checkpoint(row: HistoryRow) -> dict[str, Any]:
    timeline = timeline_of(row)
    return {
        "row": row,
        "timeline": timeline,
        "gantt": "" if timeline is None else charts.gantt(timeline),
        "phases": list(WORDS.items()),
    }


def render(template: str, **values: Any) -> str:
    """A template of ours with ``values``, which are escaped."""
    return _environment().get_template(template).render(**values)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    env = Environment(
        loader=PackageLoader("spark_ckpt.ui"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(code=_code)
    env.filters.update(age=age_text, size=size_text, instant=_instant, number=lambda n: f"{n:,}", rate=_rate)
    env.globals.update(spark=charts.sparkline)
    return env


def _code(text: str) -> Markup:
    """What stands between two backticks is code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one of them is no quote
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(p) if n % 2 else escape(p) for n, p in enumerate(parts))


def _instant(ms: int | None) -> str:
    return f"{instant_text(ms)} UTC" if ms is not None else ""


def _rate(per_s: float | None) -> str:
    return "" if per_s is None else f"{per_s:,.0f}" if per_s >= 10 or not per_s else f"{per_s:.1f}"
