"""A real REST catalogue of Iceberg tables for tests, on loopback: Iceberg's own, from its published jars.

``scripts/with_env.sh ... --iceberg-rest`` fetches them. Its tables are in a temporary folder. It gives a token for
:data:`USER` and :data:`PASSWORD`, wants one in each request, and says in its answers what it was given: a client that
passes such an answer on shows secrets.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog

from tests.ports import free_port
from tests.servers import Server, ServerProcess, java

USER, PASSWORD = "ckpt", "s3cret-pass-word"
JARS = Path.home() / ".cache/spark-ckpt/iceberg-rest-1.10.1"
_MAIN = Path(__file__).parent / "iceberg_rest" / "IcebergRest.java"
_JAVA = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
_UP_S = 120


class IcebergServer(Server):
    """``start()``, then ``properties``, then ``stop()``; ``kill()`` and ``restart()`` keep the tables."""

    def __init__(self) -> None:
        super().__init__()
        self._port = 0
        self._emptied_for: Path | None = None

    def start(self) -> IcebergServer:
        if not JARS.is_dir():
            raise RuntimeError(f"the tests need a REST catalogue in {JARS}: `make test` fetches it, or with_env.sh")
        self._root, self._port = Path(tempfile.mkdtemp(prefix="spark-ckpt-iceberg-", dir="/tmp")), free_port()
        atexit.register(self.stop)
        try:
            self._compile()
            self.restart()
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def properties(self) -> dict[str, str]:
        """Of a pyiceberg catalogue."""
        token = {"credential": f"{USER}:{PASSWORD}", "oauth2-server-uri": f"{self.uri}/v1/oauth/tokens"}
        return {"type": "rest", "uri": self.uri, **token}

    def catalog(self) -> Catalog:
        """A client of its own, past the code under test."""
        return load_catalog("tests", **self.properties)

    def emptied_for(self, folder: Path) -> None:
        """Without tables, where ``folder`` is another than the last time: a test's own."""
        if folder == self._emptied_for:
            return
        assert self._root is not None
        catalog = self.catalog()
        for namespace in catalog.list_namespaces():
            for table in catalog.list_tables(namespace):
                catalog.drop_table(table)
            catalog.drop_namespace(namespace)
        shutil.rmtree(self._root / "warehouse", ignore_errors=True)
        self._emptied_for = folder

    def restart(self) -> None:
        """The server that was killed, on the same tables; tokens that it gave are not known any more."""
        assert self._root is not None
        arguments = ["IcebergRest", str(self._root), str(self._port), USER, PASSWORD]
        command = [java(), *_JAVA, "-cp", f"{self._root}/classes:{JARS}/*", *arguments]
        self._process = ServerProcess(command, self._root)
        self._process.await_up(self._is_up, _UP_S)

    def _compile(self) -> None:
        """By a compiler that is a jar: a Java to run programs has none."""
        jars = sorted(map(str, JARS.glob("*.jar")))
        command = ["org.eclipse.jdt.internal.compiler.batch.Main", "-17", "-proc:none", "-cp", ":".join(jars)]
        made = subprocess.run(
            [java(), *_JAVA, "-cp", f"{JARS}/*", *command, "-d", f"{self._root}/classes", str(_MAIN)],
            capture_output=True, text=True, timeout=_UP_S, check=False,
        )  # fmt: skip
        if made.returncode:
            raise RuntimeError(f"{_MAIN.name} does not compile:\n{made.stdout}{made.stderr}")

    def _is_up(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.uri}/v1/config", timeout=5).close()
        except urllib.error.HTTPError:
            return True  # it asks for a token
        except OSError:
            return False
        return True


@functools.cache
def shared_iceberg() -> IcebergServer:
    """The one of this test process, started at first use and stopped at exit."""
    return IcebergServer().start()
