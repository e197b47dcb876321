"""A Python worker process of an executor dies by SIGKILL in the middle of a batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kill.killed import KilledJob
from tests.kill.killed_job import IN_FUNCTION


def test_a_worker_killed_where_spark_retries_its_task_changes_no_result(make_job: Callable[..., KilledJob]) -> None:
    job = make_job("sql", victim="worker", master="local[2,4]")
    job.finish(f"{IN_FUNCTION}#3", "after WriteStateFile#3", "after PrepareCommit#3")
    job.check_finished()
    # What the dead attempt had staged and nobody was told of. (Its state file was collected after a later checkpoint.)
    assert any(name.startswith("ckpt-") for name in job.collected)


@pytest.mark.soak
def test_a_worker_whose_death_fails_the_query_changes_no_result(make_job: Callable[..., KilledJob]) -> None:
    job = make_job("delta", victim="worker")
    job.fail(f"{IN_FUNCTION}#3")
    job.check_after_death()
    job.finish()
    job.check_finished()
