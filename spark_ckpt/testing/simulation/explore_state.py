"""When two states of a search are the same: everything that a later step can see is, but for names and moments.

Moments count as far as a decision can tell them apart: now, before the next look, before the time-out, past it. Names
that are drawn count by the order in which they come.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

LATER_MS = 2_000_000_000
"""Where the clock goes on behind the first start: what is as large is a moment, and nothing else is."""
_MOMENT = re.compile(r"\b2\d{9}\b")
_DRAWN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b|\b[0-9a-f]{12}\b")


def fingerprint(state: Any, timeout_ms: int) -> bytes:
    plain = _Plain(state.world.now_ms, timeout_ms)
    text = repr((_disk(state.world.disk), plain.of(_told(state))))
    return hashlib.blake2b(plain.text(text).encode(), digest_size=16).digest()


def _told(state: Any) -> Any:
    """What is not on the disk."""
    world, query = state.world, state.query
    durable = (
        world.sink,
        world.drains,
        world.answers,
        world.crashes_left,
        world.late_left,
        world.filtered,
        state.location,
    )
    stores = [(n, at._batches("state"), at._state) for n, at in sorted(world.locations.items())]
    return durable, stores, None if query is None else _driver(query)


def _driver(query: Any) -> Any:
    """What the processes of one start remember. What they keep of the disk says the disk."""
    known = [(r._triggers._view, r._triggers._reported, r._replaying, r._watch) for r in query.readers]
    return query.partitions, query.committer._view, query.committer._next, known


def _disk(disk: Any) -> list[tuple[str, str]]:
    return [(path, _content(path, data)) for path, data in sorted(disk.files.items()) if "/_delta_log/" not in path]


def _content(path: str, data: bytes) -> str:
    if path.endswith((".parquet", ".bin")):
        return hashlib.blake2b(data, digest_size=8).hexdigest()
    text = data.decode()
    if path.endswith(".json") and text.startswith("{"):
        record = json.loads(text)
        return repr(record.get("body", record))  # without its checksum, and who wrote it
    return text


class _Plain:
    """Makes nested values of plain ones, with one spelling for equal ones."""

    def __init__(self, now_ms: int, timeout_ms: int) -> None:
        self._now_ms, self._timeout_ms = now_ms, timeout_ms
        self._names: dict[str, str] = {}

    def text(self, text: str) -> str:
        text = _MOMENT.sub(lambda m: self._age(int(m.group())), text)
        return _DRAWN.sub(lambda m: self._names.setdefault(m.group(), f"name{len(self._names)}"), text)

    def of(self, value: Any) -> Any:
        if isinstance(value, Enum):
            return str(value)
        if isinstance(value, bool | int | float | bytes | str | None):
            return value
        if isinstance(value, dict):
            return sorted(((self.of(k), self.of(v)) for k, v in value.items()), key=repr)
        if isinstance(value, set | frozenset):
            return sorted((self.of(v) for v in value), key=repr)
        if isinstance(value, list | tuple):
            return [self.of(v) for v in value]
        return self._object(value)

    def _object(self, value: Any) -> Any:
        if not (is_dataclass(value) or hasattr(value, "__dict__")):
            raise TypeError(f"a state holds {value!r}, which the search cannot compare")
        return type(value).__name__, [(k, self.of(v)) for k, v in sorted(vars(value).items())]

    def _age(self, moment_ms: int) -> str:
        age = self._now_ms - moment_ms
        return "now" if age <= 0 else "recent" if age < self._timeout_ms else "long ago"
