"""The examples for Prometheus and Grafana, by Prometheus itself: its tool, and a server that scrapes a driver."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from spark_ckpt.monitoring.endpoint import TOKEN, Endpoint
from spark_ckpt.monitoring.metrics import exposition
from tests.monitoring.test_metrics import EXAMPLES, _seen
from tests.prometheus_server import PROMTOOL, PrometheusServer


def test_promtool_takes_the_rules_and_raises_the_alerts():
    done = subprocess.run(
        [PROMTOOL, "test", "rules", "alerts_test.yml"], cwd=EXAMPLES, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "SUCCESS" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv(TOKEN, raising=False)
    endpoint = Endpoint("0", lambda: exposition([_seen()]))
    server = PrometheusServer(f"127.0.0.1:{endpoint.port}", EXAMPLES / "alerts.yml").start()
    yield server
    server.stop()
    endpoint.close()


def test_each_panel_of_the_dashboard_shows_what_a_server_scraped(server):
    """A rate needs two scrapes, a second apart."""
    panels = json.loads((EXAMPLES / "dashboard.json").read_text())["panels"]
    asked = {panel["title"]: panel["targets"][0]["expr"].replace("$job", ".*") for panel in panels}
    deadline = time.monotonic() + 60
    empty = set(asked)
    while empty and time.monotonic() < deadline:
        time.sleep(0.5)
        empty = {title for title in empty if not server.query(asked[title])}
    assert not empty
    assert [rule["lastError"] for rule in server.rules() if rule.get("lastError")] == []
    assert len(server.rules()) == 9
