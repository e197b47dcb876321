"""Timers of one call: a set of times for each key. They fire when the clock has reached them, the earliest first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.keys.keys import Mask
from spark_ckpt.state.lsm.family import Family
from spark_ckpt.state.processors._stored import Progress, ReadAhead, timeouts_of
from spark_ckpt.state.processors.declared import EXPIRY


class Timers:
    """The key is the one ``progress`` is at."""

    def __init__(self, family: Family, progress: Progress) -> None:
        self._family, self._progress = family, progress
        self._stored: ReadAhead[list[int]] = ReadAhead(family, progress, self._scan)
        self._changed: dict[int, dict[int, bool]] = {}
        """By key and time: whether it is there now."""

    @staticmethod
    def due(family: Family) -> list[tuple[int, int]]:
        """(time, key) of those that fire in this call, in the order they do."""
        found = family.due()
        return sorted(zip(found.sub_keys[EXPIRY].to_pylist(), found.key_index.tolist(), strict=True))

    def register(self, expiryTimestampMs: int) -> None:
        key = self._progress.key
        changed = self._changed.get(key)
        if changed is None:
            changed = self._changed[key] = {}
        changed[int(expiryTimestampMs)] = True

    def delete(self, expiryTimestampMs: int) -> None:
        key = self._progress.key
        changed = self._changed.get(key)
        if changed is None:
            changed = self._changed[key] = {}
        changed[int(expiryTimestampMs)] = False

    def fired(self, key: int, time: int) -> None:
        """It is gone, even if it was registered again meanwhile: that was the same timer."""
        self._changed.setdefault(key, {})[time] = False

    def of_key(self) -> Iterator[int]:
        """The earliest first."""
        key = self._progress.key
        stored, changed = self._stored.of(key) or [], self._changed.get(key)
        if changed is None:
            return iter(sorted(stored))
        kept = [time for time in stored if time not in changed]
        return iter(sorted([*kept, *(time for time, there in changed.items() if there)]))

    def _scan(self, keys: Rows) -> dict[int, list[int]]:
        found = self._family.scan(keys)
        times: dict[int, list[int]] = {}
        for key, time in zip(found.key_index.tolist(), found.sub_keys[EXPIRY].to_pylist(), strict=True):
            times.setdefault(key, []).append(time)
        return times

    def write(self) -> None:
        if not self._changed:
            return
        of_key = list(self._changed.values())
        keys = np.repeat(np.fromiter(self._changed, np.int64), np.fromiter(map(len, of_key), np.int64))
        times = np.fromiter(chain.from_iterable(of_key), np.int64, len(keys))
        found = self._family.get(keys, pa.table({EXPIRY: times}))
        there: Mask = np.empty(len(found), bool)
        there[found.place] = np.fromiter(chain.from_iterable(map(dict.values, of_key)), bool, len(keys))
        timeouts = np.empty(len(found), np.int64)
        timeouts[found.place] = timeouts_of(times)
        self._family.write(found, write=there & ~found.exists, remove=~there & found.exists, timeout_ms=timeouts)
