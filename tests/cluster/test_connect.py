"""End to end through Spark Connect: no JVM object is within reach of the driver's Python."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kill.killed import KilledJob


@pytest.mark.soak  # two starts of Connect's server; tests/generated has a shorter look at Connect
def test_a_spark_connect_session_runs_and_recovers_a_job(make_job: Callable[..., KilledJob]) -> None:
    job = make_job("sql", remote="local[2]")
    job.die("before CommitSink#3")
    job.check_after_death()
    job.finish()
    job.check_finished()
