"""The page in a real browser, over a job without Spark: one start of Chromium, one of the server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from spark_ckpt.protocol.records import EndedRecord
from tests.storage.whole_job import WholeJob
from tests.ui.browser import Browser

EVIL = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">"
PAGES = ("/", "/jobs/job", "/jobs/job/state", "/jobs/job/checkpoints/1", "/jobs/job/compare?before=1&after=1")
TOKEN = "s3cret"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> WholeJob:
    made = WholeJob(tmp_path_factory.mktemp("browsed"), history="true")
    made.start()
    made.step(True)
    made.records.end(EndedRecord(made.run.generation, 1_700_000_000_000, "RefusedError", EVIL))
    return made


@pytest.fixture(scope="module")
def url(job: WholeJob) -> Iterator[str]:
    command = [sys.executable, "-m", "spark_ckpt", "ui", str(job.folder.parent), "--port", "0", "--state"]
    server = subprocess.Popen([*command, "--token", TOKEN], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        told = urlsplit(server.stdout.readline().strip())
        yield f"{told.scheme}://{told.netloc}"
    finally:
        server.terminate()
        server.communicate()


@pytest.fixture(scope="module")
def browser(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as started:
        started.open(f"{url}/?token={TOKEN}")
        yield started


@pytest.fixture(autouse=True)
def _nothing_wrong(url: str, browser: Browser) -> Iterator[None]:
    browser.errors.clear()
    browser.asked.clear()
    yield
    assert browser.errors == []
    assert [asked for asked in browser.asked if not asked.startswith(url)] == []


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("page", PAGES)
def test_no_page_is_wider_than_its_window_and_names_stay_text(
    browser: Browser, url: str, page: str, width: int
) -> None:
    browser.resize(width)
    browser.open(url + page)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.querySelectorAll('main script, main img').length") == 0
    assert browser.run("document.title") != "taken"


def test_the_page_follows_the_job_and_the_focus_stays(browser: Browser, url: str, job: WholeJob) -> None:
    browser.open(f"{url}/jobs/job")
    assert EVIL in browser.run("document.getElementById('main').innerText")
    browser.run("document.querySelector('main a[href$=\"/checkpoints/1\"]').focus()")
    job.step(True)
    browser.run(
        "new Promise(done => new MutationObserver(() =>"
        " document.querySelector('main a[href$=\"/checkpoints/2\"]') && done(true))"
        ".observe(document.getElementById('main'), {childList: true, subtree: true}))"
    )
    assert browser.run("document.activeElement.closest('main') !== null")
    assert browser.run("document.getElementById('seen').textContent").startswith("Updated")


def test_keys_reach_the_content_first_and_every_field_has_a_name(browser: Browser, url: str) -> None:
    browser.open(f"{url}/jobs/job/state")
    browser.press("Tab")
    assert browser.run("document.activeElement.className") == "skip"
    assert browser.run("document.activeElement.getBoundingClientRect().left >= 0")
    fields = "[...document.querySelectorAll('input:not([type=hidden]), textarea, button, summary')]"
    assert browser.run(f"{fields}.length") > 3
    assert browser.run(f"{fields}.every(e => (e.labels && e.labels.length) || e.textContent.trim() !== '')")
    assert browser.run("[...document.querySelectorAll('svg')].every(e => e.getAttribute('aria-label'))")


def test_a_key_is_looked_up_and_its_answer_has_the_focus(browser: Browser, url: str) -> None:
    browser.open(f"{url}/jobs/job/state")
    browser.run("document.querySelector('input[name=key]').value = '4'")
    browser.submit("button[value=key]")
    assert browser.run("document.activeElement.id") == "answer"
    assert browser.run("[...document.querySelectorAll('td.value')].map(e => e.innerText)")[0] == "4"
    assert TOKEN not in browser.run("location.href")


def test_what_is_refused_is_shown_as_text(browser: Browser, url: str) -> None:
    browser.open(f"{url}/jobs/job/state")
    browser.run(f"document.querySelector('input[name=key]').value = {EVIL!r}")
    browser.submit("button[value=key]")
    assert "int64" in browser.run("document.querySelector('[role=alert]').innerText")
    assert browser.run("document.querySelectorAll('main script, main img').length") == 0
