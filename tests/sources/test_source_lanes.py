"""Splits are distributed over lanes deterministically, in order and evenly."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.sources.lanes import lanes


@dataclass(frozen=True)
class Sized:
    size_bytes: int


@dataclass(frozen=True)
class Counted:
    rows: int


@given(st.lists(st.integers(0, 50)), st.integers(1, 9))
def test_every_split_is_in_one_lane_in_order_and_no_better_bound_exists(sizes: list[int], n: int) -> None:
    splits = [Sized(size) for size in sizes]
    found = lanes(splits, n)
    assert len(found) == n
    assert [split for lane in found for split in lane] == splits
    largest = max(sum(max(1, s.size_bytes) for s in lane) for lane in found)
    assert largest == best_bound([max(1, size) for size in sizes], n)


def best_bound(weights: list[int], n: int) -> int:
    """The smallest largest sum of ``n`` contiguous ranges, by dynamic programming."""
    sums = [0]
    for weight in weights:
        sums.append(sums[-1] + weight)
    best = list(sums)
    for _ in range(n - 1):
        best = [min(max(best[j], sums[i] - sums[j]) for j in range(i + 1)) for i in range(len(sums))]
    return best[-1]


def test_splits_weigh_their_bytes_or_their_rows_or_the_same() -> None:
    assert [len(lane) for lane in lanes([Sized(1), Sized(1), Sized(1), Sized(9)], 2)] == [3, 1]
    assert [len(lane) for lane in lanes([Counted(9), Counted(1), Counted(1)], 2)] == [1, 2]
    assert [len(lane) for lane in lanes(["a", "b", "c", "d"], 2)] == [2, 2]
    assert [len(lane) for lane in lanes([Sized(100), "b", "c", "d"], 2)] == [2, 2]


def test_there_is_at_least_one_lane() -> None:
    with pytest.raises(ValueError, match="at least one lane"):
        lanes([], 0)
