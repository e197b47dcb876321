"""Slots: contiguous ranges of key groups, each in a shuffle partition of its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.state.keys.keys import key_group_of
from spark_ckpt.state.slots import Slots

SLOTS = st.builds(Slots, st.integers(1, 300), st.integers(1, 300))


@given(SLOTS)
def test_every_key_group_is_in_exactly_one_slot(slots: Slots) -> None:
    groups = [g for s in range(slots.count) for g in slots.range_of(s)]
    assert groups == list(range(slots.key_groups))
    assert [slots.slot_of_group(g) for g in groups] == [s for s in range(slots.count) for _ in slots.range_of(s)]


@given(SLOTS, st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_a_hash_is_in_the_slot_of_its_key_group_and_slots_are_in_hash_order(slots: Slots, hashes: list[int]) -> None:
    ordered = np.array(sorted(hashes))
    found = slots.slot_of(ordered)
    groups = key_group_of(ordered, slots.key_groups)
    assert found.tolist() == [slots.slot_of_group(g) for g in groups.tolist()]
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize(("key_groups", "partitions"), [(128, 2), (128, 3), (4, 200), (128, 200), (1, 1)])
def test_no_two_slots_share_a_route(key_groups: int, partitions: int) -> None:
    slots = Slots(key_groups, partitions)
    assert len(set(slots.routes)) == slots.count == min(key_groups, partitions)
    assert all(slots.slot_of_route[route] == slot for slot, route in enumerate(slots.routes))


def test_routes_are_those_of_sparks_hash_partitioning() -> None:
    # SELECT pmod(hash(v), 3) of Spark 4.2 for v in 0, 1, 11: 0, 1, 2
    assert Slots(128, 3).routes == (0, 1, 11)
