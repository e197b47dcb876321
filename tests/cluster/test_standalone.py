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


@pytest.mark.soak
def test_two_executors_give_the_result_of_one_process(on_cluster: Callable[..., KilledJob]) -> None:
    job = on_cluster("delta")
    job.finish()
    job.check_finished()
    assert len(job.executors()) == 2


def test_an_executor_killed_when_the_last_stage_was_half_done_costs_a_retry(
    cluster: Cluster, on_cluster: Callable[..., KilledJob]
) -> None:
    """The tasks in front of the last stage, whose output dies with the executor, must say the same again."""
    before = cluster.executor_ends().count(128 + signal.SIGKILL)
    job = on_cluster("sql", victim="executor", half=True)
    job.finish(f"{IN_FUNCTION}#3")
    job.check_finished()
    assert len(job.executors()) >= 2
    assert cluster.executor_ends().count(128 + signal.SIGKILL) == before + 1


@pytest.mark.soak
def test_executors_killed_one_after_another_in_every_stage_cost_retries(
    cluster: Cluster, on_cluster: Callable[..., KilledJob]
) -> None:
    kills = [f"{place}#{n}" for n in (2, 4) for place in (IN_FUNCTION, "after WriteStateFile", "after PrepareCommit")]
    job = on_cluster("delta", victim="executor", sources=2)
    job.finish(*kills)
    job.check_finished()
