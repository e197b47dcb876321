"""The metrics of a driver: who may ask, what is answered, and what it costs to be asked often. No Spark."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError
from spark_ckpt.monitoring.endpoint import TOKEN, Endpoint
from spark_ckpt.monitoring.metrics import text_of
from spark_ckpt.monitoring.running import RunningJobs
from tests.storage.whole_job import ROWS, WholeJob


@pytest.fixture
def opened(monkeypatch):
    made = []
    monkeypatch.delenv(TOKEN, raising=False)

    def open_(address: str, text=lambda: "# EOF\n", token: str | None = None) -> Endpoint:
        if token is not None:
            monkeypatch.setenv(TOKEN, token)
        made.append(Endpoint(address, text))
        return made[-1]

    yield open_
    for endpoint in made:
        endpoint.close()


def ask(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=given)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_at_loopback_anybody_of_this_machine_may_ask_by_its_own_names(opened):
    port = opened("0").port
    assert ask(port) == (200, "# EOF\n")
    assert ask(port, Host="localhost") == (200, "# EOF\n")
    assert ask(port, Host="evil.example:80")[0] == 400
    assert ask(port, "/")[0] == 404


def test_another_address_needs_a_token(opened):
    with pytest.raises(ConfigError, match=f"expected a token for the address 0.0.0.0.*set {TOKEN}"):
        opened("0.0.0.0:0")
    port = opened("0.0.0.0:0", token="open").port
    assert [ask(port)[0], ask(port, Authorization="Bearer shut")[0]] == [401, 401]
    assert ask(port, Authorization="Bearer open", Host="driver-7") == (200, "# EOF\n")


def test_a_port_that_is_taken_refuses_the_start_and_a_closed_one_is_free(opened):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen at 127.0.0.1, port {port}"):
            opened(str(port))
    first = Endpoint(str(port), str)
    first.close()
    assert opened(str(port)).port == port


@pytest.mark.parametrize("value", ["", "x", "70000", "a b:1", "http://h:1"])
def test_the_setting_is_a_port_or_an_address_with_one(value):
    with pytest.raises(ConfigError, match=r"metrics\.port"):
        JobConfig.from_options({"dir": "/d", "metrics.port": value})


def test_it_answers_for_the_jobs_of_the_driver_and_looks_at_them_every_five_seconds_at_most(tmp_path: Path, opened):
    running, jobs = RunningJobs(), []
    for name in ("a", "b"):
        job = WholeJob(tmp_path / name, history="true")
        job.start()
        job.step(checkpoint=True)
        jobs.append(job.job)
        running.add(job.job)
    # Both are called alike, as they have folders of their own: the later one is running.
    port = opened("0", lambda: text_of(running.samples())).port

    def rows(text: str) -> float:
        families = {f.name: f for f in text_string_to_metric_families(text)}
        return families["spark_ckpt_source_rows"].samples[0].value

    first = ask(port)[1]
    assert rows(first) == ROWS
    assert "spark_ckpt_checkpoint_duration_seconds_count" in first
    job.step(checkpoint=False)
    assert ask(port)[1] == first
    running.add(jobs[1])  # a start is seen at once
    running.batch_took("job", {"sink": 0.5})
    later = ask(port)[1]
    assert rows(later) == 2 * ROWS
    assert 'spark_ckpt_batch_time_seconds{ckpt_job="job",part="sink"} 0.5' in later
    running.clear()
    assert ask(port)[1] == "# EOF\n"
