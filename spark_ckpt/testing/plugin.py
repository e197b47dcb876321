"""The pytest plugin: fixture ``crash_schedules``, and options that say how many and which. See docs/testing-a-job.md.

pytest loads it in every project that has this package installed, so it imports nothing of it before it is asked.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from spark_ckpt.testing.jobs import JobUnderTest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("spark-ckpt", "jobs under crash schedules")
    group.addoption("--ckpt-schedules", type=int, metavar="N", help="how many schedules without Spark each test runs")
    group.addoption("--ckpt-schedule", type=_schedule, metavar="NAME", help="run this schedule only: 17, or spark-3")


def _schedule(name: str) -> tuple[bool, int]:
    """Whether it is one with Spark, and its number."""
    found = re.fullmatch(r"(spark-)?(\d+)", name)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected a number, or spark- and a number, found {name!r}")
    return found[1] is not None, int(found[2])


@pytest.fixture
def crash_schedules(request: pytest.FixtureRequest) -> Callable[..., None]:
    """``crash_schedules(job, 1000, with_spark=5)`` is ``job.check(1000)`` and ``job.check_with_spark(5)``; a failure
    names the command that runs its schedule."""
    count, only = request.config.getoption("--ckpt-schedules"), request.config.getoption("--ckpt-schedule")
    how = f'pytest "{request.node.nodeid}" --ckpt-schedule={{}}'

    def check(job: JobUnderTest, schedules: int = 1000, with_spark: int = 0) -> None:
        if only is not None:
            in_spark, number = only
            (job.check_with_spark if in_spark else job.check)(replay=number, how=how)
            return
        job.check(schedules if count is None else count, how=how)
        if with_spark:
            job.check_with_spark(with_spark, how=how)

    return check
