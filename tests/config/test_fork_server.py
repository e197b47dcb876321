"""What Spark starts in tests is a process that is forked (tests/fork_server.py), and behaves like one of its own."""

from __future__ import annotations

import os
import struct
import subprocess

import pytest

from tests import fork_server


def started(*arguments: str) -> subprocess.Popen[bytes]:
    command = [os.environ["PYSPARK_PYTHON"], *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.fixture
def daemon():
    """That of PySpark, which says its port when it is ready."""
    with started("-m", "pyspark.daemon", "pyspark.worker") as process:
        (port,) = struct.unpack("!i", process.stdout.read(4))
        assert 0 < port < 1 << 16
        yield process
        process.kill()


def test_it_reads_and_writes_the_files_of_the_process_that_was_started(daemon):
    daemon.stdin.close()
    assert daemon.wait(60) == 1, "as in a process of its own"


def test_its_exit_code_is_that_of_the_process_that_was_started():
    with started("-m", "pyspark.version") as process:
        assert process.wait(60) == 0


def test_it_ends_with_the_process_that_was_started(daemon):
    daemon.terminate()
    assert daemon.stdout.read() == b"", "its end of the pipe is closed"


def test_what_fails_there_is_seen_here():
    with started("-m", "pyspark.no_such_module") as process:
        _, said = process.communicate()
    assert process.returncode == 1
    assert b"No module named pyspark.no_such_module" in said
    assert b"fork_server.py" in said


def test_what_is_no_module_of_pyspark_is_run_by_the_python_of_the_tests():
    with started("-c", "import sys; print(sys.executable)") as process:
        said, _ = process.communicate()
    assert said.decode().strip() == os.environ[fork_server.PYTHON]
