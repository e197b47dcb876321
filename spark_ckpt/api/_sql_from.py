"""FROM of ``ckpt.sql``: tables, joins, LATERAL VIEW and JOIN LATERAL, one behind the other. Driver only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from pyspark.sql import functions as F

from spark_ckpt.api._sql_expressions import Expressions
from spark_ckpt.api._sql_lateral import with_lateral, with_view
from spark_ckpt.api._sql_pivots import with_pivot, with_unpivot
from spark_ckpt.api._sql_rows import Called, Frame, Rows, is_stream
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.spark_errors import unsupported
from spark_ckpt.plan.sql_names import alias_of, heads, qualified, whole
from spark_ckpt.plan.sql_query import KEEPS_RIGHT, Join, Lateral, Pivot, Select, Span, Step, Unpivot, View
from spark_ckpt.plan.sql_renamed import with_names
from spark_ckpt.plan.sql_sub_queries import conjuncts, sub_queries

_ALL_OF_LEFT = ("inner", "cross", "left_semi", "left_anti")
"""Joins by USING whose column is that of the left side, and there is no other."""
_OTHER_WAY = {"inner": "inner", "cross": "cross", "right": "left"}


def rows_of_from(select: Select, frames: list[Frame], read: Expressions) -> tuple[Rows, Span | None]:
    """``frames``: of the tables in FROM. What comes besides is what of WHERE is still to be done."""
    words = frozenset(token.name.lower() for token in select.span.tokens)
    named = frozenset(qualified(select.span)) | _of_stars(select)
    rows, behind = Rows.of(frames[0], alias_of(select.source), words), iter(frames[1:])
    parts = conjuncts(select.where) if select.where else []
    later = _later(select.steps, frames[1:])
    for step, others in zip(select.steps, later, strict=True):
        if isinstance(step, View):
            rows = with_view(rows, step, read)
        elif isinstance(step, Lateral):
            rows = with_lateral(rows, step, read)
        elif isinstance(step, Unpivot):
            rows = with_unpivot(rows, step)
        elif isinstance(step, Pivot):
            rows = with_pivot(rows, step, read)
        else:
            other = Rows.of(next(behind), alias_of(step.source), words)
            moved = _moved(parts, others) if _takes(step, rows, other) else []
            parts = [part for part in parts if part not in moved]
            rows = _Joining(rows, other, step, named, read).rows(moved)
    text = " AND ".join(f"({part.text})" if len(parts) > 1 else part.text for part in parts)
    return rows, whole(text) if text else None


def _of_stars(select: Select) -> set[tuple[str, str]]:
    """The tables of ``table.*``."""
    tokens = select.span.tokens
    stars = zip(tokens, tokens[1:], tokens[2:], strict=False)
    return {(table.name.lower(), "*") for table, dot, star in stars if dot.text == "." and star.text == "*"}


# -- conditions in WHERE that tables are joined by -------------------------------------------------------------


def _takes(step: Join, rows: Rows, other: Rows) -> bool:
    """Whether the tables are joined by what WHERE says of them. It is what bounds the state of two streams, too."""
    if step.how not in ("inner", "cross") or step.using or step.natural:
        return False
    return step.on is None or (is_stream(rows.frame) and is_stream(other.frame))


def _moved(parts: list[Span], later: set[str] | None) -> list[Span]:
    if later is None:
        return []
    return [part for part in parts if not sub_queries(part) and not later & heads(part)]


def _later(steps: tuple[Step, ...], frames: list[Frame]) -> list[set[str] | None]:
    """Of each step, what may be names of those behind it, in small letters; None if that is not known."""
    tables = iter(frames)
    own = [_named(step, next(tables) if isinstance(step, Join) else None) for step in steps]
    found: list[set[str] | None] = []
    for at in range(1, len(own) + 1):
        known = [names for names in own[at:] if names is not None]
        found.append(set[str]().union(*known) if len(known) == len(own) - at else None)
    return found


def _named(step: Step, frame: Frame | None) -> set[str] | None:
    if isinstance(step, Pivot) or (isinstance(step, Join) and step.how in KEEPS_RIGHT):
        return None  # what WHERE says is said of what comes out of it
    if isinstance(step, Join):
        return {str(alias_of(step.source)).lower(), *(name.lower() for name in (frame.columns if frame else ()))}
    if isinstance(step, Unpivot):
        return {step.name.lower(), *(value.lower() for value in step.values), (step.alias or "").lower()}
    names = {name.lower() for name in (*step.names, step.alias or "")}
    if isinstance(step, View):
        return {*names, "col", "pos", "key", "value"}
    listed = list(
        takewhile(lambda t: not (t.word("from") and t.depth == step.query.tokens[0].depth), step.query.tokens)
    )
    return None if any(t.text == "*" for t in listed) else {*names, *(t.name.lower() for t in listed)}


# -- joins -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Joining:
    """``named``: (table, column) that the SELECT names, and (table, ``*``)."""

    left: Rows
    right: Rows
    step: Join
    named: frozenset[tuple[str, str]]
    read: Expressions

    def rows(self, moved: list[Span]) -> Rows:
        step = self.step
        using = step.using
        if step.natural:
            using = tuple(c.name for c in self.left.called if not c.hidden and c.name.lower() in self.right.visible)
        if using:
            return self._by_names(using)
        left, right = self.left, self.right.beside(self.left)
        right = replace(right, alias=f"{right.alias}_2")
        spans = [*([step.on] if step.on else []), *moved]
        names = {**left.names, **right.names}
        text = " AND ".join(f"({with_names(span, names).text})" for span in spans)
        on = self.read.column(text) if text else None
        return self._of(left, right, _joined(left.for_text(spans), right.for_text(spans), on, step.how))

    def _of(self, left: Rows, right: Rows, frame: Frame) -> Rows:
        called = left.called if self.step.how in ("left_semi", "left_anti") else left.called + right.called
        return replace(left, frame=frame, called=called)

    def _by_names(self, using: tuple[str, ...]) -> Rows:
        low, how = [name.lower() for name in using], self.step.how
        of_sides = [_those_of(rows, low) for rows in (self.left, self.right)]
        hidden = {"left": [1], "right": [0], "full": [0, 1]}.get(how, [])
        asked = {(c.table, name) for side in hidden for c in of_sides[side] for name in (c.name.lower(), "*")}
        if asked & self.named:
            return self._by_condition(low, hidden)
        left, right = self.left, self.right.beside(self.left, but=using)
        frame = _joined(left.frame, right.frame, list(using), how)
        shown = of_sides[1] if how == "right" else of_sides[0]
        others = [replace(c, hidden=True) for c in of_sides[1]] if how in ("inner", "cross") else []
        return self._shown(left, right, frame, low, shown, others)

    def _by_condition(self, low: list[str], hidden: list[int]) -> Rows:
        """Where the column that the other side has is asked for, too, as ``table.column``."""
        sides = [self.left, self.right]
        for side in hidden:
            columns = [c.column for c in _those_of(sides[side], low)]
            others = sides[side].free(sides[side].called[0].table, columns)
            sides[side] = sides[side].as_columns(dict(zip(columns, others, strict=True)))
        left, right = sides[0], sides[1].beside(sides[0])
        pairs = list(zip(_those_of(left, low), _those_of(right, low), strict=True))
        on = self.read.column(" AND ".join(f"{quoted(a.column)} = {quoted(b.column)}" for a, b in pairs))
        frame = _joined(left.frame, right.frame, on, self.step.how)
        away = [replace(pair[side], hidden=True) for pair in pairs for side in hidden]
        if len(hidden) == 1:
            return self._shown(left, right, frame, low, [pair[1 - hidden[0]] for pair in pairs], away)
        both = {a.name: F.coalesce(quoted(a.column), quoted(b.column)) for a, b in pairs}
        kept = [Called("", name, name) for name in both]
        return self._shown(left, right, frame.withColumns(both), low, kept, away)

    def _shown(
        self, left: Rows, right: Rows, frame: Frame, low: list[str], first: list[Called], hidden: list[Called]
    ) -> Rows:
        rest = [c for c in self._of(left, right, frame).called if c.hidden or c.name.lower() not in low]
        return replace(left, frame=frame, called=(*first, *rest, *hidden))


def _those_of(rows: Rows, low: list[str]) -> list[Called]:
    visible = {c.name.lower(): c for c in rows.called if not c.hidden}
    return [visible[name] for name in low]


def _joined(left: Frame, right: Frame, on: Any, how: str) -> Frame:
    if not is_stream(right) or is_stream(left):
        return left.join(right, on, "cross" if on is None and how == "inner" else how)
    if how not in _OTHER_WAY:
        raise unsupported(f"a table cannot have a {how} join with a stream, in Spark's streams neither")
    return right.join(left, on, "cross" if on is None else _OTHER_WAY[how])
