"""What the tests' servers have in common: they end with the process that started them, however that ends."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

_WATCH = 'cat > /dev/null; kill -9 "$0"; for i in 1 2 3 4 5 6 7 8 9; do rm -rf "$1" && break; sleep 0.5; done'
"""Reads a pipe that nobody writes to: it ends when the only process that holds its other end does. What the server
started may live a moment longer and write into the folder."""


class Guard:
    """Of one server process: SIGKILL for it, and its ``folder`` removed, when this process is gone, also by SIGKILL.

    Not ``PR_SET_PDEATHSIG``, which goes by the thread that started the server and not by the process.
    """

    def __init__(self, pid: int, folder: Path) -> None:
        self._watch = subprocess.Popen(
            ["sh", "-c", _WATCH, str(pid), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def release(self) -> None:
        """The server has ended: its number may be another process's soon."""
        self._watch.kill()
        self._watch.communicate()


class ServerProcess:
    """One life of a server that is a single process, with its output in ``folder``'s file ``log``."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log = folder / "log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        self._guard = Guard(self.pid, folder)

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_up(self, is_up: Callable[[], bool], limit_s: float) -> None:
        """Poll until ``is_up``. Raises ``RuntimeError`` with what the server said if it ends, or after ``limit_s``."""
        deadline = time.monotonic() + limit_s
        while not is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server does not answer:\n{self._log.read_text(errors='replace')}")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL, as when its machine goes. The folder stays."""
        self._process.kill()
        self._process.wait()
        self._guard.release()


class Server:
    """What is the same for servers of one process whose files are in a temporary folder; ``start`` is theirs."""

    def __init__(self) -> None:
        self._root: Path | None = None
        self._process: ServerProcess | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, as when its machine goes. Of one that has a ``restart``, that brings it back at the same port."""
        assert self._process is not None
        self._process.kill()
        self._process = None

    def stop(self) -> None:
        """For good, and its data with it: nobody needs an orderly end. Idempotent."""
        atexit.unregister(self.stop)
        if self._process is not None:
            self.kill()
        if self._root is not None:
            shutil.rmtree(self._root)
        self._root = None


def java() -> str:
    """The program, of this environment if it has one."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


class Killable(Protocol):
    def kill(self) -> None: ...

    def restart(self) -> None: ...


class Missed(logging.Handler):
    """A context manager: the server is killed, and comes back when somebody logs that it is asked again."""

    def __init__(self, server: Killable) -> None:
        super().__init__()
        self._server = server
        self._thread = threading.Thread(target=server.restart)
        self.said = ""

    def emit(self, record: logging.LogRecord) -> None:
        if not self.said and "asked again" in record.getMessage():
            self.said = record.getMessage()
            self._thread.start()

    def __enter__(self) -> Missed:
        self._server.kill()
        logging.getLogger("spark_ckpt").addHandler(self)
        return self

    def __exit__(self, *_: Any) -> None:
        logging.getLogger("spark_ckpt").removeHandler(self)
        if self.said:
            self._thread.join()
        else:
            self._server.restart()
