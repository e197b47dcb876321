"""``Aggregate``: groups and aggregate functions, as the client has them. Driver; Spark Connect.

What stands inside an aggregate function becomes a column in front of the operator, the function an accumulator of ours,
and what stands around it a projection behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import plan as P

from spark_ckpt import agg
from spark_ckpt.agg import AggSpec
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._aggregate_functions import Grouping, WindowKey, in_slices, rules_of
from spark_ckpt.plan._aggregates import ALL_ROWS, Split, split_aggregates
from spark_ckpt.plan._carried_keys import carried, given_back, is_carried
from spark_ckpt.plan._keyed_operator import keyed_rows
from spark_ckpt.plan._windows import in_place
from spark_ckpt.plan.columns import free, quoted
from spark_ckpt.plan.key_columns import Keys, arrow_columns, check_key, stored_name
from spark_ckpt.plan.relations._aggregate_trees import ConnectExpressions
from spark_ckpt.plan.relations._columns import bare, column, place_of
from spark_ckpt.plan.relations._grouping_sets import NUMBER, NumberedSet, sets_of
from spark_ckpt.plan.relations._pivots import check_values_end, of_values, pivoted_twice
from spark_ckpt.plan.relations._row_by_row import python_step, step
from spark_ckpt.plan.relations._sessions import Session, in_sessions, session_among
from spark_ckpt.plan.relations._texts import without_stars
from spark_ckpt.plan.relations._translation import Rows, Translation, renamed, rows_of
from spark_ckpt.plan.relations._tree import empty, parts_of
from spark_ckpt.plan.relations._windows import (
    TimeWindow,
    Windowed,
    hidden_window,
    is_window,
    window_of,
    windowed,
    without_shown,
)
from spark_ckpt.plan.relations.uids import given_uid
from spark_ckpt.runtime.grouping_sets import ExpandSets
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.runtime.windows import ShowWindows
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.aggregates.sessions import SessionAggregate
from spark_ckpt.state.aggregates.windowed import WindowedAggregate

Relation = Any

HIDDEN = "__ckpt_window"
"""The column of a window that is computed for other expressions."""


@dataclass(frozen=True)
class _Grouped:
    """``keys`` as given; ``names`` are theirs behind the operator, of ``rows`` in front. ``window``: the one among the
    keys, and its place there. ``sets``: of grouping sets, of which the last key is the number."""

    node: Relation
    rows: Rows
    keys: list[Any]
    names: list[str]
    kinds: list[T.DataType]
    split: Split
    window: TimeWindow | None
    place: int
    session: Session | None
    sets: list[NumberedSet]

    @property
    def specs(self) -> dict[str, AggSpec]:
        """Of keys alone, that the group is there is what is kept."""
        return self.split.specs or {free("rows_of_group", [*self.rows.shown, *self.names]): agg.count()}


def aggregate(of: Translation, node: Relation) -> Rows:
    schema = of.schema(node)
    twice = pivoted_twice(of, node) if node._group_type == "pivot" else None
    if twice is not None:
        made = of.rows(twice)
        check_values_end(made.lineage)
        return _named(made, node, schema)
    rows = of.rows(node._child)
    grouped = _grouped(of, without_stars(of, node, rows), rows)
    kept = _given_back(of, grouped, _kept(of, grouped))
    return _named(step(of, _shown(of, grouped, kept), kept), node, schema)


def _named(made: Rows, node: Relation, schema: T.StructType) -> Rows:
    return replace(made, plan=node, schema=renamed(made.schema, schema.names), shown=tuple(schema.names))


def _grouped(of: Translation, node: Relation, rows: Rows) -> _Grouped:
    keys, results, sets = list(node._grouping_cols), list(node._aggregate_cols), list[NumberedSet]()
    of_sets = node._group_type not in ("groupby", "pivot")
    if of_sets or not _alone(keys, results):
        rows, keys, results = _over_hidden(of, rows, keys, results)
    if of_sets:
        rows, keys, results, sets = _numbered(of, node, rows, keys, results)
    session = session_among(of, rows, keys)
    found = [None if session else window_of(of, rows, key._expr) for key in keys]
    place, window = next(((i, w) for i, w in enumerate(found) if w is not None), (0, None))
    own = place if window is not None else session.place if session is not None else None
    shown = of.schema(P.Project(rows.plan, keys)).fields if keys else []
    names = _key_names(of, keys, rows, shown, own)
    for name, f in zip(names, shown, strict=False):
        check_key(T.StructField(name, f.dataType))
    values = of_values(of, node) if node._group_type == "pivot" else None
    frame = of.frame(rows.plan)
    split = split_aggregates(frame, ConnectExpressions(frame, keys, results), names, values)
    kinds = [f.dataType for f in shown]
    grouped = _Grouped(node, rows, keys, names, kinds, split, window, place, session, sets)
    return replace(grouped, split=_of_sets(grouped)) if sets else grouped


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
    if session_among(of, rows, keys) is not None:
        raise InvalidInputError(
            f"{node._group_type} of session windows is not there on a stream, on Spark's neither: a session that a set "
            "is without would never end. Write one groupBy(F.session_window(...), ...) for each set of keys"
        )
    names = of.schema(node).names
    found = sets_of(of, node, rows, keys, names[: len(keys)])
    named = [found.rewritten(c) for c in results]
    named = [column(bare(c._expr)).alias(name) for c, name in zip(named, names[len(keys) :], strict=True)]
    rows = step(of, P.WithColumns(rows.plan, [NUMBER], [F.lit(0).cast("long")]), rows)
    return rows, [*keys, F.col(NUMBER)], named, found.sets


def _of_sets(grouped: _Grouped) -> Split:
    """Aggregates read what keys were: those are columns of their own."""
    split, names = grouped.split, set(grouped.names)
    kept = {c: f"__ckpt_kept_{c}" for c in split.columns() if c in names}
    specs = {n: replace(spec, column=kept.get(spec.column or "", spec.column)) for n, spec in split.specs.items()}
    return replace(split, specs=specs, computed={**split.computed, **{n: F.col(quoted(c)) for c, n in kept.items()}})


def _key_names(
    of: Translation, keys: list[Any], rows: Rows, shown: Sequence[T.StructField], window_at: int | None
) -> list[str]:
    """What each key is called in the state: the column's name, or what Spark calls the expression."""
    names: list[str] = []
    for at, (key, f) in enumerate(zip(keys, shown, strict=True)):
        is_column = place_of(of, rows, key._expr) is not None and at != window_at
        taken = names if is_column else [*names, *(n for n in rows.shown if at != window_at or n != f.name)]
        own = stored_name(f.name)
        names.append(own if own.lower() not in {t.lower() for t in taken} else free(f"{own}_key", taken))
    return names or [ALL_ROWS]


def _kept(of: Translation, grouped: _Grouped) -> Rows:
    """The operator's keys and aggregates."""
    if grouped.session is not None:
        return _kept_sessions(of, grouped, grouped.session)
    window, rows, names = _windowed(of, grouped), grouped.rows, list(grouped.names)
    keys = _key_columns(grouped) or [F.lit(0)]
    if window is not None:
        names[grouped.place], keys[grouped.place] = f"{names[grouped.place]}_start", F.col(quoted(window.key))
        rows = replace(window.rows, plan=_asked(grouped, window), shown=(*rows.shown, window.key))
    read = step(of, _read(grouped, rows, dict(zip(names, keys, strict=True))), rows)
    if grouped.sets:
        read = python_step(read, ExpandSets(names[:-1], grouped.sets, NUMBER), read.schema)
    by = _keys(names, read)
    function = _function(of, grouped, by, read, window)
    mode = None if isinstance(function, WindowedAggregate) else "update"
    made = _operator(of, grouped, read, function, by, grouped.split.columns(), mode)
    return made if window is None else _with_shown(made, names[grouped.place], grouped, made.schema)


def _operator(
    of: Translation,
    grouped: _Grouped,
    read: Rows,
    function: AggregateFunction,
    by: Keys,
    wanted: Sequence[str],
    mode: str | None,
) -> Rows:
    inputs = [f.name for f in read.schema.fields if f.name in wanted]
    made = keyed_rows(read.upstream(), given_uid(of, grouped.node), function, inputs, by, mode)
    return rows_of(made.recipe, made.lineage, empty(made.schema), made.schema)


def _kept_sessions(of: Translation, grouped: _Grouped, session: Session) -> Rows:
    """Sessions are no key: the operator merges them. In update mode there are none, and without a watermark none
    ends."""
    place, name = session.place, grouped.names[session.place]
    found = in_sessions(of, grouped.rows, session, name)
    names = [n for i, n in enumerate(grouped.names) if i != place] or [ALL_ROWS]
    others = [k for i, k in enumerate(_key_columns(grouped)) if i != place] or [F.lit(0)]
    times = {found.start: F.col(quoted(found.start)), found.end: F.col(quoted(found.end))}
    read = step(of, _read(grouped, found.rows, {**dict(zip(names, others, strict=True)), **times}), found.rows)
    by, wanted = _keys(names, read), [*grouped.split.columns(), found.start, found.end]
    function = SessionAggregate(
        arrow_schema(by.schema), _inputs(grouped, read), grouped.specs,
        start=found.start, end=found.end, rules=rules_of(of.spark),
    )  # fmt: skip
    function.shown = grouped.split.shown
    ends = session.event_time and bool(read.lineage.watermarks)
    kept = _operator(of, grouped, read, function, by, wanted, "append" if ends else "complete")
    show, schema = session.shown(found.start, found.end, name, kept.schema)
    return replace(python_step(kept, show, schema), plan=empty(schema))


def _key_columns(grouped: _Grouped) -> list[Any]:
    """As another type where no state table has their own."""
    columns = [column(bare(key._expr)) for key in grouped.keys]
    return [carried(c, kind) for c, kind in zip(columns, grouped.kinds, strict=True)]


def _given_back(of: Translation, grouped: _Grouped, kept: Rows) -> Rows:
    """``kept``, with its keys as they were."""
    if not any(map(is_carried, grouped.kinds)):
        return kept
    kinds = dict(zip(grouped.names, grouped.kinds, strict=False))
    columns = [given_back(F.col(quoted(n)), kinds.get(n, T.NullType())).alias(n) for n in kept.schema.names]
    made = step(of, P.Project(kept.plan, columns), kept)
    return replace(made, plan=empty(made.schema))


def _asked(grouped: _Grouped, window: Windowed) -> Relation:
    """The client's relation of rows with windows, for Spark to analyse what is read of them."""
    field = window.rows.schema.fields[-1]
    return P.WithColumns(grouped.rows.plan, [field.name], [F.lit(None).cast(field.dataType)])


def _windowed(of: Translation, grouped: _Grouped) -> Windowed | None:
    """The rows with their windows' starts."""
    window = grouped.window
    if window is None:
        return None
    sliced = window.call is not None and in_slices(window.size, window.event_time, grouped.specs.values())
    made = windowed(of, grouped.rows, window, grouped.names[grouped.place], sliced)
    return replace(made, rows=without_shown(made, len(grouped.rows.shown)))


def _function(of: Translation, grouped: _Grouped, keys: Keys, read: Rows, made: Windowed | None) -> AggregateFunction:
    key, window = None, grouped.window
    if window is not None and made is not None:
        key = WindowKey(f"{grouped.names[grouped.place]}_start", window.size, window.event_time, made.newest)
    grouping = Grouping(keys, key, bool(read.lineage.watermarks), not grouped.keys)
    return grouping.function(_inputs(grouped, read), grouped.specs, rules_of(of.spark), grouped.split.shown)


def _inputs(grouped: _Grouped, read: Rows) -> pa.Schema:
    return arrow_columns(read.schema, list(grouped.split.columns()))


def _read(grouped: _Grouped, rows: Rows, keys: dict[str, Any]) -> Relation:
    """The projection in front of the operator: what aggregates read, and the keys, under the names of the state."""
    split = grouped.split
    read = {name: split.computed.get(name, F.col(quoted(name))) for name in split.columns()}
    return P.Project(rows.plan, [c.alias(name) for name, c in {**read, **keys}.items()])


def _with_shown(kept: Rows, key: str, grouped: _Grouped, schema: T.StructType) -> Rows:
    """The operator's output, with the window as Spark shows it in place of its start."""
    name, window = grouped.names[grouped.place], grouped.window
    assert window is not None
    fields = in_place(schema, key, name, window.field)
    made = python_step(kept, ShowWindows(key, name, window.size.size, window.local), fields)
    return replace(made, plan=empty(fields))


def _keys(names: list[str], read: Rows) -> Keys:
    fields = [read.schema[name] for name in names]
    return Keys.of_columns(fields).noting(fields)


def _shown(of: Translation, grouped: _Grouped, kept: Rows) -> Relation:
    """The projection behind the operator: keys and results, under the names that Spark gives them."""
    split = grouped.split
    keys = [F.col(quoted(n)).alias(shown) for n, shown in zip(grouped.names, split.keys) if n != NUMBER]
    if split.results is None:
        results = [F.col(quoted(n)).alias(shown) for n, shown in zip(split.plain, split.names, strict=True)]
    else:
        results = split.results(of.frame(kept.plan))
    return P.Project(kept.plan, [*keys, *results])
