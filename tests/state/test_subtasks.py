"""Subtasks: contiguous ranges of key groups, each in a shuffle partition of its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.state.keys.keys import key_group_of
from spark_ckpt.state.subtasks import Subtasks

SUBTASKS = st.builds(Subtasks, st.integers(1, 300), st.integers(1, 300))


@given(SUBTASKS)
def test_every_key_group_is_in_exactly_one_subtask(subtasks: Subtasks) -> None:
    groups = [g for s in range(subtasks.count) for g in subtasks.range_of(s)]
    assert groups == list(range(subtasks.key_groups))
    assert [subtasks.subtask_of_group(g) for g in groups] == [
        s for s in range(subtasks.count) for _ in subtasks.range_of(s)
    ]


@given(SUBTASKS, st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_a_hash_is_in_the_subtask_of_its_key_group_and_subtasks_are_in_hash_order(
    subtasks: Subtasks, hashes: list[int]
) -> None:
    ordered = np.array(sorted(hashes))
    found = subtasks.subtask_of(ordered)
    groups = key_group_of(ordered, subtasks.key_groups)
    assert found.tolist() == [subtasks.subtask_of_group(g) for g in groups.tolist()]
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize(("key_groups", "partitions"), [(128, 2), (128, 3), (4, 200), (128, 200), (1, 1)])
def test_no_two_subtasks_share_a_route(key_groups: int, partitions: int) -> None:
    subtasks = Subtasks(key_groups, partitions)
    assert len(set(subtasks.routes)) == subtasks.count == min(key_groups, partitions)
    assert all(subtasks.subtask_of_route[route] == subtask for subtask, route in enumerate(subtasks.routes))


def test_routes_are_those_of_sparks_hash_partitioning() -> None:
    # SELECT pmod(hash(v), 3) of Spark 4.2 for v in 0, 1, 11: 0, 1, 2
    assert Subtasks(128, 3).routes == (0, 1, 11)
