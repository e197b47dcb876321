"""A job's graph as boxes in columns, for whoever draws it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from spark_ckpt.monitoring.overview import Overview
from spark_ckpt.monitoring.words import age_text, size_text
from spark_ckpt.protocol.records import FAMILY_OF, SINK, Edge


@dataclass(frozen=True)
class Box:
    """``kind``: source, segment, operator or sink; or way, which has no name and keeps place for a line that goes by.
    ``place``: from the top of its ``column``, both from 0."""

    kind: str
    name: str
    figures: str
    column: int
    place: int


@dataclass(frozen=True)
class Layout:
    """``lines`` lead from one key of ``boxes`` to another. ``words``: the same, for who cannot see it."""

    boxes: Mapping[str, Box]
    lines: tuple[tuple[str, str], ...]
    words: str

    @property
    def columns(self) -> int:
        return 1 + max(box.column for box in self.boxes.values())

    @property
    def rows(self) -> int:
        """Of the fullest column."""
        return max(self.in_column(column) for column in range(self.columns))

    def in_column(self, column: int) -> int:
        return sum(box.column == column for box in self.boxes.values())

    def is_narrow(self, column: int) -> bool:
        """Whether it has nothing but segments, and lines that go by."""
        return all(box.kind in ("segment", "way") for box in self.boxes.values() if box.column == column)


def layout_of(overview: Overview) -> Layout:
    """Empty for a job that never started. Without lines where an older release recorded none."""
    start = overview.facts.newest
    if start is None:
        return Layout({}, (), "")
    operators = [uid for uid, told in start.topology.operators.items() if FAMILY_OF not in told]
    kinds = kinds_of(start.topology.sources, operators, start.topology.sinks)
    return layout(kinds, start.edges, _figures(overview))


def layout(kinds: Mapping[str, tuple[str, str]], edges: Iterable[Edge], figures: Mapping[str, str]) -> Layout:
    """``kinds``: of :func:`kinds_of`; ``figures``: what is said below a name, by the same keys."""
    segments, lines = _lines(edges)
    kinds = {**{key: ("segment", name) for key, name in segments.items()}, **kinds}
    lines = tuple(line for line in lines if line[0] in kinds and line[1] in kinds)
    columns = _columns(kinds, lines)
    ways = [_way(line, columns) for line in lines]
    columns |= {key: columns[way[0]] + n for way in ways for n, key in enumerate(way)}
    kinds = {**dict.fromkeys(columns, ("way", "")), **kinds}
    said, lines = _words(kinds, lines), tuple(pair for way in ways for pair in pairwise(way))
    order = _order(columns, lines)
    boxes = {
        key: Box(kinds[key][0], kinds[key][1], figures.get(key, ""), columns[key], place)
        for keys in order
        for place, key in enumerate(keys)
    }
    return Layout(boxes, lines, said)


def _way(line: tuple[str, str], columns: Mapping[str, int]) -> list[str]:
    """The line with a place of its own in each column that it goes by."""
    start, end = line
    between = range(columns[start] + 1, columns[end])
    return [start, *(f"way:{start}:{end}:{column}" for column in between), end]


def kinds_of(sources: Iterable[str], operators: Iterable[str], sinks: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Key, as edges have it -> kind and name."""
    found = {uid: ("source", uid) for uid in sources}
    found |= {uid: ("operator", uid) for uid in operators}
    return found | {SINK + sink: ("sink", sink) for sink in sinks}


def _lines(edges: Iterable[Edge]) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """Segments by key, and lines. What several edges have in common behind one start is one segment."""
    segments: dict[str, str] = {}
    lines: dict[tuple[str, str], None] = {}
    for edge in edges:
        way = [edge.start, edge.end]
        if edge.through:
            segment = f"segment:{edge.start}:{' '.join(edge.through)}"
            segments[segment] = ", ".join(edge.through)
            way.insert(1, segment)
        lines |= dict.fromkeys(pairwise(way))
    return segments, tuple(lines)


def _columns(kinds: Mapping[str, tuple[str, str]], lines: Iterable[tuple[str, str]]) -> dict[str, int]:
    """As far from the sources as the longest way; without lines, by kind."""
    lines = tuple(lines)
    if not lines:
        present = [kind for kind in ("source", "operator", "sink") if any(k == kind for k, _ in kinds.values())]
        return {key: present.index(kind) for key, (kind, _) in kinds.items()}
    columns = dict.fromkeys(kinds, 0)
    for _ in kinds:  # a way has no more steps than there are boxes
        for start, end in lines:
            columns[end] = max(columns[end], columns[start] + 1)
        if all(columns[end] > columns[start] for start, end in lines):
            break
    return columns


def _order(columns: Mapping[str, int], lines: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Each column from the top: what gets its rows from further up stands further up."""
    found: list[list[str]] = []
    place: dict[str, float] = {}
    before: dict[str, list[str]] = {}
    for start, end in lines:
        before.setdefault(end, []).append(start)
    for column in range(1 + max(columns.values(), default=-1)):
        keys = [key for key, at in columns.items() if at == column]
        at = {key: [place[b] for b in before.get(key, ()) if b in place] for key in keys}
        keys.sort(key=lambda key: sum(at[key]) / len(at[key]) if at[key] else 0.0)
        place.update({key: (n + 0.5) / len(keys) for n, key in enumerate(keys)})
        found.append(keys)
    return found


def _figures(overview: Overview) -> dict[str, str]:
    found = {s.uid: f"{s.rows_per_s:,.0f} rows/s" for s in overview.sources if s.rows_per_s is not None}
    found |= {o.uid: f"{o.keys:,} keys, {size_text(o.size_bytes)}" for o in overview.operators}
    behind = {s.id: s.behind_ms for s in overview.sinks if s.behind_ms is not None}
    return found | {SINK + sink: f"{age_text(ms)} behind" for sink, ms in behind.items()}


def _words(kinds: Mapping[str, tuple[str, str]], lines: Iterable[tuple[str, str]]) -> str:
    said = [f"{kinds[start][1]} to {kinds[end][1]}" for start, end in lines]
    names = [f"{kind} {name}" for kind, name in kinds.values() if kind != "way"]
    return f"Rows flow from {'; '.join(said)}" if said else f"{'; '.join(names)}; how rows flow was not recorded"
