"""The driver (its Python process and its JVM) dies by SIGKILL around each step of the commit; see protocol/commit.py.
In its last life Python workers die in the middle of batches.

Each case kills one job again and again and then lets it finish. ``#3``: when the process that commits comes there for
the third time, so that completed checkpoints are behind it. Checkpoints come with every batch if not said otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kill.killed import KilledJob
from tests.kill.killed_job import IN_FUNCTION

ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

BETWEEN_BARRIERS = "barriers are on their way"
COMPLETE = "a checkpoint is complete and not committed"
CASES = {
    COMPLETE: ({"merging": "delta"}, "after CreateCompletion#2"),
    "a checkpoint is complete and not committed, and in its recovery": (
        {"merging": "delta"},
        "after CreateCompletion#2",
        "in recovery: after CommitSink",  # one of the two sinks has committed
    ),
    # Checkpoints span several batches here, so that rows staged before a death belong to a checkpoint after it.
    "a batch is recorded or state committed": (
        {"merging": "delta", "conf": {"spark.ckpt.interval": "3s"}},
        "before WriteBatch#2",
        "after WriteBatch",  # the replayed batch's record replaces the first one
        "before CommitState",
        "after CommitState",  # one operator's table has a version that no completion names, the other's has not
    ),
    "a checkpoint completes": (
        {"merging": "sql"},
        "after WriteCommitted",  # only Spark does not know of it: the batch is replayed, the record is canonical
        "before CreateCompletion",
        "after CreateCompletion",
        "after CollectFiles",  # what only dropped checkpoints named is gone
    ),
    "its sinks commit": (
        {"merging": "delta"},
        "before CommitSink#3",
        "after CommitSink",  # one of the two sinks has committed
        "before WriteCommitted",
        "in recovery: after CommitSink",
    ),
    # Barriers of two sources come in different batches: rows are held back while the driver dies. (The second source
    # looks for triggers only when it begins to read and at the end.)
    BETWEEN_BARRIERS: (
        {
            "merging": "sql",
            "sources": 2,
            "conf": {
                "spark.ckpt.triggerPollInterval": "1h",
                "spark.sql.streaming.stateStore.providerClass": ROCKS_DB,
            },
        },
        "before WriteBatch#3",
        "after CreateCompletion",
        "in recovery: after WriteGeneration",
    ),
}
WORKERS = (f"{IN_FUNCTION}#3", "after WriteStateFile#2", "after PrepareCommit#2")
"""Where a Python worker dies in the last life, which Spark's retries of its tasks bring to the end."""
QUICK = (COMPLETE,)
"""A start of Spark for each death is what takes the time; the simulation tries every step there is."""


@pytest.mark.timeout(1200)  # up to five starts of Spark one after another, on whatever machine
@pytest.mark.parametrize("when", [w if w in QUICK else pytest.param(w, marks=pytest.mark.soak) for w in CASES])
def test_a_driver_killed_around_each_step_and_workers_whose_tasks_are_retried_change_no_result(
    make_job: Callable[..., KilledJob], when: str
) -> None:
    plan, *kills = CASES[when]
    job = make_job(**plan)
    for kill in kills:
        job.die(kill)
        job.check_after_death()
    job.finish(*WORKERS, victim="worker", master="local[2,4]")
    job.check_finished()
    # What the dead attempt had staged and nobody was told of. (Its state file was collected after a later checkpoint.)
    assert any(name.startswith("ckpt-") for name in job.collected)
    if when == BETWEEN_BARRIERS:
        assert max(row["held_back_bytes"] for row in job.job.checkpoints()) > 0
