"""Every interleaving of a small job, with one crash anywhere: nothing is lost or doubled, and it always ends."""

from __future__ import annotations

import pytest

from spark_ckpt.testing.explore import BOUNDS, Bounds, explore
from spark_ckpt.testing.simulation.durable import SimulationError

SMALL = Bounds(rows=(1, 0), key_groups=1)


def test_a_small_job_is_right_in_every_state_it_can_reach() -> None:
    found = explore(SMALL)
    assert found.states > 500
    assert found.crashes > 250
    assert found.ends > 200


def test_a_refused_row_is_nowhere_and_all_others_are_there_once_the_query_filters_it() -> None:
    """However it is started behind the refusal. With a crash besides: in :data:`BOUNDS`."""
    found = explore(Bounds(rows=(2, 0), key_groups=1, crashes=0, sinks=("append", "merge"), refused=("x", 0, 1)))
    assert found.states > 100
    assert found.ends > 100


@pytest.mark.parametrize("rule", ["no_adopt", "commit_before_record"])
def test_a_broken_rule_is_noticed(rule: str) -> None:
    with pytest.raises(SimulationError):
        explore(Bounds(rows=(1, 0), key_groups=1, sabotage=rule))


@pytest.mark.soak
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_two_sources_two_tasks_and_more_are_right_in_every_state(bounds: Bounds) -> None:
    assert explore(bounds).ends
