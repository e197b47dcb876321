"""A Python worker process of an executor dies by SIGKILL in the middle of a batch, and the query with it.

Where Spark retries its task instead: test_kill_driver.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kill.killed import KilledJob
from tests.kill.killed_job import IN_FUNCTION


@pytest.mark.soak
def test_a_worker_whose_death_fails_the_query_changes_no_result(make_job: Callable[..., KilledJob]) -> None:
    job = make_job("delta", victim="worker")
    job.fail(f"{IN_FUNCTION}#3")
    job.check_after_death()
    job.finish()
    job.check_finished()
