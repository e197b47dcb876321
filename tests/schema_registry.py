"""A real schema registry for long tests, on loopback: Apicurio's, which answers as Confluent's does.

``scripts/with_env.sh ... --registry`` fetches it. It keeps everything in memory.
"""

from __future__ import annotations

import atexit
import json
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tests.servers import Server, ServerProcess, java

HOME = Path.home() / ".cache/spark-ckpt/apicurio-registry-2.6.13.Final"
_JAR = HOME / "apicurio-registry-app-2.6.13.Final-runner.jar"
_JAVA = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_UP_S = 180


class RegistryServer(Server):
    """``start()``, then ``url``, then ``stop()``."""

    def __init__(self) -> None:
        super().__init__()
        self.url = ""

    def start(self) -> RegistryServer:
        if not _JAR.exists():
            raise RuntimeError(f"the tests need a schema registry in {HOME}: with_env.sh --registry fetches it")
        self._root, port = Path(tempfile.mkdtemp(prefix="spark-ckpt-registry-", dir="/tmp")), free_port()
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        atexit.register(self.stop)
        where = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
        command = [java(), *_JAVA, *where, "-jar", str(_JAR)]
        self._process = ServerProcess(command, self._root)
        self._process.await_up(self._answers, _UP_S)
        return self

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """A client of its own, past the code under test."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        with urllib.request.urlopen(
            urllib.request.Request(self.url + path, data, headers, method=method), timeout=60
        ) as answer:
            return json.load(answer)

    def _answers(self) -> bool:
        try:
            self.ask("/subjects")
        except OSError:
            return False
        return True
