"""The pytest plugin: fixture ``crash_schedules``, and options that say how many and which. See docs/testing-a-job.md.

pytest loads it in every project that has this package installed, so it imports nothing of it before it is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from spark_ckpt.testing.jobs import JobUnderTest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("spark-ckpt", "jobs under crash schedules")
    group.addoption("--ckpt-schedules", type=int, metavar="N", help="how many schedules each test runs")
    group.addoption("--ckpt-schedule", type=int, metavar="NUMBER", help="run this schedule only")


@pytest.fixture
def crash_schedules(request: pytest.FixtureRequest) -> Callable[..., None]:
    """``crash_schedules(job, 1000)`` is ``job.check(1000)``; a failure names the command that runs its schedule."""
    count, only = request.config.getoption("--ckpt-schedules"), request.config.getoption("--ckpt-schedule")
    how = f'pytest "{request.node.nodeid}" --ckpt-schedule={{}}'

    def check(job: JobUnderTest, schedules: int = 1000) -> None:
        job.check(schedules if count is None else count, replay=only, how=how)

    return check
