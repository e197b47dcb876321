"""A killed test run leaves no server behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.kill.processes import await_condition, environment
from tests.postgres_server import runs

SERVERS = [
    "postgres_server:PostgresServer()",
    pytest.param("mariadb_server:MariaDbServer()", marks=pytest.mark.soak),
    pytest.param("kafka_server:KafkaServer()", marks=pytest.mark.soak),
    pytest.param("s3_server:S3Server('moto')", marks=pytest.mark.soak),
]


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_and_its_folder_end_with_the_process_that_started_them(server: str) -> None:
    module, _, made = server.partition(":")
    code = (
        f"from tests.{module} import *\nserver = {made}.start()\nprint(server.pid, server._root, flush=True)\ninput()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert owner.stdout is not None
    pid, _, folder = owner.stdout.readline().strip().partition(" ")
    process = psutil.Process(int(pid))
    assert runs(process)
    owner.kill()
    owner.communicate()
    await_condition("the end of the server", lambda: not runs(process) and not Path(folder).exists())
