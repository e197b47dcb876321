"""End to end on a standalone cluster with two executors, which share nothing but the storage."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.standalone import EXECUTORS, Cluster, standalone_cluster
from tests.kill.killed import KilledJob
from tests.kill.killed_job import BETWEEN, IN_FUNCTION, IN_SOURCE

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
}


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


@pytest.mark.soak  # six JVMs
def test_an_executor_killed_when_the_last_stage_was_half_done_costs_a_retry(
    cluster: Cluster, on_cluster: Callable[..., KilledJob]
) -> None:
    """The tasks in front of the last stage, whose output dies with the executor, must say the same again: what
    tests/spark/test_repeated_task.py tries in every order, without Spark.
    """
    before = cluster.executor_ends().count(128 + signal.SIGKILL)
    job = on_cluster("sql", victim="executor", half=True)
    job.finish(f"{IN_FUNCTION}#3")
    job.check_finished()
    assert len(job.executors()) >= 2
    assert cluster.executor_ends().count(128 + signal.SIGKILL) == before + 1


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_executors_killed_one_after_another_in_every_stage_cost_retries(
    cluster: Cluster, on_cluster: Callable[..., KilledJob]
) -> None:
    places = (IN_SOURCE, BETWEEN, IN_FUNCTION, "after WriteStateFile", "after PrepareCommit")
    before = cluster.executor_ends().count(128 + signal.SIGKILL)
    job = on_cluster("delta", victim="executor", sources=2, steps=True)
    kills = [f"{place}#{n}" for n in (2, 4) for place in places]
    job.finish(*kills)
    job.check_finished()
    assert cluster.executor_ends().count(128 + signal.SIGKILL) == before + len(kills)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("merging", ["sql", "delta"])
def test_speculative_copies_of_slow_tasks_in_every_stage_change_nothing(
    make_job: Callable[..., KilledJob], merging: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Both copies of a task compute, write and stage; one of them counts."""
    slow = dict.fromkeys((IN_SOURCE, BETWEEN, IN_FUNCTION), 2)
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), hosts=2) as cluster:
        conf = {**EXECUTORS, **SPECULATION}
        job = make_job(merging, master=cluster.url, conf=conf, sources=2, steps=True, slow=slow)
        job.finish()
    job.check_finished()
    for place in slow:
        assert len(list(job.folder.glob(f"copied {place} *"))) >= 2
