"""The driver (its Python process and its JVM) dies by SIGKILL around each step of the commit; see protocol/commit.py.

Each case kills one job several times: at the named step, then again in the run that recovers, and then lets it finish.
``#3``: the third time a process comes there, so that completed checkpoints are behind it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kill.killed import KilledJob

CHAINS = {
    # Spark replays the batch; what the first attempt staged is garbage.
    "recording a batch": ("delta", "before WriteBatch#2", "after WriteBatch"),
    # A version of the state table that no completion names; then one operator's without the other's.
    "committing state": ("sql", "before CommitState#3", "after CommitState"),
    # The second death leaves a canonical completion whose batch is replayed.
    "completing a checkpoint": ("delta", "before CreateCompletion#2", "after CreateCompletion"),
    # The second death is in the recovery of the first, between the two sinks.
    "committing sinks": ("sql", "before CommitSink#3", "after CommitSink"),
    "confirming the commit": ("delta", "after WriteCommitted#2", "before WriteCommitted"),
}


@pytest.mark.parametrize("case", CHAINS)
def test_a_driver_killed_before_and_after_a_step_loses_and_doubles_nothing(
    make_job: Callable[..., KilledJob], case: str
) -> None:
    merging, *kills = CHAINS[case]
    job = make_job(merging)
    for kill in kills:
        job.die(kill)
        job.check_after_death()
    job.finish()
    job.check_finished()
