"""An S3 server on loopback for the demo (moto), with a bucket; started and stopped by it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import s3fs

BUCKET = "flights"
_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "demo",
    "AWS_SECRET_ACCESS_KEY": "demo-secret",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}
_UP_S = 60.0


@contextlib.contextmanager
def server(log: Path) -> Iterator[str]:
    """The URL of an empty place on it. Endpoint and credentials are in the environment, where everybody finds them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        os.environ.update({**_CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"})
        _wait(process, port, log)
        s3fs.S3FileSystem().mkdir(f"s3://{BUCKET}")
        yield f"s3://{BUCKET}/demo"
    finally:
        process.kill()
        process.wait()


def upload(folder: Path, url: str) -> None:
    """Every file in ``folder``, in order of name: the source reads them in order of time."""
    files = s3fs.S3FileSystem()
    for path in sorted(folder.iterdir()):
        files.put_file(str(path), f"{url}/{folder.name}/{path.name}")


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _UP_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the S3 server did not start: see {log}") from None
        time.sleep(0.1)
