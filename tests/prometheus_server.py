"""Prometheus for tests, on loopback: it scrapes one address every second and answers queries."""

from __future__ import annotations

import atexit
import json
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tests.servers import Server, ServerProcess

FOLDER = Path.home() / ".cache/spark-ckpt/prometheus"
"""Where ``scripts/with_env.sh ... --prometheus`` puts Debian's package, unpacked."""
PROMETHEUS, PROMTOOL = (FOLDER / "usr/bin" / name for name in ("prometheus", "promtool"))
_UP_S = 60


class PrometheusServer(Server):
    """``start()``, ``query()`` as often as wanted, ``stop()``."""

    def __init__(self, scraped: str, rules: Path) -> None:
        """``scraped``: ``host:port`` of what answers at ``/metrics``; ``rules``: a file of alert rules."""
        super().__init__()
        self._scraped, self._rules, self._address = scraped, rules, ""

    def start(self) -> PrometheusServer:
        self._address = f"127.0.0.1:{free_port()}"
        self._root = Path(tempfile.mkdtemp(prefix="spark-ckpt-prometheus-"))
        atexit.register(self.stop)
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(self._rules)],
            "scrape_configs": [{"job_name": "spark_ckpt", "static_configs": [{"targets": [self._scraped]}]}],
        }
        (self._root / "prometheus.yml").write_text(json.dumps(settings))  # JSON is YAML
        command = [
            str(PROMETHEUS), "--config.file=prometheus.yml", "--storage.tsdb.path=data",
            f"--web.listen-address={self._address}",
        ]  # fmt: skip
        self._process = ServerProcess(command, self._root)
        self._process.await_up(self._is_ready, _UP_S)
        return self

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples that an expression of PromQL has now. Raises ``urllib.error.HTTPError`` for a wrong one."""
        return list(self._get("query", query=expression)["result"])

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str, **parameters: str) -> Any:
        asked = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)["data"]

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=5):
                return True
        except OSError:
            return False
