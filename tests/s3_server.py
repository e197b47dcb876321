"""S3 servers for tests, on loopback: moto from PyPI (fast to have), and MinIO (the real thing, some minutes to build).

The test command uses moto, ``make soak`` both.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import tempfile
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import s3fs

from tests.ports import free_port
from tests.servers import Server, ServerProcess

KEY, SECRET, REGION = "AKIDEXAMPLE", "wJalrXUtnFEMI+bPxRfiCY=K7MDENG", "eu-west-3"
MINIO = Path.home() / ".cache/spark-ckpt/minio-v0.0.0-20260212201848-7aac2a2c5b7c/minio"
"""Where ``scripts/with_env.sh ... --minio`` puts it; the version is the one named there."""
SERVERS = ["moto", pytest.param("minio", marks=pytest.mark.soak)]
"""For fixtures' ``params``."""
PAGE = 100
"""How many names moto lists at once. MinIO and Amazon list a thousand."""
_UP_S = 120


class S3Server(Server):
    """``start()``, then ``new_bucket()``, then ``stop()``; the first and the last are idempotent. ``kill()`` and
    ``restart()`` keep MinIO's data, and not moto's, which are in its memory."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.endpoint = ""
        self._port = 0

    def start(self) -> S3Server:
        if self._root is not None:
            return self
        self._port = free_port()
        self._root = Path(tempfile.mkdtemp(prefix=f"spark-ckpt-{self.kind}-"))
        self.endpoint = f"http://127.0.0.1:{self._port}"
        atexit.register(self.stop)
        self.restart()
        return self

    def restart(self) -> None:
        """The server that was killed, on the same data."""
        assert self._root is not None
        address = f"127.0.0.1:{self._port}"
        settings = {
            "MINIO_ROOT_USER": KEY,
            "MINIO_ROOT_PASSWORD": SECRET,
            "MINIO_REGION": REGION,
            "MINIO_UPDATE": "off",
            "MOTO_S3_DEFAULT_MAX_KEYS": str(PAGE),
        }
        command = {
            "moto": [sys.executable, str(Path(__file__).with_name("moto_server.py")), str(self._port)],
            "minio": [str(MINIO), "server", "--address", address, "--console-address", "127.0.0.1:0",
                      str(self._root / "data")],
        }[self.kind]  # fmt: skip
        environment = {**os.environ, **settings, "PYTHONWARNINGS": "ignore"}
        self._process = ServerProcess(command, self._root, environment)
        self._process.await_up(self._answers, _UP_S)

    @contextlib.contextmanager
    def in_environment(self) -> Iterator[None]:
        """Where it is and its credentials are in the environment of this process, and of those that it starts."""
        more = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION,
                "AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true"}  # fmt: skip
        before = {name: os.environ.get(name) for name in more}
        os.environ.update(more)
        s3fs.S3FileSystem.clear_instance_cache()  # fsspec keeps what it made in another environment
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                os.environ.update({} if value is None else {name: value})
            s3fs.S3FileSystem.clear_instance_cache()

    def options(self, endpoint: str | None = None) -> dict[str, str]:
        """Storage options by name, without ``spark.ckpt.storage.``."""
        return {"key": KEY, "secret": SECRET, "endpoint_url": endpoint or self.endpoint, "region": REGION}

    def new_bucket(self) -> str:
        """The name of a new, empty bucket."""
        name = f"lake-{uuid.uuid4().hex[:12]}"
        self.files().call_s3("create_bucket", Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        return name

    def files(self) -> s3fs.S3FileSystem:
        """A client of its own, past the code under test."""
        kwargs = {"region_name": REGION}
        return s3fs.S3FileSystem(
            key=KEY, secret=SECRET, endpoint_url=self.endpoint, client_kwargs=kwargs, use_listings_cache=False
        )

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/minio/health/live", timeout=5):
                return True
        except urllib.error.HTTPError:
            return True  # moto has no such page, but answers
        except OSError:
            return False


@functools.cache
def shared_s3(kind: str = "moto") -> S3Server:
    """The one server of its kind of this test process, started at first use and stopped at exit."""
    return S3Server(kind).start()
