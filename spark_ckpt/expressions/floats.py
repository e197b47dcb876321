"""Texts of numbers as floats of 32 bits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np


def float32(text: str) -> float:
    """The nearest one of 32 bits to a decimal ``text``: that of the nearest double may be another."""
    found = float(text)
    if not np.isfinite(found) or abs(found) < 1e-46:
        return found * 0.0 if abs(found) < 1 else found
    if abs(found) > 3.5e38:
        return float("inf") if found > 0 else float("-inf")
    exact = Fraction(text)
    with np.errstate(over="ignore"):
        near = np.float32(found)
        others = [near, np.nextafter(near, np.float32("-inf")), np.nextafter(near, np.float32("inf"))]
    finite = [x for x in others if np.isfinite(x)]
    best = min(finite, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1))
    return float(near if not np.isfinite(near) else best)
