"""How two checkpoints of a job differ, figure by figure. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spark_ckpt.monitoring.timeline import DRIVER, WORDS
from spark_ckpt.storage.history import HistoryRow


@dataclass(frozen=True)
class Line:
    """One figure of both. ``unit``: ``ms``, ``bytes`` or ``count``. None: it is not known of that checkpoint."""

    what: str
    unit: str
    before: int | None
    after: int | None

    @property
    def change(self) -> int | None:
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True)
class Part:
    """``who``: the checkpoint, an operator by uid, or the driver."""

    who: str
    lines: tuple[Line, ...]


_WHOLE = (
    ("duration", "ms", "duration_ms"),
    ("commits of the driver", "ms", "commit_ms"),
    ("alignment", "ms", "alignment_ms"),
    ("held back", "bytes", "held_back_bytes"),
    ("written", "bytes", "written_bytes"),
    ("rows written", "count", "written_rows"),
    ("keys", "count", "keys"),
)
_STATE = (("keys", "count", "keys"), ("state", "bytes", "size_bytes"), ("files", "count", "files"))


def compared(before: HistoryRow, after: HistoryRow) -> tuple[Part, ...]:
    """The checkpoints as wholes, then each operator that either has, then the driver."""
    whole = tuple(Line(what, unit, getattr(before, name), getattr(after, name)) for what, unit, name in _WHOLE)
    uids = sorted({*before.state, *after.state, *_operators(before), *_operators(after)})
    parts = [Part("checkpoint", whole), *(Part(uid, tuple(_operator(uid, before, after))) for uid in uids)]
    driver = tuple(_phases(before.phases.get(DRIVER, {}), after.phases.get(DRIVER, {})))
    return (*parts, Part(DRIVER, driver)) if driver else tuple(parts)


def _operators(row: HistoryRow) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
    found: Mapping[str, Mapping[str, Mapping[str, int]]] = row.phases.get("operators", {})
    return found


def _operator(uid: str, before: HistoryRow, after: HistoryRow) -> Iterator[Line]:
    sizes = before.state.get(uid), after.state.get(uid)
    if any(sizes):
        for what, unit, name in _STATE:
            then, now = (None if size is None else getattr(size, name) for size in sizes)
            yield Line(what, unit, then, now)
    yield from _phases(_slowest(before, uid), _slowest(after, uid))


def _slowest(row: HistoryRow, uid: str) -> dict[str, int]:
    """Each phase of the subtask that it took longest."""
    parts = _operators(row).get(uid, {}).values()
    return {name: max(part.get(name, 0) for part in parts) for name in {n for part in parts for n in part}}


def _phases(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[Line]:
    for name, words in WORDS.items():
        if name in before or name in after:
            yield Line(words, "ms", before.get(name), after.get(name))
