"""How the splits of a batch are shared out among a source's lanes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

Split = TypeVar("Split")


def lanes(splits: Sequence[Split], n: int) -> list[list[Split]]:
    """Distribute ``splits`` over ``n`` lanes: contiguous ranges in order, the largest lane as small as possible.

    A split weighs its ``size_bytes``, or its ``rows``, or 1 where not every split has that attribute. Deterministic;
    always ``n`` lists, some may be empty.
    """
    if n < 1:
        raise ValueError(f"expected at least one lane, found {n}")
    weights = _weights(splits)
    low, high = max(weights, default=0), sum(weights)
    while low < high:
        capacity = (low + high) // 2
        low, high = (low, capacity) if len(_fill(weights, capacity)) <= n else (capacity + 1, high)
    ends = _fill(weights, low)
    ends += [len(splits)] * (n - len(ends))
    return [list(splits[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def _weights(splits: Sequence[Any]) -> list[int]:
    for attribute in ("size_bytes", "rows"):
        found = [getattr(split, attribute, None) for split in splits]
        if all(isinstance(weight, int) for weight in found):
            return [max(1, weight) for weight in found if weight is not None]
    return [1] * len(splits)


def _fill(weights: Sequence[int], capacity: int) -> list[int]:
    """Where lanes end when each takes as many splits as fit into ``capacity``."""
    ends, load = [], 0
    for index, weight in enumerate(weights):
        if load + weight > capacity:
            ends.append(index)
            load = 0
        load += weight
    return [*ends, len(weights)] if weights else []
