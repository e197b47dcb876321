"""List states of one call. An element is a row under an ascending index; what is appended does not read the list.

The index of the next element of each list is kept beside them, in a family that all lists of an operator share, so
whether a list has elements is known without reading one: the last to expire takes that row along.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from spark_ckpt.state.functions.base import NO_TIMEOUT
from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.lsm.family import Family, Found
from spark_ckpt.state.processors._convert import Codec, Value, cleaned
from spark_ckpt.state.processors._errors import empty_list, is_value
from spark_ckpt.state.processors._stored import Progress, ReadAhead, end_expired, live, timeout_of
from spark_ckpt.state.processors.declared import INDEX, LIST_NAME, NEXT, Variable


class NextIndexes:
    """Of all lists of the operator, for all keys of the call."""

    def __init__(self, family: Family, names: Sequence[str], keys: int, now_ms: int) -> None:
        self._family, self._names, self._keys, self._now_ms = family, list(names), keys, now_ms
        self._found: Found | None = None
        self._next: Rows = np.empty(0, np.int64)
        self._changed: dict[int, tuple[int, int] | None] = {}

    def of(self, key: int, name: str) -> int:
        """0: the list is empty."""
        row = self._row(key, name)
        return int(self._next[row])

    def set(self, key: int, name: str, index: int, timeout_ms: int) -> None:
        """``index`` 0: the list is empty. It is told to be until the last of its elements expires, old ones too."""
        row = self._row(key, name)
        before = NO_TIMEOUT if self._found is None or not self._next[row] else int(self._found.timeout_ms[row])
        self._changed[row] = (index, max(before, timeout_ms)) if index else None

    def _row(self, key: int, name: str) -> int:
        lists = len(self._names)
        if self._found is None:
            names = pa.table({LIST_NAME: pa.array(self._names * self._keys, pa.string())})
            self._found = self._family.get(np.repeat(np.arange(self._keys), lists), names)
            known = self._found.state[NEXT].fill_null(0).to_numpy()
            self._next = np.where(live(self._found, self._now_ms), known, 0)
        return int(self._found.place[key * lists + self._names.index(name)])

    def write(self) -> None:
        if self._changed and self._found is not None:
            n = len(self._found)
            write, remove = np.zeros(n, bool), np.zeros(n, bool)
            index, timeouts = np.zeros(n, np.int64), np.full(n, NO_TIMEOUT)
            for row, value in self._changed.items():
                if value is None:
                    remove[row] = True
                else:
                    write[row], (index[row], timeouts[row]) = True, value
            self._family.write(self._found, pa.table({NEXT: index}), write, remove, timeouts)
        end_expired(self._family)


@dataclass
class _Change:
    """Of one key's list: whether what was stored ends, and what comes behind it."""

    replaced: bool = False
    added: list[Value] = field(default_factory=list)
    settled: int = 0
    """How many of ``added`` have been read since."""


class Lists:
    """One list variable. The key is the one ``progress`` is at."""

    def __init__(self, family: Family, variable: Variable, after: NextIndexes, progress: Progress, now_ms: int) -> None:
        self.variable = variable
        self._family, self._after, self._progress, self._now_ms = family, after, progress, now_ms
        self._codec = Codec(variable.value)
        self._stored: ReadAhead[list[Value]] = ReadAhead(family, progress, self._scan)
        self._changed: dict[int, _Change] = {}

    def exists(self) -> bool:
        key = self._progress.key
        change = self._changed.get(key)
        if change is not None and (change.replaced or change.added):
            return bool(change.added)
        return self._after.of(key, self.variable.name) > 0

    def get(self) -> Iterator[Value]:
        key = self._progress.key
        change = self._changed.get(key) or _Change()
        stored: list[Value] = []
        if not change.replaced and self._after.of(key, self.variable.name):
            stored = self._stored.of(key) or []
        if change.settled < len(change.added):
            change.added[change.settled :] = self._codec.settled(change.added[change.settled :])
            change.settled = len(change.added)
        return iter([*stored, *change.added])

    def put(self, values: Any) -> None:
        self._changed[self._progress.key] = _Change(True, self._checked(values))

    def append(self, values: Any) -> None:
        self._changed.setdefault(self._progress.key, _Change()).added.extend(self._checked(values))

    def clear(self) -> None:
        self._changed[self._progress.key] = _Change(True)

    def _checked(self, values: Any) -> list[Value]:
        checked = list(values)
        if not checked:
            raise empty_list(self.variable.name)
        for value in checked:
            is_value(f"state {self.variable.name!r}", value)
        return [cleaned(value) for value in checked]

    def _scan(self, keys: Rows) -> dict[int, list[Value]]:
        found = self._family.scan(keys)
        order = found.ordered()
        order = order[live(found, self._now_ms)[order]]
        elements: dict[int, list[Value]] = {}
        values = self._codec.tuples(found.state.take(pa.array(order)))
        for key, value in zip(found.key_index[order].tolist(), values, strict=True):
            elements.setdefault(key, []).append(value)
        return elements

    def write(self, where: str) -> None:
        """The next indexes are written behind all lists."""
        if self._changed:
            self._end_replaced()
            self._add(where)
        if self.variable.ttl_ms:
            end_expired(self._family)

    def _end_replaced(self) -> None:
        name = self.variable.name
        ended = [key for key, change in self._changed.items() if change.replaced]
        if ended and self._family.sizes()[ended].any():
            self._family.remove(self._family.scan(np.sort(np.array(ended, np.int64))))
        for key in ended:
            if not self._changed[key].added and self._after.of(key, name):
                self._after.set(key, name, 0, NO_TIMEOUT)

    def _add(self, where: str) -> None:
        name, ttl_ms = self.variable.name, self.variable.ttl_ms
        timeout = timeout_of(self._now_ms + ttl_ms) if ttl_ms else NO_TIMEOUT
        keys: list[int] = []
        index: list[Rows] = []
        values: list[Value] = []
        for key, change in self._changed.items():
            first, count = self._after.of(key, name), len(change.added)
            if not count:
                continue
            keys += [key] * count
            index.append(np.arange(first, first + count))
            values += change.added
            self._after.set(key, name, first + count, timeout)
        if not values:
            return
        table = self._codec.table(values, f"{where}, state {name!r}")
        found = self._family.get(np.array(keys, np.int64), pa.table({INDEX: np.concatenate(index)}))
        at = np.empty(len(found), np.int64)
        at[found.place] = np.arange(len(values))
        self._family.write(found, table.take(pa.array(at)), timeout_ms=np.full(len(found), timeout))
