"""Value states of one call: looked up together when the first is asked for, written together at its end."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_ckpt.state.functions.base import NO_TIMEOUT
from spark_ckpt.state.ipc import one_batch, picked
from spark_ckpt.state.keys.keys import Mask
from spark_ckpt.state.lsm.family import Family, Found
from spark_ckpt.state.processors._convert import PLAIN, Codec, Value, cleaned
from spark_ckpt.state.processors._errors import is_value
from spark_ckpt.state.processors._stored import Progress, end_expired, live, timeout_of
from spark_ckpt.state.processors._written import Written
from spark_ckpt.state.processors.declared import Variable

_UNREAD: Any = object()


class _Rows(NamedTuple):
    """Of all keys of the call: what is stored, which of it has not expired, what was written since."""

    found: Found
    alive: Mask
    written: Written


class Values:
    """One value variable. The key is the one ``progress`` is at.

    What is there of a portion's keys is Python's while the portion lasts, and becomes Arrow when it ends: a million
    small objects that wait for the end of the call would be in the way of everything else.
    """

    def __init__(self, family: Family, variable: Variable, keys: int, progress: Progress, now_ms: int) -> None:
        self.variable = variable
        self._family, self._progress, self._keys, self._now_ms = family, progress, keys, now_ms
        self._codec = Codec(variable.value)
        self._name = f"state {variable.name!r}"
        self._values: list[Value | None] = []
        """Of the portion's keys, by slot."""
        self._changed: set[int] = set()
        """Slots of the portion that were written."""
        self._unsettled: set[int] = set()
        """Of those, what has not been read since."""
        self._ended = False
        """Whether any of them was written to have no value."""
        self._looked_up: _Rows | None = None

    def get(self) -> Value | None:
        slot = self._progress.slot
        value = self._values[slot]
        if value is _UNREAD:
            return self._read()
        if slot in self._unsettled and value is not None:
            self._unsettled.discard(slot)
            (value,) = self._codec.settled([value])
            self._values[slot] = value
        return value

    def update(self, newValue: Any) -> None:
        value = newValue
        if type(value) is not tuple or not PLAIN.issuperset(map(type, value)):
            is_value(self._name, value)
            value = cleaned(value)
        slot = self._progress.slot
        self._values[slot] = value
        self._changed.add(slot)
        self._unsettled.add(slot)

    def clear(self) -> None:
        slot = self._progress.slot
        self._values[slot] = None
        self._changed.add(slot)
        self._ended = True

    def enter(self) -> None:
        """Before a portion of keys is called."""
        self._values = [_UNREAD] * len(self._progress.places)

    def leave(self, where: str) -> None:
        """Behind a portion. Raises ``UserFunctionError`` if a value does not fit."""
        if self._changed:
            slots = np.sort(np.fromiter(self._changed, np.int64, len(self._changed)))
            values, has_value = self._values, np.ones(len(slots), bool)
            if len(slots) < len(values):
                values = [values[slot] for slot in slots.tolist()]
            if self._ended:
                has_value = np.fromiter((v is not None for v in values), bool, len(values))
            given = [v for v in values if v is not None]
            table = self._codec.table(given, f"{where}, {self._name}")
            rows = self._rows()
            rows.written.add(rows.found.place[self._progress.places[slots]], has_value, table)
        self._values, self._changed, self._unsettled, self._ended = [], set(), set(), False

    def write(self, where: str) -> None:
        """At the end of the call."""
        rows, ttl_ms = self._looked_up, self.variable.ttl_ms
        if rows is not None and rows.written:
            timeouts = np.full(len(rows.found), timeout_of(self._now_ms + ttl_ms) if ttl_ms else NO_TIMEOUT)
            self._family.write(rows.found, *rows.written.all(), timeouts)
        if ttl_ms:
            end_expired(self._family)

    def _rows(self) -> _Rows:
        if self._looked_up is None:
            found = self._family.get(np.arange(self._keys), pa.table({}))
            self._looked_up = _Rows(found, live(found, self._now_ms), Written(len(found), self._codec.schema))
        return self._looked_up

    def _read(self) -> Value | None:
        """Of all keys of the portion that were not written in it."""
        known = self._known()
        if self._changed:
            pairs = zip(self._values, known, strict=True)
            known = [stored if value is _UNREAD else value for value, stored in pairs]
        self._values = known
        return known[self._progress.slot]

    def _known(self) -> list[Value | None]:
        """As they were stored, or written in an earlier portion."""
        found, alive, written = self._rows()
        rows = found.place[self._progress.places]
        there = alive[rows]
        values: list[Value | None] = [None] * len(rows)
        if there.any():
            values = [*self._codec.tuples(picked(one_batch(found.state), rows))]
        changed, has_value = written.changed(rows)
        for at in np.flatnonzero(~there | changed).tolist():
            values[at] = None
        if has_value.any():
            newer = self._codec.tuples(written.values(rows[has_value]))
            for at, value in zip(np.flatnonzero(has_value).tolist(), newer, strict=True):
                values[at] = value
        return values
