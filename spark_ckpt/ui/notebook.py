"""What a notebook shows of a job, a folder of jobs, checkpoints, state and plans, as HTML without a script.

:mod:`spark_ckpt.shown` finds these functions by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from spark_ckpt.config import JobConfig
from spark_ckpt.jobs.job import Job
from spark_ckpt.jobs.state import State
from spark_ckpt.monitoring.facts import BRIEF
from spark_ckpt.monitoring.findings import findings_of
from spark_ckpt.monitoring.folder import jobs_in, look_at
from spark_ckpt.monitoring.graph import kinds_of, layout
from spark_ckpt.monitoring.words import age_text, size_text
from spark_ckpt.ui import _charts as charts
from spark_ckpt.ui.pages import render

if TYPE_CHECKING:
    from spark_ckpt.protocol.records import Edge
    from spark_ckpt.protocol.restore_plan import RestorePlan

_ROWS = 20
_PLOTTED = 200


def job(job: Job) -> str:
    """How it is now: reads its folder."""
    seen = look_at(job)
    rows = [{"duration_ms": r.duration_ms, **vars(r)} for r in seen.facts.history]
    return _cell("job", o=seen, findings=findings_of(seen), graph=charts.graph(seen), plots=_plots(rows))


def jobs(config: JobConfig) -> str:
    """Those of the folder. Reads some tens of small files for each."""
    options = {f"storage.{name}": value for name, value in config.storage.items()}
    found = [look_at(job, BRIEF) for job in jobs_in(config.dir, **options)]
    return _cell("jobs", jobs=found)


def checkpoints(rows: Sequence[dict[str, Any]]) -> str:
    return _cell("checkpoints", rows=rows[: -_ROWS - 1 : -1], count=len(rows), plots=_plots(rows))


def state(state: State) -> str:
    """Its first rows."""
    found = state.head(_ROWS + 1)
    rows = found.slice(0, _ROWS).to_pylist()
    return _cell("state", state=state, columns=found.column_names, rows=rows, more=found.num_rows > _ROWS)


def plan(plan: RestorePlan) -> str:
    return _cell("plan", plan=plan)


def graph(
    edges: Iterable[Edge], sources: Sequence[str], operators: Sequence[str], sinks: Sequence[str], text: str
) -> str:
    drawn = charts.drawn(layout(kinds_of(sources, operators, sinks), edges, {}))
    return _cell("graph", graph=drawn, text=text)


def _plots(rows: Sequence[dict[str, Any]]) -> list[Any]:
    """Durations and sizes of the newest checkpoints."""
    newest = rows[-_PLOTTED:]
    took = [(f"{r['id']}: {age_text(r['duration_ms'])}", r["duration_ms"] or 0, _good(r)) for r in newest]
    size = [(f"{r['id']}: {size_text(r['written_bytes'])}", r["written_bytes"], _good(r)) for r in newest]
    labels = ("How long the newest checkpoints took", "Bytes that the newest checkpoints wrote")
    return [(label, charts.bars(values, label)) for label, values in zip(labels, (took, size), strict=True) if values]


def _good(row: dict[str, Any]) -> bool:
    return bool(row["outcome"] == "completed")


def _cell(what: str, **values: Any) -> str:
    return render("notebook.html", what=what, **values)
