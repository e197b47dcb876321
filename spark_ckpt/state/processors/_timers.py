"""Timers of one call: a set of times for each key. They fire when the clock has reached them, the earliest first."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.keys.keys import Mask
from spark_ckpt.state.lsm.family import Family
from spark_ckpt.state.processors._stored import Progress, ReadAhead, timeout_of
from spark_ckpt.state.processors.declared import EXPIRY


class Timers:
    """The key is the one ``progress`` is at."""

    def __init__(self, family: Family, progress: Progress) -> None:
        self._family, self._progress = family, progress
        self._stored: ReadAhead[list[int]] = ReadAhead(family, progress, self._scan)
        self._changed: dict[tuple[int, int], bool] = {}
        self._of_key: dict[int, set[int]] = {}

    @staticmethod
    def due(family: Family) -> list[tuple[int, int]]:
        """(time, key) of those that fire in this call, in the order they do."""
        found = family.due()
        return sorted(zip(found.sub_keys[EXPIRY].to_pylist(), found.key_index.tolist(), strict=True))

    def register(self, expiry_ms: int) -> None:
        self._set(expiry_ms, True)

    def delete(self, expiry_ms: int) -> None:
        self._set(expiry_ms, False)

    def fired(self, key: int, time: int) -> None:
        """It is gone, even if it was registered again meanwhile: that was the same timer."""
        self._changed[key, time] = False
        self._of_key.setdefault(key, set()).add(time)

    def of_key(self) -> list[int]:
        key = self._progress.key
        times = set(self._stored.of(key) or ())
        for time in self._of_key.get(key, ()):
            if self._changed[key, time]:
                times.add(time)
            else:
                times.discard(time)
        return sorted(times)

    def _set(self, expiry_ms: int, there: bool) -> None:
        key, time = self._progress.key, int(expiry_ms)
        self._changed[key, time] = there
        self._of_key.setdefault(key, set()).add(time)

    def _scan(self, keys: Rows) -> dict[int, list[int]]:
        found = self._family.scan(keys)
        times: dict[int, list[int]] = {}
        for key, time in zip(found.key_index.tolist(), found.sub_keys[EXPIRY].to_pylist(), strict=True):
            times.setdefault(key, []).append(time)
        return times

    def write(self) -> None:
        if not self._changed:
            return
        keys, times = zip(*self._changed, strict=True)
        found = self._family.get(np.array(keys, np.int64), pa.table({EXPIRY: pa.array(times, pa.int64())}))
        there: Mask = np.empty(len(found), bool)
        there[found.place] = np.fromiter(self._changed.values(), bool, len(keys))
        timeouts = np.empty(len(found), np.int64)
        timeouts[found.place] = [timeout_of(time) for time in times]
        self._family.write(found, write=there & ~found.exists, remove=~there & found.exists, timeout_ms=timeouts)
