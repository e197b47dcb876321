"""``Aggregate``: groups and aggregate functions, as the client has them. Driver; Spark Connect.

What stands inside an aggregate function becomes a column in front of the operator, the function an accumulator of ours,
and what stands around it a projection behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import plan as P

from spark_ckpt.execution.columns import quoted
from spark_ckpt.operators.aggregates import Split, split_aggregates
from spark_ckpt.operators.groups import Grouped, InSessions, Windowed, kept, key_names
from spark_ckpt.operators.handlers import refuse_pivoted_updates, sessions_of_sets_refused
from spark_ckpt.operators.key_columns import check_key, texts_in
from spark_ckpt.operators.walks import Walked, python_step, renamed
from spark_ckpt.operators.windows import the_session
from spark_ckpt.plan.relations._aggregate_trees import ConnectExpressions
from spark_ckpt.plan.relations._columns import bare, column, place_of
from spark_ckpt.plan.relations._grouping_sets import NUMBER, NumberedSet, sets_of
from spark_ckpt.plan.relations._pivots import of_values, pivoted_twice
from spark_ckpt.plan.relations._row_by_row import step
from spark_ckpt.plan.relations._stars import without_stars
from spark_ckpt.plan.relations._translation import Rows, Translation
from spark_ckpt.plan.relations._tree import parts_of
from spark_ckpt.plan.relations._window_calls import is_window
from spark_ckpt.plan.relations._windows import (
    CalledSession,
    CalledWindow,
    hidden_window,
    in_sessions,
    session_of,
    starts_alone,
    window_of,
    windowed,
)
from spark_ckpt.runtime.grouping_sets import ExpandSets

Relation = Any

HIDDEN = "__ckpt_window"
"""The column of a window that is computed for other expressions."""


@dataclass(frozen=True)
class _Grouped(Grouped[Rows]):
    """``sets``: of grouping sets, of which the last key is the number."""

    of: Translation
    before: Rows
    window: CalledWindow | None
    session: CalledSession | None
    sets: list[NumberedSet]

    def rows(self) -> Rows:
        return self.before

    def windowed(self, name: str, sliced: bool) -> Windowed[Rows]:
        """Spark analyses what is read of them over the client's relation with a column for the start."""
        assert self.window is not None
        newest = self.window.call is not None and sliced
        made = windowed(self.of, self.before, self.window, name, newest)
        rows, start = starts_alone(made, len(self.before.shown)), F.lit(None).cast("timestamp")
        asked = P.WithColumns(self.before.plan, [made.key], [start])
        return Windowed(
            replace(rows, plan=asked, shown=(*self.before.shown, made.key)), F.col(quoted(made.key)), newest
        )

    def in_sessions(self, name: str) -> InSessions[Rows]:
        assert self.session is not None
        return in_sessions(self.of, self.before, self.session, name)

    def reads(self) -> Mapping[str, Column]:
        return {name: self.split.computed.get(name, F.col(quoted(name))) for name in self.split.columns()}

    def read(self, of: Walked[Rows], rows: Rows, keys: Mapping[str, Column]) -> Rows:
        made = super().read(of, rows, keys)
        if not self.sets:
            return made
        return of.of_operator(python_step(made, ExpandSets(list(keys)[:-1], self.sets, NUMBER), made.schema))


def aggregate(of: Translation, node: Relation) -> Rows:
    schema = of.schema(node)
    twice = pivoted_twice(of, node) if node._group_type == "pivot" else None
    if twice is not None:
        made = of.rows(twice)
        refuse_pivoted_updates(made.lineage)
        return of.put_out(node, replace(made, schema=renamed(made.schema, schema.names)))
    rows = of.rows(node._child)
    grouped = _grouped(of, without_stars(of, node, rows), rows)
    behind = kept(of, grouped)
    made = step(of, _shown(of, grouped, behind), behind)
    return of.put_out(node, replace(made, schema=renamed(made.schema, schema.names)))


def _grouped(of: Translation, node: Relation, rows: Rows) -> _Grouped:
    keys, results, sets = list(node._grouping_cols), list(node._aggregate_cols), list[NumberedSet]()
    of_sets = node._group_type not in ("groupby", "pivot")
    if of_sets or not _alone(keys, results):
        rows, keys, results = _over_hidden(of, rows, keys, results)
    if of_sets:
        rows, keys, results, sets = _numbered(of, node, rows, keys, results)
    session = the_session([session_of(of, rows, key._expr, at) for at, key in enumerate(keys)])
    windows = [None if session else window_of(of, rows, key._expr) for key in keys]
    at = next((i for i, w in enumerate(windows) if w is not None), None)
    of_time = at if session is None else session.place
    window, place = None if at is None else windows[at], of_time or 0
    shown = of.schema(P.Project(rows.plan, keys)).fields if keys else []
    names = _key_names(of, rows, keys, shown, of_time)
    for name, f in zip(names, shown, strict=False):
        check_key(T.StructField(name, f.dataType))
    values = of_values(of, node) if node._group_type == "pivot" else None
    frame = of.frame(rows.plan)
    split = split_aggregates(frame, ConnectExpressions(frame, keys, results), names, values)
    split = _of_sets(split, names) if sets else split
    columns, kinds = [column(bare(key._expr)) for key in keys], [f.dataType for f in shown]
    texts = _texts(of, rows, keys, window, session)
    return _Grouped(node, columns, kinds, names, texts, split, window, session, place, rows.shown, of, rows, sets)


def _texts(
    of: Translation, rows: Rows, keys: list[Any], window: CalledWindow | None, session: CalledSession | None
) -> list[str]:
    """What each key is computed by, a window or session that is called here by its time. Nothing is told of those that
    are a column."""
    found, computed = [""] * len(keys), dict[int, Column]()
    for at, key in enumerate(keys):
        place = place_of(of, rows, key._expr)
        if session is not None and session.place == at:
            if session.call is not None:
                computed[at] = session.call.time
        elif place is not None and not (window is not None and window.place == place):
            found[at] = rows.shown[place]
        elif place is None:
            is_call = is_window(bare(key._expr))
            computed[at] = window.time if is_call and window is not None and window.time is not None else key
    for at, text in zip(computed, texts_in(of.frame(rows.plan), list(computed.values())), strict=False):
        found[at] = text
    return found


def _key_names(
    of: Translation, rows: Rows, keys: list[Any], shown: Sequence[T.StructField], of_time: int | None
) -> list[str]:
    """What each key is called in the state. ``of_time``: the number of the one that is a window or a session."""
    taken = []
    for at, (key, f) in enumerate(zip(keys, shown, strict=True)):
        is_column = at != of_time and place_of(of, rows, key._expr) is not None
        taken.append([n for n in rows.shown if not is_column and (at != of_time or n != f.name)])
    return key_names([f.name for f in shown], taken)


def _alone(keys: list[Any], results: list[Any]) -> bool:
    """Whether windows are keys as they are, and nothing else computes one."""
    others = [bare(key._expr) for key in keys if not is_window(bare(key._expr))]
    return not any(is_window(e) for e in [*(p for o in others for p in parts_of(o)), *_parts_of(results)])


def _over_hidden(of: Translation, rows: Rows, keys: list[Any], results: list[Any]) -> tuple[Rows, list[Any], list[Any]]:
    """With a window that they compute in a column, called as the key that it is, and keys by their names."""
    names = of.schema(P.Project(rows.plan, keys)).names if keys else []
    own = (n for key, n in zip(keys, names, strict=True) if is_window(bare(key._expr)) and n not in rows.shown)
    windows, made = hidden_window(of, rows, [*keys, *results], next(own, HIDDEN))
    if windows is rows:
        return rows, keys, results
    new = [
        key if key is old else column(bare(key._expr)).alias(n) for old, key, n in zip(keys, made, names, strict=False)
    ]
    return windows, new, made[len(keys) :]


def _parts_of(columns: list[Any]) -> Iterator[Any]:
    for c in columns:
        yield from parts_of(c._expr)


def _numbered(
    of: Translation, node: Relation, rows: Rows, keys: list[Any], results: list[Any]
) -> tuple[Rows, list[Any], list[Any], list[NumberedSet]]:
    """With the number of the set as the last key. Results have Spark's names."""
    if any(session_of(of, rows, key._expr, at) for at, key in enumerate(keys)):
        raise sessions_of_sets_refused()
    names = of.schema(node).names
    found = sets_of(of, node, rows, keys, names[: len(keys)])
    named = [found.rewritten(c) for c in results]
    named = [column(bare(c._expr)).alias(name) for c, name in zip(named, names[len(keys) :], strict=True)]
    rows = step(of, P.WithColumns(rows.plan, [NUMBER], [F.lit(0).cast("long")]), rows)
    return rows, [*keys, F.col(NUMBER)], named, found.sets


def _of_sets(split: Split, names: list[str]) -> Split:
    """Aggregates read what keys were: those are columns of their own."""
    own = {c: f"__ckpt_kept_{c}" for c in split.columns() if c in names}
    specs = {n: replace(spec, column=own.get(spec.column or "", spec.column)) for n, spec in split.specs.items()}
    return replace(split, specs=specs, computed={**split.computed, **{n: F.col(quoted(c)) for c, n in own.items()}})


def _shown(of: Translation, grouped: _Grouped, kept: Rows) -> Relation:
    """The projection behind the operator: keys and results, under the names that Spark gives them."""
    split = grouped.split
    keys = [F.col(quoted(n)).alias(shown) for n, shown in zip(grouped.names, split.keys) if n != NUMBER]
    if split.results is None:
        results = [F.col(quoted(n)).alias(shown) for n, shown in zip(split.plain, split.names, strict=True)]
    else:
        results = split.results(of.frame(kept.plan))
    return P.Project(kept.plan, [*keys, *results])
