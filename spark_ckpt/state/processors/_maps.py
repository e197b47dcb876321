"""Map states of one call. An entry is a row under the user's key. A small map is read whole, and those of the keys that
are called next along with it; of a large one, only the entries that are asked for. What changed is written at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from spark_ckpt.state.functions.base import NO_TIMEOUT
from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.lsm.family import Family, Found
from spark_ckpt.state.processors._convert import Codec, Value, cleaned
from spark_ckpt.state.processors._errors import is_value
from spark_ckpt.state.processors._stored import Progress, ReadAhead, end_expired, live, timeout_of
from spark_ckpt.state.processors.declared import Columns, Variable

SMALL = 256
"""Maps of at most so many rows are read whole."""
_SAMPLE = 32

Entries = dict[Value, Value]


@dataclass
class _Change:
    """Of one key's map: whether all that was stored ends; None for entries that do."""

    replaced: bool = False
    entries: dict[Value, Value | None] = field(default_factory=dict)
    points: dict[Value, Value | None] = field(default_factory=dict)
    """Entries of a large map that were looked up."""
    unsettled: set[Value] = field(default_factory=set)
    """Keys of ``entries`` that have not been read since they were written."""


class Maps:
    """One map variable. The key is the one ``progress`` is at."""

    def __init__(self, family: Family, variable: Variable, user_key: Columns, progress: Progress, now_ms: int) -> None:
        self.variable = variable
        self._family, self._progress, self._now_ms = family, progress, now_ms
        self._codec, self._key_codec = Codec(variable.value), Codec(user_key)
        self._row = self._codec.row_of()
        self._stored: ReadAhead[Entries] = ReadAhead(family, progress, self._scan)
        self._maps: dict[int, _Change] = {}

    def exists(self) -> bool:
        change = self._change()
        if any(value is not None for value in change.entries.values()):
            return True
        if change.replaced:
            return False
        key = self._progress.key
        large = not change.entries and self._stored.size(key) > SMALL
        if large and live(self._family.sample(key, _SAMPLE), self._now_ms).any():
            return True
        return bool(self._merged())

    def get(self, user_key: Any) -> Value | None:
        """As a ``Row``, as Spark gives it here and nowhere else."""
        found = self._get(user_key)
        return None if found is None else self._row(*found)

    def has(self, user_key: Any) -> bool:
        return self._get(user_key) is not None

    def _get(self, user_key: Any) -> Value | None:
        wanted, change, key = self._user_key(user_key), self._change(), self._progress.key
        if wanted in change.unsettled:
            self._settle(change, [wanted])
        if wanted in change.entries or change.replaced:
            return change.entries.get(wanted)
        if self._stored.size(key) <= SMALL:
            return (self._stored.of(key) or {}).get(wanted)
        if wanted not in change.points:
            change.points[wanted] = self._point(key, wanted)
        return change.points[wanted]

    def update(self, user_key: Any, value: Any) -> None:
        is_value(f"state {self.variable.name!r}", value)
        change, key = self._change(), self._user_key(user_key)
        change.entries[key] = cleaned(value)
        change.unsettled.add(key)

    def remove(self, user_key: Any) -> None:
        change, key = self._change(), self._user_key(user_key)
        change.entries[key] = None
        change.unsettled.discard(key)

    def clear(self) -> None:
        self._maps[self._progress.key] = _Change(replaced=True)

    def items(self) -> Iterator[tuple[Value, Value]]:
        return iter(list(self._merged().items()))

    def _settle(self, change: _Change, keys: list[Value]) -> None:
        """Values that were written as they will be read."""
        settled = self._codec.settled([change.entries[key] or () for key in keys])
        change.entries.update(zip(keys, settled, strict=True))
        change.unsettled.difference_update(keys)

    def _change(self) -> _Change:
        return self._maps.setdefault(self._progress.key, _Change())

    def _user_key(self, user_key: Any) -> Value:
        """As keys are compared."""
        is_value(f"key of state {self.variable.name!r}", user_key)
        key = cleaned(user_key)
        if self._key_codec.comparable:
            return key
        return self._key_codec.tuples(self._key_codec.table([key], f"key of state {self.variable.name!r}"))[0]

    def _merged(self) -> Entries:
        change = self._change()
        self._settle(change, [*change.unsettled])
        entries = {} if change.replaced else dict(self._stored.of(self._progress.key) or {})
        for user_key, value in change.entries.items():
            if value is not None:
                entries[user_key] = value
            else:
                entries.pop(user_key, None)
        return entries

    def _point(self, key: int, wanted: Value) -> Value | None:
        table = self._key_codec.table([wanted], f"key of state {self.variable.name!r}")
        found = self._family.get(np.array([key]), table)
        return self._codec.tuples(found.state)[0] if live(found, self._now_ms)[0] else None

    def _scan(self, keys: Rows) -> dict[int, Entries]:
        found = self._family.scan(keys)
        order = found.ordered()
        order = order[live(found, self._now_ms)[order]]
        at, maps = pa.array(order), dict[int, Entries]()
        user_keys, values = self._key_codec.tuples(found.sub_keys.take(at)), self._codec.tuples(found.state.take(at))
        for key, user_key, value in zip(found.key_index[order].tolist(), user_keys, values, strict=True):
            maps.setdefault(key, {})[user_key] = value
        return maps

    def write(self, where: str) -> None:
        changed = {key: change for key, change in self._maps.items() if change.replaced or change.entries}
        if changed:
            self._end_replaced([key for key, change in changed.items() if change.replaced])
            self._set(changed, where)
        if self.variable.ttl_ms:
            end_expired(self._family)

    def _end_replaced(self, keys: list[int]) -> None:
        if keys and self._family.sizes()[keys].any():
            self._family.remove(self._family.scan(np.sort(np.array(keys, np.int64))))

    def _set(self, changed: dict[int, _Change], where: str) -> None:
        keys = [key for key, change in changed.items() for _ in change.entries]
        user_keys = [user_key for change in changed.values() for user_key in change.entries]
        values = [value for change in changed.values() for value in change.entries.values()]
        if not keys:
            return
        name = f"state {self.variable.name!r}"
        sub_keys = self._key_codec.table(user_keys, f"{where}, key of {name}")
        given = [value for value in values if value is not None]
        table = self._codec.table(given, f"{where}, {name}")
        found = self._family.get(np.array(keys, np.int64), sub_keys)
        at = np.full(len(found), -1)
        has_value = np.fromiter((v is not None for v in values), bool, len(values))
        at[found.place[has_value]] = np.arange(len(given))
        self._write(found, table.take(pa.array(at, mask=at < 0)), at >= 0)

    def _write(self, found: Found, state: pa.Table, write: Any) -> None:
        ttl_ms = self.variable.ttl_ms
        timeouts = np.full(len(found), timeout_of(self._now_ms + ttl_ms) if ttl_ms else NO_TIMEOUT)
        self._family.write(found, state, write, ~write & found.exists, timeouts)
