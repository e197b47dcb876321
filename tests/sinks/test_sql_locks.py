"""A lock that somebody else holds is waited for, not in silence and not for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from spark_ckpt.errors import RetryableError
from spark_ckpt.sinks.sql.sink import SqlSink
from spark_ckpt.testing.sink_harness import permit, stage
from tests.sinks.sql_harness import DATABASES, make, new_database, run

_LOCK = {
    "sqlite": "BEGIN IMMEDIATE",
    "postgresql": "LOCK TABLE t IN ACCESS EXCLUSIVE MODE",
    "mariadb": "LOCK TABLES t WRITE",
}


class Lock:
    """Another session that holds the target."""

    def __init__(self, url: str) -> None:
        self._connection = sa.create_engine(url, poolclass=sa.pool.NullPool).connect()
        self._connection.exec_driver_sql(_LOCK[self._connection.dialect.name])

    def release(self) -> None:
        self._connection.invalidate()
        self._connection.close()


class OnFirstLine(logging.Handler):
    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._act = act

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if len(self.lines) == 1:
            self._act()


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_database(request.param, tmp_path)


def test_a_commit_goes_on_when_the_lock_is_released_and_the_log_says_that_it_waits(url: str) -> None:
    sink = make(url)
    staged = stage(sink, [(1, "a")])
    lock = Lock(url)
    handler = OnFirstLine(lock.release)
    logging.getLogger("spark_ckpt").addHandler(handler)
    try:
        SqlSink({"url": url, "table": "t", "lockTimeout": "4s"}).commit(permit(1), staged)
    finally:
        logging.getLogger("spark_ckpt").removeHandler(handler)
    assert "waited 1 s for a lock that another session holds; trying again until 4 s" in handler.lines[0]
    assert run(url, "SELECT k FROM t") == [(1,)]


def test_a_lock_that_is_never_released_is_an_error_that_says_what_to_do_and_loses_nothing(url: str) -> None:
    sink = make(url, lockTimeout="1s")
    staged = stage(sink, [(1, "a")])
    lock = Lock(url)
    with pytest.raises(RetryableError, match=r"Another session held the lock for 1 s \(option lockTimeout\)"):
        sink.commit(permit(1), staged)
    lock.release()
    make(url).commit(permit(1), staged)
    assert run(url, "SELECT k FROM t") == [(1,)]
