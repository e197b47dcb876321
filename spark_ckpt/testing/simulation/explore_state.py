"""When two states of a search are the same: everything that a later step can see is, but for names and moments.

Moments count as far as a decision can tell them apart: now, before the next look, before the time-out, past it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

_BEGIN_MS = 1_000_000
_MOMENT = re.compile(r"\b\d{7}\b")
_WORLD = {"rng", "trace", "history", "points", "zombies", "zombie_moves", "zombies_moved", "now_ms", "seen"}
_LEFT_OUT = {
    # What a state is not: its way here, what never changes, and what is made from the rest.
    "World": {*_WORLD, "stop_at"},
    "ExploredWorld": _WORLD,
    "Records": {"_parsed"},
    "State": {"scenario"},
    "Query": {"world", "scenario", "shell", "config", "polls"},
    "SourceReader": {"world", "spec", "_parsed"},
    "SourceRole": {"policy"},
}


def fingerprint(state: Any, timeout_ms: int) -> bytes:
    text = repr(_Plain(state.world.now_ms, timeout_ms).of(state))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class _Plain:
    """Makes nested values of plain ones, with one spelling for equal ones."""

    def __init__(self, now_ms: int, timeout_ms: int) -> None:
        self._now_ms, self._timeout_ms = now_ms, timeout_ms

    def of(self, value: Any) -> Any:
        if isinstance(value, Enum):
            return str(value)
        if isinstance(value, bool | float | bytes | None):
            return value
        if isinstance(value, int):
            return self._age(value) if value >= _BEGIN_MS else value
        if isinstance(value, str):
            return _MOMENT.sub(lambda m: self._age(int(m.group())), value)
        if isinstance(value, dict):
            return sorted(((self.of(k), self.of(v)) for k, v in value.items()), key=repr)
        if isinstance(value, set | frozenset):
            return sorted((self.of(v) for v in value), key=repr)
        if isinstance(value, list | tuple):
            return [self.of(v) for v in value]
        return self._object(value)

    def _object(self, value: Any) -> Any:
        name = type(value).__name__
        if not (is_dataclass(value) or hasattr(value, "__dict__")):
            raise TypeError(f"a state holds {value!r}, which the search cannot compare")
        left_out = _LEFT_OUT.get(name, set())
        return name, [(k, self.of(v)) for k, v in sorted(vars(value).items()) if k not in left_out]

    def _age(self, moment_ms: int) -> str:
        age = self._now_ms - moment_ms
        return "now" if age <= 0 else "recent" if age < self._timeout_ms else "long ago"
