"""What a batch costs, from its settings: additive, fitted by least squares, checked on points it has not seen. Pure.

A batch of ``rows`` rows that touches ``touched`` keys takes

    t = floor + a * rows / min(lanes, cores) + b * rows + c * touched + s * touched * log10(stored in millions)
        + d * groups + e * lanes + k * share
    k = f + g * changed
    share = min(1, t / interval)

where ``changed`` is the number of keys that one checkpoint has to write: ``touched`` of one batch after the other, at
most all. A prediction uses settings only: ``share`` and ``t`` are found by iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

CORES = 2
TERMS = {
    "floor": "a batch, whatever is in it",
    "rows by lane": "a million rows, divided by the lanes that have a core",
    "rows": "a million rows, however many lanes",
    "touched": "a million keys touched",
    "stored": "a million keys touched, for every tenfold of 1 M keys stored",
    "groups": "a hundred key groups",
    "lanes": "a lane",
    "checkpoint": "a checkpoint",
    "changed": "a checkpoint of a million changed keys, on top",
}
_MAX_STEPS = 100


@dataclass(frozen=True)
class Model:
    """Seconds by term, in the order of ``TERMS``."""

    seconds: tuple[float, ...]

    def predict(self, point: Mapping[str, Any]) -> float:
        """Seconds of the mean batch, from the point's settings."""
        t = 1.0
        for _ in range(_MAX_STEPS):
            new = float(np.dot(features(point, t), self.seconds))
            if abs(new - t) < 1e-4:
                break
            t = (t + new) / 2
        return t


def features(point: Mapping[str, Any], batch_s: float) -> np.ndarray:
    """What each term is multiplied with, if batches take ``batch_s``."""
    share = min(1.0, batch_s / point["interval_s"])
    batches = 1 / share
    changed = min(point["keys"], point["touched"] * batches)
    rows = point["rows"] / 1e6
    return np.array(
        [
            1.0,
            rows / min(point["lanes"], CORES),
            rows,
            point["touched"] / 1e6,
            point["touched"] / 1e6 * float(np.log10(max(1.0, point["keys"] / 1e6))),
            point["groups"] / 100,
            point["lanes"],
            share,
            share * changed / 1e6,
        ]
    )


def fit(points: Sequence[Mapping[str, Any]]) -> Model:
    """Least squares of the relative error; no term is negative. ``points`` have ``mean_s`` beside their settings."""
    measured = np.array([p["mean_s"] for p in points])
    rows = np.array([features(p, p["mean_s"]) for p in points]) / measured[:, None]
    active = list(range(rows.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(rows[:, active], np.ones(len(points)), rcond=None)
        worst = int(np.argmin(found))
        if found[worst] >= 0:
            break
        del active[worst]
    seconds = np.zeros(rows.shape[1])
    seconds[active] = found
    return Model(tuple(seconds.tolist()))


@dataclass(frozen=True)
class Check:
    """One point, measured and predicted."""

    point: Mapping[str, Any]
    predicted_s: float

    @property
    def measured_s(self) -> float:
        return float(self.point["mean_s"])

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return abs(self.predicted_s - self.measured_s) / self.measured_s


def points_of(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The measured points of all sections: the curves, and large states, of which only the largest is fitted.

    Raises ``KeyError`` if the curves were not measured.
    """
    same = {"curve": "stored", "rows": 100_000, "touched": 100_000, "groups": 32, "lanes": CORES, "interval_s": 5.0}
    found = data.get("state", {}).values()
    stored = sorted(((s["stored"], s["mean_s"]) for s in found), reverse=True)
    large = [{**same, "keys": keys, "mean_s": t, "held_out": i > 0} for i, (keys, t) in enumerate(stored)]
    return [*data["curves"]["points"], *large]


def fit_and_check(points: Sequence[Mapping[str, Any]]) -> tuple[Model, list[Check]]:
    """Fit the points that are not held out; check all."""
    model = fit([p for p in points if not p["held_out"]])
    return model, [Check(p, model.predict(p)) for p in points]


def worst_held_out(checks: Sequence[Check]) -> float:
    return max(c.error for c in checks if c.point["held_out"])
