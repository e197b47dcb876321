"""Shared by all tests. Spark is only started by tests that ask for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

from spark_ckpt.spark_versions import spark_version
from tests import fork_server, kafka_server, shared_session
from tests.how_many import some
from tests.java_options import start_java_as_tests_do

# Tests start some hundred Pythons: without compiled modules, each compiles this package anew, half a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
fork_server.use()
# The driver binds to the host's name, which containers often cannot resolve.
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
start_java_as_tests_do()

# Deadlines measure the machine and not the code. Examples are the same in every run; `make simulate` explores.
hypothesis.settings.register_profile("project", deadline=None, derandomize=True, print_blob=True, max_examples=some(50))
hypothesis.settings.load_profile("project")

FIRST = ("test_state_table_jvm.py",)
"""Long, and behind tests/spark by its folder's name: one process would be busy with it when the other has nothing left.
It also ends the JVM that it finds."""


def pytest_configure(config: pytest.Config) -> None:
    if spark_version() < (4, 2):  # its foreachBatch and its data sources leave connections to the garbage collector
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")
        config.addinivalue_line(
            "filterwarnings", "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in FIRST)


class OneBroker(LoadFileScheduling):
    """A file is a process's; all files that use Kafka are one's: a start of the broker takes longer than most of their
    tests, which wait for it more than they compute, so that the other process has the machine meanwhile."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "kafka" if kafka_server.uses_shared_kafka(Path(file)) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return OneBroker(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    yield
    following = nextitem.path if nextitem else None
    shared_session.end_those_not_of(following)
    if following != item.path:
        kafka_server.end_shared_kafka(following)
