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


class _Rows(NamedTuple):
    """Of all keys of the call: what is stored, which of it has not expired, what was written since."""

    found: Found
    alive: Mask
    written: Written


class _Unread:
    """The portion's values until one is asked for."""

    def __init__(self, values: Values) -> None:
        self._of = values

    def __getitem__(self, slot: int) -> Value | None:
        return self._of._read()[slot]


class _NoKey(dict[int, Any]):
    """What is written while there is no key."""

    def __contains__(self, slot: object) -> bool:
        raise IndexError("there is no key that the processor is called for")

    def __setitem__(self, slot: int, value: Any) -> None:
        raise IndexError("there is no key that the processor is called for")


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
        self._values: list[Value | None] | _Unread = _Unread(self)
        """Of the portion's keys, by slot, as they were when it began."""
        self._new: dict[int, Value | None] = _NoKey()
        """By slot, what was written since; None: it ended."""
        self._settled: dict[int, Value] = {}
        """What was read of it."""
        self._looked_up: _Rows | None = None

    def get(self) -> Value | None:
        slot = self._progress.slot
        return self._newest(slot) if slot in self._new else self._values[slot]

    def update(self, newValue: Any) -> None:
        value = newValue
        if type(value) is not tuple or not PLAIN.issuperset(map(type, value)):
            is_value(self._name, value)
            value = cleaned(value)
        self._new[self._progress.slot] = value

    def clear(self) -> None:
        self._new[self._progress.slot] = None

    def enter(self) -> None:
        """Before a portion of keys is called."""
        self._values, self._new, self._settled = _Unread(self), {}, {}

    def leave(self, where: str) -> None:
        """Behind a portion. Raises ``UserFunctionError`` if a value does not fit."""
        new, self._new = self._new, _NoKey()
        if new:
            found, _, written = self._rows()
            rows = found.place[self._progress.places[np.fromiter(new, np.int64, len(new))]]
            given = [value for value in new.values() if value is not None]
            values = self._codec.table(given, f"{where}, {self._name}")
            if len(given) == len(new):
                written.add(rows, values)
            else:
                has_value = np.fromiter((value is not None for value in new.values()), bool, len(new))
                written.end(rows[~has_value])
                written.add(rows[has_value], values)
        self._values, self._settled = _Unread(self), {}

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

    def _newest(self, slot: int) -> Value | None:
        """What was written, as it will be read in the next batch."""
        value = self._new[slot]
        if value is not None and self._settled.get(slot) is not value:
            (value,) = self._codec.settled([value])
            self._new[slot] = self._settled[slot] = value
        return value

    def _read(self) -> list[Value | None]:
        """Of all keys of the portion, as they were stored, or written in an earlier one."""
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
        self._values = values
        return values


class NumberValues(Values):
    """Of numbers only: what else is in a value would not fit, so it is looked at when the portion ends."""

    def update(self, newValue: Any) -> None:
        value = newValue
        if type(value) is not tuple:
            is_value(self._name, value)
            value = cleaned(value)
        self._new[self._progress.slot] = value


def values_of(family: Family, variable: Variable, keys: int, progress: Progress, now_ms: int) -> Values:
    numbers = all(pa.types.is_integer(f.type) or pa.types.is_floating(f.type) for f in variable.value.stored)
    return (NumberValues if numbers else Values)(family, variable, keys, progress, now_ms)
