"""A real MariaDB server for tests, on loopback, from the Debian package ``mariadb-server-core``.

``scripts/with_env.sh ... --mariadb`` installs it. Its data are in a temporary folder and nobody else's server is
touched. It refuses to run as root, so then it runs as ``nobody``.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

import pymysql

from tests.ports import free_port
from tests.postgres_server import PASSWORD, system_user
from tests.servers import Server, ServerProcess

_QUOTED = "s3cret%2Fpass%3Aword"
_SETTINGS = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "1",
    "innodb-flush-log-at-trx-commit": "0",  # tests kill clients, not the machine
    "innodb-doublewrite": "0",
    "innodb-flush-method": "nosync",
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "32M",
    "performance-schema": "0",
    "max-connections": "60",
    # What a server of long standing has, and what must not matter: names and texts fold, too long texts are cut.
    "character-set-server": "latin1",
    "collation-server": "latin1_swedish_ci",
    "sql-mode": "",
    "default-time-zone": "+05:30",
}
_USER = f"""
CREATE USER ckpt@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';
GRANT ALL ON *.* TO ckpt@'127.0.0.1';
"""
_UP_S = 120


class MariaDbServer(Server):
    """``start()``, then ``new_database()``, then ``stop()``. Both are idempotent."""

    def __init__(self) -> None:
        super().__init__()
        self._port = 0

    def url_of(self, database: str) -> str:
        """The SQLAlchemy URL of a database, password included."""
        return f"mariadb+pymysql://ckpt:{_QUOTED}@127.0.0.1:{self._port}/{database}"

    def new_database(self, settings: str = "") -> str:
        """The URL of a new, empty database; ``settings`` as in ``CREATE DATABASE``."""
        name = f"t_{uuid.uuid4().hex[:12]}"
        with self._connect() as connection:
            connection.cursor().execute(f"CREATE DATABASE {name} {settings}")
        return self.url_of(name)

    def start(self) -> MariaDbServer:
        if self._root is not None:
            return self
        self._root = Path(tempfile.mkdtemp(prefix="spark-ckpt-mariadb-", dir="/tmp"))
        atexit.register(self.stop)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        assert self._root is not None
        user = system_user()
        if user is not None:
            os.chown(self._root, user.pw_uid, user.pw_gid)
        self._port = free_port()
        (self._root / "user.sql").write_text(_USER)
        (self._root / "user.sql").chmod(0o644)
        where = [f"--datadir={self._root / 'data'}", *([f"--user={user.pw_name}"] if user else [])]
        made = subprocess.run(
            [_program("mariadb-install-db"), "--no-defaults", *where, "--skip-test-db",
             "--auth-root-authentication-method=normal", "--innodb-log-file-size=32M"],
            cwd=self._root, capture_output=True, timeout=_UP_S, check=False,
        )  # fmt: skip
        if made.returncode:
            raise RuntimeError(f"mariadb-install-db failed:\n{made.stdout.decode()}{made.stderr.decode()}")
        places = {"port": self._port, "socket": self._root / "socket", "init-file": self._root / "user.sql"}
        settings = [f"--{k}={v}" for k, v in {**_SETTINGS, **places}.items()]
        command = [_program("mariadbd"), "--no-defaults", *where, *settings]
        self._process = ServerProcess(command, self._root)
        self._process.await_up(self._answers, _UP_S)

    def _answers(self) -> bool:
        try:
            self._connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def _connect(self) -> pymysql.Connection:
        return pymysql.connect(host="127.0.0.1", port=self._port, user="ckpt", password=PASSWORD)


@functools.cache
def shared_mariadb() -> MariaDbServer:
    """The one server of this test process, started at first use and stopped at exit."""
    return MariaDbServer().start()


def _program(name: str) -> str:
    """Where it is; Debian puts servers into ``/usr/sbin``, which is not on every user's path."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise RuntimeError(f"the tests need {name}: sudo apt-get install -y mariadb-server-core (or use `make test`)")
    return found
