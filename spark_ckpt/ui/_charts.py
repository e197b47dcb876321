"""Charts as SVG, made here: none needs a script or a library in the browser. Each has a text for who cannot see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from spark_ckpt.monitoring.graph import Box, Layout, layout_of
from spark_ckpt.monitoring.overview import Overview
from spark_ckpt.monitoring.timeline import WORDS, Lane, Timeline
from spark_ckpt.monitoring.words import age_text

_LANE, _GAP, _HEAD = 22, 6, 26
_TICKS = 5
_BOX, _NARROW, _BETWEEN, _ROW, _EDGE = 176, 112, 26, 58, 4
_LETTER = 8
"""No letter of a name is wider, on the average."""

_SPARK = Markup(
    '<svg class="spark" role="img" viewBox="0 0 {w} {h}" width="{w}" height="{h}" aria-label="{label}">'
    '<title>{label}</title><polyline points="{points}"/></svg>'
)
_BARS = Markup(
    '<svg class="bars" role="img" viewBox="0 0 {n} {h}" preserveAspectRatio="none" aria-label="{label}">{parts}</svg>'
)
_ONE = Markup('<rect class="{kind}" x="{x}" y="{y:.1f}" width="0.8" height="{h:.1f}"><title>{title}</title></rect>')
_GANTT = Markup('<svg class="gantt" role="img" width="100%" height="{h}" aria-label="{label}">{parts}</svg>')
_TICK = Markup(
    '<line class="tick" x1="{x:.1f}%" x2="{x:.1f}%" y1="{head}" y2="{h}"/>'
    '<text class="tick" x="{x:.1f}%" y="14" text-anchor="{anchor}">{text}</text>'
)
_NAME = Markup('<text class="{kind}" x="4" y="{y}">{who}</text>')
_PHASE = Markup(
    '<rect class="{phase}" x="{x:.2f}%" y="{y}" width="{w:.2f}%" height="{h}"><title>{title}</title></rect>'
)
_GRAPH = Markup(
    '<svg class="graph" role="img" viewBox="0 0 {w} {h}" width="{w}" height="{h}" aria-label="{label}">{parts}</svg>'
)
_FLOW = Markup('<path class="flow" d="M{x} {y0:.1f} H{x0} C{m:.0f} {y0:.1f} {m:.0f} {y1:.1f} {x1} {y1:.1f}"/>')
_TIP = Markup('<path class="tip" d="M{x} {y:.1f} l-7 -4 v8 z"/>')
_NODE = Markup(
    '<g class="{kind}"><title>{kind} {name} {figures}</title><rect x="{x:.0f}" y="{top:.1f}" width="{w}" height="46" '
    'rx="6"/><text x="{mid:.0f}" y="{base:.1f}" text-anchor="middle">{short}</text>'
    '<text class="figures" x="{mid:.0f}" y="{below:.1f}" text-anchor="middle">{figures}</text></g>'
)


def sparkline(values: Sequence[int], label: str, width: int = 120, height: int = 24) -> Markup:
    """A line through ``values``, oldest first; empty for fewer than two."""
    if len(values) < 2:
        return Markup("")
    top, step = max(*values, 1), width / (len(values) - 1)
    points = " ".join(f"{i * step:.1f},{height - 2 - v / top * (height - 4):.1f}" for i, v in enumerate(values))
    return _SPARK.format(w=width, h=height, label=label, points=points)


def bars(values: Sequence[tuple[str, int, bool]], label: str, height: int = 96) -> Markup:
    """A bar for each ``(title, value, good)``, oldest first, in one row as wide as its place."""
    if not values:
        return Markup("")
    top = max(1, *(value for _, value, _ in values))
    parts = []
    for x, (title, value, good) in enumerate(values):
        tall = max(value / top * height, 2)
        parts.append(_ONE.format(kind="ok" if good else "bad", x=x, y=height - tall, h=tall, title=title))
    return _BARS.format(n=len(values), h=height, label=label, parts=Markup("").join(parts))


def gantt(timeline: Timeline) -> Markup:
    """Lanes below each other, time from left to right in per cent, so that it fits any width."""
    height = _HEAD + len(timeline.lanes) * (_LANE + _GAP)
    parts = [*_ticks(timeline.duration_ms, height)]
    for number, lane in enumerate(timeline.lanes):
        parts += _lane(lane, _HEAD + number * (_LANE + _GAP), timeline.duration_ms)
    label = f"Phases of checkpoint {timeline.checkpoint}; the table below has the figures"
    return _GANTT.format(h=height, label=label, parts=Markup("").join(parts))


def _ticks(duration_ms: int, height: int) -> Iterator[Markup]:
    for i in range(_TICKS + 1):
        anchor = "start" if i == 0 else "end" if i == _TICKS else "middle"
        text = age_text(duration_ms * i // _TICKS)
        yield _TICK.format(x=100 * i / _TICKS, head=_HEAD - 6, h=height, text=text, anchor=anchor)


def _lane(lane: Lane, y: int, duration_ms: int) -> Iterator[Markup]:
    for bar in lane.bars:
        took_ms = bar.to_ms - bar.from_ms
        yield _PHASE.format(
            phase=bar.phase.removesuffix("_ms"),
            x=100 * bar.from_ms / duration_ms,
            y=y,
            w=max(100 * took_ms / duration_ms, 0.2),
            h=_LANE,
            title=f"{WORDS[bar.phase]}: {age_text(took_ms)}",
        )
    yield _NAME.format(kind="lane slowest" if lane.slowest else "lane", y=y + _LANE - 7, who=lane.who)


def graph(overview: Overview) -> Markup:
    """Sources, segments of single rows, keyed operators and sinks as boxes from left to right, and how rows flow."""
    return drawn(layout_of(overview))


def drawn(plan: Layout) -> Markup:
    """See :func:`graph`; empty for no boxes."""
    if not plan.boxes:
        return Markup("")
    parts = [_line(plan, *line) for line in plan.lines]
    parts += [_node(plan, box) for box in plan.boxes.values() if box.kind != "way"]
    width = _left(plan, plan.columns) - _BETWEEN + _EDGE
    return _GRAPH.format(w=width, h=_ROW * plan.rows, label=plan.words, parts=Markup("").join(parts))


def _width(plan: Layout, column: int) -> int:
    return _NARROW if plan.is_narrow(column) else _BOX


def _left(plan: Layout, column: int) -> int:
    return _EDGE + sum(_width(plan, before) + _BETWEEN for before in range(column))


def _middle(plan: Layout, box: Box) -> float:
    return _ROW * plan.rows * (box.place + 0.5) / plan.in_column(box.column)


def _line(plan: Layout, start: str, end: str) -> Markup:
    a, b = plan.boxes[start], plan.boxes[end]
    x0, y0, x1, y1 = _left(plan, a.column), _middle(plan, a), _left(plan, b.column), _middle(plan, b)
    leaves = x0 + _width(plan, a.column)
    begins = x0 if a.kind == "way" else leaves  # through its place it goes straight
    tip = _TIP.format(x=x1, y=y1) if b.kind != "way" else Markup("")
    ends = x1 - 6 if tip else x1
    return _FLOW.format(x=begins, x0=leaves, y0=y0, x1=ends, y1=y1, m=(leaves + ends) / 2) + tip


def _node(plan: Layout, box: Box) -> Markup:
    x, y, width = _left(plan, box.column), _middle(plan, box), _width(plan, box.column)
    fits = width // (_LETTER - 1 if box.kind == "segment" else _LETTER)
    short = box.name if len(box.name) <= fits else f"{box.name[: fits - 1]}…"
    base = y + 4 if not box.figures else y - 4
    return _NODE.format(
        kind=box.kind, name=box.name, figures=box.figures, x=x, top=y - 23, w=width, mid=x + width / 2, base=base,
        below=y + 13, short=short,
    )  # fmt: skip
