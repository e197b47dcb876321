"""What the state variables of one call share: rows of a family that are read some keys ahead, and when they expire."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from spark_ckpt.state.functions.base import NO_TIMEOUT
from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.keys.keys import Mask
from spark_ckpt.state.lsm.family import Family, Found

_LONG_AGO = NO_TIMEOUT - 1
"""An expiry before 1970: neither clock is ever before it."""

MOST_KEYS = 1024
_FIRST = 4
MOST_ROWS = 1 << 16
"""So many rows at most are read ahead; a key that has more is read alone."""

T = TypeVar("T")


def timeout_of(expiry_ms: int) -> int:
    """Of what expires at a time and not behind it, as time-outs do."""
    return expiry_ms - 1 if expiry_ms > 0 else _LONG_AGO


def timeouts_of(expiries_ms: Rows) -> Rows:
    """The same of many."""
    return np.where(expiries_ms > 0, expiries_ms - 1, _LONG_AGO)


def live(found: Found, now_ms: int) -> Mask:
    """Which rows exist and have not expired by ``now_ms``. Until they are removed they are still found."""
    timeouts = found.timeout_ms
    return found.exists & ((timeouts == NO_TIMEOUT) | (timeouts >= now_ms))


def end_expired(family: Family) -> None:
    """Remove the rows whose expiry this call is for, but those that were written anew in it."""
    due = family.due()
    if len(due):
        family.remove(due)


class Progress:
    """Which key of a call the user's processor is at. ``order`` lists the keys as they are called; one can repeat.

    Calls are made a portion at a time: ``places`` are the keys of the present one, ascending and each once, ``slot``
    says which of them it is, and ``done`` grows with each call that is over.
    """

    __slots__ = ("_begun", "_behind", "_places", "done", "order", "places", "slot")

    def __init__(self, order: Rows) -> None:
        self.order = order
        self.slot = self._begun = self._behind = 0
        self.done: Sequence[int] = ()
        self.places = np.empty(0, np.int64)
        self._places: list[int] = []

    def enter(self, places: Rows) -> Sequence[int]:
        """A portion begins, whose calls are for ``places``; returns the slot of each."""
        self._begun, self.done = self._behind, ()
        self._behind += len(places)
        slots: Sequence[int] = range(len(places))
        if (places[1:] <= places[:-1]).any():
            places, inverse = np.unique(places, return_inverse=True)
            slots = inverse.tolist()
        self.places, self._places, self.slot = places, [], 0
        return slots

    def leave(self) -> None:
        """The portion is over: there is no key until the next one."""
        self.places, self._places = self.places[:0], []

    @property
    def at(self) -> int:
        """Which call it is."""
        return self._begun + len(self.done)

    @property
    def key(self) -> int:
        if not self._places:  # value states do not ask
            self._places = self.places.tolist()
        return self._places[self.slot]


class ReadAhead(Generic[T]):
    """``scan`` gives what some keys have (ascending, distinct), all they have. Read one key at a time, that would cost
    a search of each run a key; so the keys that are called next are read along, more of them the longer that paid.
    """

    def __init__(self, family: Family, progress: Progress, scan: Callable[[Rows], dict[int, T]]) -> None:
        self._family, self._progress, self._scan = family, progress, scan
        self._known: dict[int, T | None] = {}
        self._sizes: Rows | None = None
        self._window, self._end = _FIRST, 0

    def size(self, key: int) -> int:
        """How many rows it has at most."""
        if self._sizes is None:
            self._sizes = self._family.sizes()
        return int(self._sizes[key])

    def of(self, key: int) -> T | None:
        """None: it has no rows."""
        if key not in self._known:
            if not self.size(key):
                return None
            keys = self._next_keys(key)
            self._known = {**dict.fromkeys(keys.tolist()), **self._scan(keys)}
        return self._known[key]

    def _next_keys(self, key: int) -> Rows:
        at, sizes = self._progress.at, self._sizes
        assert sizes is not None
        self._window = min(16 * self._window, MOST_KEYS) if at == self._end else max(self._window // 4, 1)
        keys = self._progress.order[at : at + self._window]
        fitting = int(np.searchsorted(np.cumsum(sizes[keys]), MOST_ROWS))
        self._end = at + max(1, fitting)
        keys = keys[: max(1, fitting)]
        return np.unique(np.append(keys[sizes[keys] > 0], key))
