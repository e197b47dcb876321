"""How many values there were and how they lie: a histogram of logarithmic buckets that stays small for ever.

After Masson, Rim and Lee, "DDSketch" (2019): a percentile is off by at most ``ERROR`` of itself; count, sum, minimum
and maximum are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ERROR = 0.02
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)

_GAMMA = (1 + ERROR) / (1 - ERROR)
_LOG_GAMMA = math.log(_GAMMA)
_ZERO = -1


@dataclass
class Distribution:
    """Of whole numbers from 0 on: milliseconds, bytes, rows."""

    count: int = 0
    total: int = 0
    minimum: int = 0
    maximum: int = 0
    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, value: int) -> None:
        value = max(0, value)
        self.minimum = min(self.minimum, value) if self.count else value
        self.maximum = max(self.maximum, value)
        self.count += 1
        self.total += value
        bucket = math.ceil(math.log(value) / _LOG_GAMMA) if value else _ZERO
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def percentile(self, percent: float) -> int | None:
        """The value that so many percent of all values do not exceed; None if there is no value."""
        rank, seen = max(1, math.ceil(self.count * percent / 100)), 0
        if 0 < self.count == rank:
            return self.maximum
        for bucket, count in sorted(self.buckets.items()):
            seen += count
            if seen >= rank:
                middle = 0 if bucket == _ZERO else 2 * _GAMMA**bucket / (_GAMMA + 1)
                return min(max(round(middle), self.minimum), self.maximum)
        return None

    def summary(self) -> dict[str, int | float | None]:
        """For people: ``count``, ``min``, ``mean``, ``max`` and percentiles (``p50`` ...)."""
        found = {f"p{p:g}": self.percentile(p) for p in PERCENTILES}
        mean = self.total / self.count if self.count else None
        least, most = (self.minimum, self.maximum) if self.count else (None, None)
        return {"count": self.count, "min": least, "mean": mean, **found, "max": most}

    def to_json(self) -> list[Any]:
        buckets = [n for pair in sorted(self.buckets.items()) for n in pair]
        return [self.count, self.total, self.minimum, self.maximum, buckets]

    @classmethod
    def from_json(cls, value: list[Any]) -> Distribution:
        count, total, minimum, maximum, buckets = value
        return cls(count, total, minimum, maximum, dict(zip(buckets[::2], buckets[1::2], strict=True)))


Metrics = dict[str, Distribution]


def add_all(metrics: Metrics, values: Mapping[str, int]) -> None:
    for name, value in values.items():
        metrics.setdefault(name, Distribution()).add(value)


def metrics_to_json(metrics: Metrics) -> dict[str, Any]:
    return {name: d.to_json() for name, d in metrics.items()}


def metrics_from_json(value: Mapping[str, Any]) -> Metrics:
    return {name: Distribution.from_json(d) for name, d in value.items()}
