"""What is streamed: the same rows for every engine. Pure; needs numpy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

PRIME = 2654435761
"""Knuth's: ``i * PRIME % keys`` touches each of ``keys`` keys once in any ``keys`` rows in a row."""

START_S = 86_400
"""The event time of the first rows, in seconds: Flink's interval join passes over rows at 0."""

CYCLE, ZIPF, HOT = "cycle", "zipf", "hot"
_ZIPF_TABLE = 1 << 20


@dataclass(frozen=True)
class Phase:
    """``batches`` batches of ``rows`` rows. ``batches=None``: without end, only as the last phase."""

    rows: int
    batches: int | None = None


@dataclass(frozen=True)
class Load:
    """Row *i* is ``(key(i), i)``, in batches as the phases say.

    ``keys`` is how many there are; ``spread`` how rows fall on them: ``cycle`` evenly, ``hot`` every second row on one
    key, ``zipf`` by Zipf's law with exponent ``zipf``. ``splits`` is how many tasks may read a batch.
    ``window_rows`` > 0 adds a column ``ts`` that moves on by 10 s every so many rows.
    """

    keys: int
    phases: tuple[Phase, ...]
    spread: str = CYCLE
    zipf: float = 1.2
    splits: int = 2
    window_rows: int = 0

    def phase_of(self, row: int) -> int:
        """The phase that row number ``row`` is in."""
        start = 0
        for number, phase in enumerate(self.phases):
            if phase.batches is None or row < start + phase.rows * phase.batches:
                return number
            start += phase.rows * phase.batches
        return len(self.phases) - 1

    @property
    def total(self) -> int | None:
        """All rows; None if it never ends."""
        if any(p.batches is None for p in self.phases):
            return None
        return sum(p.rows * (p.batches or 0) for p in self.phases)

    def end(self, start: int) -> int:
        """Where the batch that begins at row ``start`` ends."""
        wanted = start + self.phases[self.phase_of(start)].rows
        return wanted if self.total is None else min(wanted, self.total)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Load:
        return cls(**{**value, "phases": tuple(Phase(**p) for p in value["phases"])})

    def smaller(self, factor: int) -> Load:
        """The same shape, ``factor`` times smaller and with few batches."""
        phases = tuple(Phase(max(600, p.rows // factor), p.batches and min(p.batches, 2)) for p in self.phases)
        return replace(self, keys=max(100, self.keys // factor), phases=phases, window_rows=self.window_rows // factor)


def keys_of(load: Load, rows: np.ndarray) -> np.ndarray:
    """The keys of the rows with these numbers."""
    if load.spread == ZIPF:
        return _zipf_keys(load.keys, load.zipf)[rows % _ZIPF_TABLE]
    keys = rows * PRIME % load.keys
    return np.where(rows & 1, 0, keys) if load.spread == HOT else keys


@lru_cache(maxsize=2)
def _zipf_keys(keys: int, exponent: float) -> np.ndarray:
    """Drawn once and repeated, so that drawing costs the engines nothing."""
    weights = np.arange(1, keys + 1, dtype=float) ** -exponent
    places = np.cumsum(weights) / weights.sum()
    ranks = np.searchsorted(places, np.random.default_rng(1).random(_ZIPF_TABLE))
    return np.minimum(ranks, keys - 1) * PRIME % keys


def zipf_share(keys: int, exponent: float) -> float:
    """The share of the rows that the most frequent key gets."""
    return float(1 / (np.arange(1, keys + 1, dtype=float) ** -exponent).sum())


def behind_warm_up(batches: Sequence[Mapping[str, Any]], warm_up: int, warm_up_s: float) -> list[Mapping[str, Any]]:
    """Without the first ``warm_up`` batches and those that began in the first ``warm_up_s`` seconds."""
    return [b for b in batches[warm_up:] if b["began"] >= batches[0]["began"] + warm_up_s]
