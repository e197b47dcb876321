"""Value states of one call: looked up together when the first is asked for, written together at its end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from spark_ckpt.state.functions.base import NO_TIMEOUT
from spark_ckpt.state.ipc import one_batch, picked
from spark_ckpt.state.lsm.family import Family, Found
from spark_ckpt.state.processors._convert import Codec, Value, cleaned
from spark_ckpt.state.processors._errors import is_value
from spark_ckpt.state.processors._stored import Progress, end_expired, live, timeout_of
from spark_ckpt.state.processors.declared import Variable

_CHUNK = 4096
"""So many keys' values become Python's at a time."""


class Values:
    """One value variable. The key is the one ``progress`` is at."""

    def __init__(self, family: Family, variable: Variable, keys: int, progress: Progress, now_ms: int) -> None:
        self.variable = variable
        self._family, self._progress, self._keys, self._now_ms = family, progress, keys, now_ms
        self._codec = Codec(variable.value)
        self._found: Found | None = None
        self._live = np.empty(0, bool)
        self._name = f"state {variable.name!r}"
        self._chunks: dict[int, list[Value | None]] = {}
        """Of the keys from ``_CHUNK`` times the number on."""
        self._changed: dict[int, Value | None] = {}

    def get(self) -> Value | None:
        key = self._progress.key
        if key in self._changed:
            return self._changed[key]
        chunk = key // _CHUNK
        if chunk not in self._chunks:
            self._chunks[chunk] = self._read(chunk * _CHUNK)
        return self._chunks[chunk][key % _CHUNK]

    def _read(self, first: int) -> list[Value | None]:
        found = self._lookup()
        rows = found.place[first : first + _CHUNK]
        values, there = self._codec.tuples(picked(one_batch(found.state), rows)), self._live[rows]
        if there.all():
            return list(values)
        return [value if is_there else None for value, is_there in zip(values, there.tolist())]

    def update(self, value: Any) -> None:
        is_value(self._name, value)
        self._changed[self._progress.key] = cleaned(value)

    def clear(self) -> None:
        self._changed[self._progress.key] = None

    def _lookup(self) -> Found:
        if self._found is None:
            self._found = self._family.get(np.arange(self._keys), pa.table({}))
            self._live = live(self._found, self._now_ms)
        return self._found

    def write(self, where: str) -> None:
        if self._changed:
            found, n = self._lookup(), self._keys
            rows = found.place[np.fromiter(self._changed, np.int64, len(self._changed))]
            has_value = np.fromiter((v is not None for v in self._changed.values()), bool, len(rows))
            values = [v for v in self._changed.values() if v is not None]
            table = self._codec.table(values, f"{where}, {self._name}")
            at = np.full(n, -1)
            at[rows[has_value]] = np.arange(len(values))
            remove = np.zeros(n, bool)
            remove[rows[~has_value]] = True
            ttl_ms = self.variable.ttl_ms
            timeouts = np.full(n, timeout_of(self._now_ms + ttl_ms) if ttl_ms else NO_TIMEOUT)
            self._family.write(found, table.take(pa.array(at, mask=at < 0)), at >= 0, remove, timeouts)
        if self.variable.ttl_ms:
            end_expired(self._family)
