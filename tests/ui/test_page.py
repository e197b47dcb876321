"""The page of ``spark-ckpt ui`` and the file of ``spark-ckpt report``, over job folders; no browser, no Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from spark_ckpt.cli import app as command
from spark_ckpt.errors import ConfigError
from spark_ckpt.monitoring import state_tables
from spark_ckpt.monitoring.overview import overview_of
from spark_ckpt.monitoring.timeline import timeline_of
from spark_ckpt.protocol.records import EndedRecord
from spark_ckpt.ui import _charts as charts
from spark_ckpt.ui.app import COOKIE, create_app
from spark_ckpt.ui.pages import checkpoint_page, job_page, jobs_page, report_page
from tests.monitoring.facts_harness import NOW_MS, facts, row
from tests.storage.whole_job import WholeJob

EVIL = "<script>alert(1)</script>"
PHASES = {
    "acknowledged_ms": row(7).triggered_ms + 220,
    "driver": {"commit_state_ms": 100},
    "operators": {"totals": {"0": {"start_delay_ms": 5, "write_ms": 20}, "1": {"alignment_ms": 9}}},
}


def _seen(**what):
    return overview_of(facts(history=(row(6, outcome="expired", reason=EVIL), row(7, phases=PHASES)), **what))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("ui")
    job = WholeJob(root, history="true")
    job.start()
    job.step(checkpoint=True)
    return root / "jobs"


@pytest.fixture(scope="module")
def longer(tmp_path_factory) -> Path:
    """Of a job with two checkpoints, the second a savepoint."""
    root = tmp_path_factory.mktemp("longer")
    job = WholeJob(root, history="true")
    job.start()
    job.step(checkpoint=True)
    job.step(checkpoint=True, savepoint=str(root / "saved <here>"))
    return root / "jobs"


@pytest.fixture
def longer_client(longer) -> TestClient:
    client = TestClient(create_app(str(longer), token="s3cret", state=True), base_url="http://localhost")
    client.cookies.set(COOKIE, "s3cret")
    return client


@pytest.fixture
def client(folder) -> TestClient:
    return TestClient(create_app(str(folder)), base_url="http://localhost")


def test_pages_of_a_job_that_ran_show_it_and_its_checkpoints(client):
    jobs = client.get("/")
    assert jobs.status_code == 200
    name = re.search(r'href="(/jobs/[^"]+)"', jobs.text)
    job = client.get(name.group(1))
    assert "Findings" in job.text
    checkpoint = client.get(re.search(r'href="(/jobs/[^"]+/checkpoints/1)"', job.text).group(1))
    assert "Checkpoint 1" in checkpoint.text
    assert 'class="gantt"' in checkpoint.text


@pytest.mark.parametrize(
    "path",
    ["/jobs/none", "/jobs/none/checkpoints/1", "/jobs/job/checkpoints/99", "/jobs/..%2F..%2Fetc", "/static/../app.py"],
)
def test_what_is_not_there_is_not_found(client, path):
    assert client.get(path).status_code == 404


def test_names_and_reasons_are_shown_and_never_interpreted():
    seen = _seen(heard=None, ended=EndedRecord(1, NOW_MS, EVIL, EVIL))
    object.__setattr__(seen, "job", EVIL)
    row_6 = checkpoint_page(EVIL, seen.facts.history[0])
    for page in (jobs_page(EVIL, [seen]), job_page(seen), report_page(seen), row_6):
        assert EVIL not in page
        assert "&lt;script&gt;alert(1)" in page


def test_nothing_is_loaded_from_elsewhere_and_no_script_but_ours_may_run(client):
    answer = client.get("/")
    assert "default-src 'none'; script-src 'self'" in answer.headers["content-security-policy"]
    assert re.findall(r'(?:src|href)="(https?:)?//', answer.text) == []
    assert client.get("/static/live.js").status_code == 200
    report = report_page(_seen())
    assert "<script" not in report
    assert re.findall(r'(?:src|href)="[^#]', report) == []


def test_with_a_token_nothing_is_told_without_it(folder):
    client = TestClient(create_app(str(folder), token="s3cret"), base_url="http://localhost", follow_redirects=False)
    for path in ("/", "/static/style.css", "/?token=wrong", "/?token="):
        assert client.get(path).status_code == 401
    entered = client.get("/?token=s3cret")
    assert entered.status_code == 303
    assert "HttpOnly" in entered.headers["set-cookie"]
    assert client.cookies[COOKIE] == "s3cret"
    assert client.get("/").status_code == 200


def test_a_page_from_elsewhere_cannot_ask_by_a_name_of_its_own(folder):
    assert TestClient(create_app(str(folder)), base_url="http://evil.example").get("/").status_code == 400


def test_only_reading_is_possible(client):
    for method in ("post", "put", "delete", "patch"):
        assert getattr(client, method)("/").status_code == 405


def test_every_picture_has_its_words():
    seen = _seen()
    gantt = charts.gantt(timeline_of(seen.facts.history[-1]))
    pictures = [charts.graph(seen), gantt, charts.bars([("a", 1, True)], "x"), charts.sparkline([1, 2], "y")]
    assert all(re.search(r'role="img"[^>]* aria-label="[^"]+"', p) for p in pictures)
    assert charts.sparkline([1], "y") == charts.bars([], "x") == ""


def test_a_job_without_anything_has_a_page():
    assert "never started" in job_page(overview_of(facts(starts=(), heard=None, completions=(), committed=frozenset())))
    empty = jobs_page("/nothing", [])
    assert "no jobs" in empty
    assert "1970" not in empty


def test_the_report_is_one_file(folder, tmp_path):
    name = next(folder.iterdir()).name
    file = tmp_path / "report.html"
    done = CliRunner().invoke(command, ["report", str(folder), name, str(file)])
    assert done.exit_code == 0, done.output
    assert "<style>" in file.read_text()
    refused = CliRunner().invoke(command, ["report", str(folder), name, str(tmp_path / "no" / "x.html")])
    assert refused.exit_code == 1


@pytest.fixture
def state_client(folder) -> TestClient:
    client = TestClient(create_app(str(folder), token="s3cret", state=True), base_url="http://localhost")
    client.cookies.set(COOKIE, "s3cret")
    return client


def test_state_is_shown_only_where_it_was_asked_for_and_behind_a_token(client, state_client, folder):
    hidden = client.post("/jobs/job/state", data={"act": "head", "uid": "counts"})
    assert "--state" in hidden.text
    assert "<td" not in hidden.text
    with pytest.raises(ConfigError, match="token"):
        create_app(str(folder), state=True)
    state_client.cookies.clear()
    assert state_client.get("/jobs/job/state").status_code == 401


def test_the_state_tab_shows_tables_rows_and_a_key(state_client):
    assert "counts" in state_client.get("/jobs/job/state").text
    head = state_client.post("/jobs/job/state", data={"act": "head", "uid": "counts"}).text
    assert "First rows of counts" in head
    assert "5 rows" in head
    one = state_client.post("/jobs/job/state", data={"act": "key", "uid": "counts", "key": "4"}).text
    assert "1 row<" in one
    assert re.findall(r'<td class="value">(\w+)', one) == ["4", "1"]


def test_what_the_state_tab_cannot_do_is_said_and_never_interpreted(state_client):
    for form in ({"act": "key", "uid": EVIL, "key": "1"}, {"act": "key", "uid": "counts", "key": EVIL}, {"act": EVIL}):
        answer = state_client.post("/jobs/job/state", data=form)
        assert answer.status_code == 200
        assert 'role="alert"' in answer.text
        assert EVIL not in answer.text
    assert state_client.post("/jobs/none/state").status_code == 404
    assert state_client.post("/jobs/job/state", content=b"sql=" + b"x" * 200_000).status_code == 413


def test_a_form_of_another_page_gets_no_answer(state_client):
    asked = {"act": "head", "uid": "counts"}
    other = state_client.post("/jobs/job/state", data=asked, headers={"Origin": "http://localhost:3000"})
    assert other.status_code == 403
    own = state_client.post("/jobs/job/state", data=asked, headers={"Origin": "http://localhost"})
    assert own.status_code == 200


def test_savepoints_are_listed_with_their_paths(longer_client):
    page = longer_client.get("/jobs/job").text
    assert re.search(r"<code>[^<]*/saved &lt;here&gt;</code>", page)
    assert "saved &lt;here&gt;" in longer_client.get("/jobs/job/checkpoints/2").text


def test_two_checkpoints_stand_side_by_side(longer_client):
    link = re.search(r'href="(/jobs/job/compare[^"]+)"', longer_client.get("/jobs/job/checkpoints/2").text).group(1)
    page = longer_client.get(link.replace("&amp;", "&")).text
    assert re.search(r"rows written</th>(<td[^>]*>[^<]+</td>){3}", page)
    assert "What changed in counts" in page
    changed = longer_client.post("/jobs/job/compare", data={"before": "1", "after": "2", "uid": "counts"}).text
    assert "5 keys have changed" in changed
    assert changed.count(">changed<") == 5


def test_what_cannot_be_compared_is_said_and_never_interpreted(longer_client, client):
    for asked in ({"before": "1", "after": "99"}, {"before": EVIL, "after": "1"}, {"before": "9" * 30, "after": "2"}):
        page = longer_client.get("/jobs/job/compare", params=asked)
        assert page.status_code == 200
        assert 'role="alert"' in page.text
        assert EVIL not in page.text
    refused = longer_client.post("/jobs/job/compare", data={"before": "1", "after": "2", "uid": EVIL}).text
    assert 'role="alert"' in refused
    assert EVIL not in refused
    hidden = client.post("/jobs/job/compare", data={"before": "1", "after": "1", "uid": "counts"}).text
    assert "--state" in hidden
    assert "<button name" not in hidden
    assert longer_client.get("/jobs/none/compare").status_code == 404


def test_a_comparison_that_would_read_too_much_is_refused(longer_client, monkeypatch):
    monkeypatch.setattr(state_tables, "DIFF_BYTES", 10)
    refused = longer_client.post("/jobs/job/compare", data={"before": "1", "after": "2", "uid": "counts"}).text
    assert "ask `spark-ckpt diff`" in refused


def test_an_older_checkpoint_that_is_retained_has_its_state(longer_client):
    def of(checkpoint):
        form = {"act": "key", "uid": "counts", "key": "4", "checkpoint": checkpoint}
        return re.findall(r'<td class="value">(\w+)', longer_client.post("/jobs/job/state", data=form).text)

    assert of("1") == ["4", "1"]
    assert of("2") == ["4", "2"]
    assert "<option selected>2</option><option>1</option>" in longer_client.get("/jobs/job/state").text


def test_commands_in_what_is_said_are_code_and_nothing_in_them_is_interpreted():
    page = job_page(_seen(heard=None, ended=EndedRecord(1, NOW_MS, "X", f"call `{EVIL}`, `it")))
    assert "`spark-ckpt" not in page
    quoted = job_page(_seen(heard=None, ended=EndedRecord(1, NOW_MS, "X", f"call `{EVIL}`")))
    assert "call <code>&lt;script&gt;alert(1)&lt;/script&gt;</code>" in quoted
    assert EVIL not in page + quoted


def test_the_list_draws_the_durations_of_a_job_that_retains_one_checkpoint(tmp_path):
    job = WholeJob(tmp_path, history="true", retain="1")
    job.start()
    for _ in range(3):
        job.step(checkpoint=True)
    assert len(list((job.folder / "checkpoints").iterdir())) == 1
    page = TestClient(create_app(str(tmp_path / "jobs")), base_url="http://localhost").get("/").text
    assert "Durations of checkpoints" in page
