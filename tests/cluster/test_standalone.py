"""End to end on a standalone cluster with two executors, which share nothing but the storage."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.standalone import EXECUTORS, Cluster
from tests.kill.killed import KilledJob
from tests.kill.killed_job import IN_FUNCTION


@pytest.fixture
def on_cluster(cluster: Cluster, make_job: Callable[..., KilledJob]) -> Callable[..., KilledJob]:
    def make(merging: str, **plan: Any) -> KilledJob:
        return make_job(merging, master=cluster.url, conf=EXECUTORS, **plan)

    return make


def test_two_executors_give_the_result_of_one_process(on_cluster: Callable[..., KilledJob]) -> None:
    job = on_cluster("delta")
    job.finish()
    job.check_finished()
    assert len(job.executors()) == 2


def test_an_executor_killed_in_the_middle_of_a_batch_changes_no_result(
    cluster: Cluster, on_cluster: Callable[..., KilledJob]
) -> None:
    job = on_cluster("sql", victim="executor")
    # If the batch's last stage had finished tasks, Spark cannot repeat the lost ones in front of it and ends the query.
    job.survive(f"{IN_FUNCTION}#3")
    job.check_finished()
    assert cluster.executor_ends().count(128 + signal.SIGKILL) == 1
