"""Forks the Python processes that Spark starts in tests, from one that has imported already what all of them import.

Spark starts one for the sources of each query, and one for each kind of worker of each session. Before it answers, each
imports PySpark, PyArrow, pandas and this package, and searches Spark's archives: more than a second of processor time,
a third of what a short query takes. Jobs that are killed, or run in a cluster, have the ordinary Python
(``environment`` of tests/kill/processes.py).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fsspec

HERE = Path(__file__).parent
PYTHON, ADDRESS = "SPARK_CKPT_TESTS_PYTHON", "SPARK_CKPT_TESTS_FORK_SERVER"
RUN = ("pyspark.sql.streaming.python_streaming_source_runner",)
IMPORTED = (
    "encodings.idna",
    "numpy",
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.sql.functions",
    *RUN,
    "pyspark.worker",
    "spark_ckpt.sources.files",
    "spark_ckpt.sinks.memory",
)
ROOMS = ("expressions", "jobs", "protocol", "runtime", "state", "storage")
"""Of this package: what workers have imported by the end of most queries. Few need a client of Iceberg."""


def use() -> None:
    """Spark sessions of this process start their Pythons here. The server ends with this process, however that ends."""
    address = str(Path(tempfile.mkdtemp(prefix="spark-ckpt-forks-"), "server"))
    os.environ.update({PYTHON: sys.executable, ADDRESS: address})
    # Spark starts data sources that it has found itself by the second one.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = str(HERE / "forked_python")
    environment = {
        **os.environ,
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),  # as PySpark gives it to its workers
        "PYTHONUNBUFFERED": "1",  # as Spark does
    }
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        fds = [listening.fileno()]
        command = [sys.executable, "-m", "tests.fork_server", *map(str, fds)]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, cwd=HERE.parent, pass_fds=fds)
    atexit.register(server.communicate)


@dataclass
class Child:
    """A forked process: what it shall run, and the connection to the ``forked_python`` that stands for it."""

    connection: socket.socket
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    code: int = 1

    def run(self) -> None:
        """What ``python -m`` would do. The connection gets its exit code when it has said everything."""
        self._become()
        atexit.register(self._say_how_it_ended)
        try:
            runpy.run_module(self.arguments[0], run_name="__main__", alter_sys=True)
            self.code = 0
        except SystemExit as e:
            self.code = e.code if isinstance(e.code, int) else int(e.code is not None)
            raise

    def _become(self) -> None:
        own_paths = _paths()
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.folder)
        sys.argv = self.arguments
        of_server = [str(HERE.parent), *own_paths]
        sys.path[:] = [self.folder, *_paths(), *(p for p in sys.path if p not in of_server)]
        fsspec.process_entries()  # its import finds file systems on the path, which is another one here
        os.register_at_fork(after_in_child=self.connection.close)
        threading.Thread(target=self._end_with_the_other, daemon=True).start()

    def _say_how_it_ended(self) -> None:
        with contextlib.suppress(OSError):  # the other was ended first
            self.connection.sendall(str(self.code % 256).encode())

    def _end_with_the_other(self) -> None:
        """Spark ends the process that it has started, which is the other. The main thread is to be told, whatever it
        waits for: only there a handler runs."""
        with contextlib.suppress(OSError):
            if not self.connection.recv(1):
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _paths() -> list[str]:
    """Without Spark's archives: what they hold is imported already, and every search for a module that is not, or for
    a package's metadata, would read the names of all their files anew."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [p for p in paths if p and not p.endswith((".jar", ".zip"))]


def serve(listening: socket.socket) -> Child:
    """Returns in each forked process. Waits for the first one to ask before it imports anything."""
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        if sys.stdin in ready:
            shutil.rmtree(Path(listening.getsockname()).parent)
            os._exit(0)
        connection, _ = listening.accept()
        _import()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            return _asked(connection)
        connection.close()


def _import() -> None:
    if gc.get_freeze_count():
        return
    for name in (*IMPORTED, *_modules_of_rooms()):
        importlib.import_module(name)
    for name in RUN:
        sys.modules.pop(name, None)  # it is run as __main__, and would be there twice
    gc.freeze()  # else the first collection of each process copies every page


def _modules_of_rooms() -> Iterator[str]:
    for room in ROOMS:
        package = importlib.import_module(f"spark_ckpt.{room}")
        found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        yield from (module.name for module in found if "iceberg" not in module.name)


def _asked(connection: socket.socket) -> Child:
    start, fds, _, _ = socket.recv_fds(connection, 1, 3)
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    with connection.makefile("rb") as rest:
        return Child(connection, **json.loads(start + rest.readline()))


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    serve(socket.socket(fileno=int(sys.argv[1]))).run()
