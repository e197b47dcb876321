"""The events of one run and their probes. Every engine's environment: nothing but Python.

Event ``i`` is due ``i / rate`` seconds after the run began. Some are **probes**: they have a key that no other event
has, so that one row with that key appears in each sink, once, and the moment at which it does is the end of that
event's way. They are events like all others on that way, and so few (one in some hundreds) that watching costs little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.loads import PRIME

KEYS = 1000
PROBES_PER_S = 50
INTERVALS, RATES = ("1s", "100ms"), (10_000, 50_000)
PARTITIONS = 2
"""Of the topics, in and out."""
IN, OUT, TABLE = "events", "totals", "totals"
PROBE_PREFIX = b'{"k":-'
"""How a message of a probe begins, on the way in and on the way out."""


@dataclass(frozen=True)
class Pace:
    """``rate`` events a second for ``seconds``; those of the first ``warm_up`` seconds are not measured."""

    rate: int
    seconds: float
    warm_up: float

    @property
    def stride(self) -> int:
        """One event out of so many is a probe."""
        return max(1, self.rate // PROBES_PER_S)

    @property
    def events(self) -> int:
        return int(self.rate * self.seconds)

    @property
    def measured(self) -> range:
        """The numbers of the probes that are measured."""
        return range(math.ceil(self.warm_up * self.rate / self.stride), math.ceil(self.events / self.stride))

    def due_s(self, probe: int) -> float:
        """When the event of a probe is due, behind the beginning of the run."""
        return probe * self.stride / self.rate

    def key(self, event: int) -> int:
        if event % self.stride == 0:
            return -1 - event // self.stride
        return event * PRIME % KEYS

    def value(self, event: int) -> bytes:
        """The event as a message."""
        return b'{"k":%d,"v":%d}' % (self.key(event), event)

    def probe_of(self, key: int, count: int, total: int) -> int:
        """Which probe a row is of. Raises ``ValueError`` if it says something else than this one event."""
        probe = -1 - key
        if count != 1 or total != probe * self.stride:
            raise ValueError(f"probe {probe}: expected count 1 and sum {probe * self.stride}, found {count}, {total}")
        return probe

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Pace:
        return Pace(**value)


def cell(engine: str, interval: str, rate: int) -> str:
    """What the figures of a run are called."""
    return f"{engine}, {interval}, {rate} events/s"
