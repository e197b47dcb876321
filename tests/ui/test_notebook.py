"""What a notebook shows: jobs, checkpoints, state and plans as HTML, and a view that ends with the job. No Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from spark_ckpt import shown
from spark_ckpt.execution.job_graph import JobGraph, Step
from spark_ckpt.execution.lineage import Lineage, SourceNode
from spark_ckpt.jobs.checkpoints import Checkpoints
from spark_ckpt.jobs.state import State
from spark_ckpt.monitoring.live import watch
from spark_ckpt.protocol.records import EndedRecord
from spark_ckpt.protocol.restore_plan import DROPPED, Fate, RestorePlan
from tests.storage.whole_job import WholeJob

EVIL = "<script>alert(1)</script>"
SAFE = "&lt;script&gt;alert(1)"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> WholeJob:
    job = WholeJob(tmp_path_factory.mktemp("cells"), history="true")
    job.start()
    for _ in range(3):
        job.step(True)
    job.records.end(EndedRecord(job.run.generation, 1_700_000_000_000, "RefusedError", EVIL))
    return job


def _html(value: Any) -> str:
    found = value._repr_html_()
    assert isinstance(found, str)
    assert "<script" not in found
    return found


def test_a_job_shows_its_state_findings_graph_and_plots(made: WholeJob) -> None:
    html = _html(made.job)
    assert SAFE in html
    assert html.count("<svg") == 3
    assert "How long the newest checkpoints took" in html
    assert repr(made.job) == f"Job('job', dir={made.job.config.dir!r})"


def test_checkpoints_are_a_list_a_table_with_plots_and_a_data_frame(made: WholeJob) -> None:
    found = made.job.checkpoints()
    assert [row["id"] for row in found] == [1, 2, 3]
    frame = found.pandas()
    assert list(frame.index) == [1, 2, 3]
    assert str(frame["triggered"].dtype) == "datetime64[ns, UTC]"
    assert list(frame["duration_ms"]) == [row["duration_ms"] for row in found]
    html = _html(found)
    assert "Bytes that the newest checkpoints wrote" in html
    assert html.index(">3<") < html.index(">1<"), "the newest first"
    assert SAFE in _html(Checkpoints([{**found[0], "reason": EVIL}]))
    assert Checkpoints().pandas().empty
    assert "0 checkpoints" in _html(Checkpoints())


def test_state_shows_its_first_rows(made: WholeJob) -> None:
    html = _html(made.job.state("counts"))
    assert "checkpoint 3" in html
    assert html.count("<tr>") == 1 + 5


def test_a_folder_of_jobs_shows_each(made: WholeJob) -> None:
    html = shown.html("jobs", made.config)
    assert html is not None
    assert SAFE in html
    assert ">job<" in html


def test_a_plan_shows_what_is_lost_and_names_stay_text() -> None:
    plan = RestorePlan("Goes on.", (Fate("operator", EVIL, DROPPED, "3 keys"),), EVIL, samples={EVIL: (EVIL,)})
    html = _html(plan)
    assert html.count(SAFE) == 4
    assert '<tr class="bad">' in html


def test_a_graph_shows_a_picture_and_the_text_that_explain_prints() -> None:
    source = SourceNode("files", {}, StructType(), "orders")
    graph = JobGraph(Step("read", lambda: EVIL, [], Lineage(sources=(source,))), {source: EVIL}, {})
    html = _html(graph)
    assert "<svg" in html
    assert str(graph) == repr(graph)
    assert SAFE in html


def test_what_cannot_be_read_is_shown_as_text(made: WholeJob, tmp_path: Path) -> None:
    state = made.job.state("counts")
    gone = State(type(state._store)(str(tmp_path), {}), state._record, "counts")
    assert gone._repr_html_() is None


def test_the_live_view_tells_changes_only_and_ends_with_the_job(
    made: WholeJob, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = iter([True, True, True, False])

    def step(_: float) -> None:
        if made.batch < 3:
            made.step(True)

    watch(made.job, lambda: next(looks), wait=step)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("checkpoint ")[1].split(",")[0] for line in lines] == ["3", "4"]


def test_the_live_view_ends_with_ctrl_c_and_without_a_driver(
    made: WholeJob, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    watch(made.job, lambda: True, wait=interrupted)
    assert len(capsys.readouterr().out.splitlines()) == 1
    watch(made.job)
    assert len(capsys.readouterr().out.splitlines()) == 1, "nobody runs it"


def _in_ipython(made: WholeJob) -> Iterator[dict[str, Any]]:
    """What the live view sends to a notebook's front end, in a process of its own: IPython keeps its shell for good."""
    code = f"""
import json
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
InteractiveShell.instance().kernel = object()
import spark_ckpt
from spark_ckpt.monitoring.live import watch
looks = iter([True, False])
with capture_output() as captured:
    watch(spark_ckpt.job({made.config.dir!r}, "job"), lambda: next(looks), wait=lambda _: None)
print(json.dumps([[o.update, sorted(o.data), o.data.get("text/html", "")[:40]] for o in captured.outputs]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for update, kinds, html in json.loads(done.stdout):
        yield {"update": update, "kinds": kinds, "html": html}


def test_in_a_notebook_the_live_view_is_one_place_that_is_replaced(made: WholeJob) -> None:
    first, last = _in_ipython(made)
    assert (first["update"], last["update"]) == (False, True)
    assert first["html"].startswith('<div class="spark-ckpt">')
