"""How the keyed state of a run is spread over Spark's tasks.

A *subtask* is one task of a keyed operator: a contiguous range of key groups. Spark calls the operator once for each
subtask and batch, so what a call costs does not grow with the number of key groups. Checkpoints speak of key groups
only; that is what lets a later run use another number of subtasks.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from spark_ckpt.state.keys.keys import Hashes, key_group_of
from spark_ckpt.state.lsm.ranges import KeyRange

_SEED = 42
"""That of Spark's hash partitioning."""


@dataclass(frozen=True)
class Subtasks:
    """``count`` subtasks for ``key_groups`` key groups, over ``partitions`` shuffle partitions. Any process.

    ``count`` is the smaller of the two: more subtasks than key groups would be empty.
    """

    key_groups: int
    partitions: int

    @property
    def count(self) -> int:
        return min(self.key_groups, self.partitions)

    def range_of(self, subtask: int) -> KeyRange:
        first, end = (-(-s * self.key_groups // self.count) for s in (subtask, subtask + 1))
        return KeyRange(first, end, self.key_groups)

    def subtask_of_group(self, group: int) -> int:
        return group * self.count // self.key_groups

    def subtask_of(self, hashes: Hashes) -> npt.NDArray[np.int32]:
        """The subtask of each key hash: monotone in the signed hash, as the key group is."""
        groups = key_group_of(hashes, self.key_groups)
        return (groups.astype(np.int64) * self.count // self.key_groups).astype(np.int32)

    @cached_property
    def routes(self) -> tuple[int, ...]:
        """For each subtask the value that Spark's shuffle sends to a partition of its own.

        Numbers 0, 1, 2 ... would meet in some partitions and leave others empty.
        """
        found: dict[int, int] = {}
        value = 0
        while len(found) < self.partitions:
            found.setdefault(_murmur3(value) % self.partitions, value)
            value += 1
        return tuple(found[p] for p in range(self.count))

    @cached_property
    def subtask_of_route(self) -> dict[int, int]:
        return {route: subtask for subtask, route in enumerate(self.routes)}


def _murmur3(value: int) -> int:
    """Spark's hash of one int column (``Murmur3_x86_32.hashInt``), as a signed number."""

    def rotated(x: int, by: int) -> int:
        return (x << by | x >> (32 - by)) & 0xFFFFFFFF

    k = rotated(value * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    h = (rotated(_SEED ^ k, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    signed: int = struct.unpack("<i", struct.pack("<I", h ^ h >> 16))[0]
    return signed
