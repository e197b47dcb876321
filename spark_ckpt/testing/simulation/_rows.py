"""The rows of a run without crashes, computed without the protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spark_ckpt.testing.simulation._state import DRAINED as DRAINED_COUNT
from spark_ckpt.testing.simulation._state import REMOVE_AT
from spark_ckpt.testing.simulation.durable import Visible
from spark_ckpt.testing.simulation.sources import SourceSpec

Place = tuple[int, int]
"""A row of a source: which split, and which row of it."""
Off = Mapping[str, Mapping[Place, int]]
NOTHING: Off = {}
Rows = tuple[Counter[Visible], dict[str, dict[int, int]]]
"""What is visible, and the state."""


def expected(scenario: Any, drains: Sequence[Mapping[str, Sequence[int]]] = (), off: Off = NOTHING) -> Rows:
    """All rows. ``drains``: where the sources stood each time the job was drained. ``off``: see :func:`rows_up_to`."""
    whole = {s.name: _read(scenario, s) for s in scenario.all_sources}
    return rows_up_to(scenario, whole, drains, off)


def rows_up_to(
    scenario: Any,
    whole: Mapping[str, Sequence[int]],
    drains: Sequence[Mapping[str, Sequence[int]]] = (),
    off: Off = NOTHING,
) -> Rows:
    """Of all rows up to where the sources stand in ``whole``; a source that it lacks was not read. ``off``: which of a
    source's rows were read how often more than once, or not at all (-1), in a job that is never drained."""
    wanted: Counter[Visible] = Counter()
    state: dict[str, dict[int, int]] = {uid: {} for uid in scenario.all_operators}
    begin: Mapping[str, Sequence[int]] = {s.name: [0] * len(s.splits) for s in scenario.all_sources}
    for end in (*drains, {**begin, **whole}):
        rows = {s.name: _rows(s, begin[s.name], end[s.name], off.get(s.name, {})) for s in scenario.all_sources}
        for uid, inputs in scenario.all_operators.items():
            keys = [k if name.startswith("source") else (k + v) % 5 for name in inputs for k, v in rows[name]]
            rows[uid] = _counted(state[uid], keys)
            if any(end is d for d in drains):
                rows[uid] += [(k, DRAINED_COUNT + count) for k, count in state[uid].items()]
                state[uid].clear()
        wanted.update((name, k, v) for name in scenario.all_sink_inputs for k, v in rows[name])
        begin = end
    return wanted, state


def _read(scenario: Any, spec: SourceSpec) -> list[int]:
    """How far each split of a source is read in the end: to where it stood when it left the job, if it did."""
    if any(s.name == spec.name for s in scenario.sources):
        return [len(split) for split in spec.splits]
    return scenario.left_at.get(spec.name, [0] * len(spec.splits))


def _rows(
    spec: SourceSpec, begin: Sequence[int], end: Sequence[int], off: Mapping[Place, int]
) -> list[tuple[int, int]]:
    places = Counter((i, n) for i in range(len(spec.splits)) for n in range(begin[i], end[i]))
    places.update(off)
    return [(spec.splits[i][n], i * 1000 + n) for i, n in places.elements()]


def _counted(state: dict[int, int], keys: Iterable[int]) -> list[tuple[int, int]]:
    rows = []
    for k in keys:
        count = state.pop(k, 0) + 1
        rows.append((k, count))
        if count < REMOVE_AT:
            state[k] = count
    return rows
