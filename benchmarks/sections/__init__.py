"""What is measured, by section. A section's runs are side by side in one run of the suite: compare within it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.sections import (
    clustered,
    curves,
    keyed,
    latency,
    operated,
    others,
    queries,
    savepoints,
    small,
    state,
    stateless,
)
from benchmarks.workers.queries import GROUPS

Section = Callable[[bool], dict[str, Any]]
"""Called with ``quick``; returns plain JSON."""

SECTIONS: dict[str, Section] = {
    "keyed": keyed.keyed,
    "peers": others.peers,
    "pandas": keyed.pandas,
    "filtered": keyed.filtered,
    "windowed": keyed.windowed,
    "answers": queries.answers,
    **{name: queries.section(name) for name in GROUPS},
    "sessions": keyed.sessions,
    "processors": keyed.processors,
    "stateless": stateless.stateless,
    "small": small.small,
    "operated": operated.operated,
    "skew": keyed.skew,
    "state": state.state,
    "snapshot": state.snapshot,
    "savepoints": savepoints.savepoints,
    "latency": latency.latency,
    "curves": curves.curves,
    "cluster": clustered.cluster,
}

TOGETHER = {"queries": ("answers", *GROUPS)}
"""Names for several sections."""
