"""``Aggregate``: groups and aggregate functions, as the client has them. Driver; Spark Connect.

What stands inside an aggregate function becomes a column in front of the operator, the function an accumulator of ours,
and what stands around it a projection behind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import plan as P

from spark_ckpt import agg
from spark_ckpt.agg import AggSpec
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.aggregates import ALL_ROWS, Split, rules_of, split_aggregates
from spark_ckpt.plan.columns import free, quoted
from spark_ckpt.plan.key_columns import Keys, stored_name
from spark_ckpt.plan.keyed_operator import keyed_rows
from spark_ckpt.plan.relations._columns import bare, column, place_of
from spark_ckpt.plan.relations._row_by_row import python_step, step
from spark_ckpt.plan.relations._translation import Rows, Translation, renamed, rows_of
from spark_ckpt.plan.relations._tree import empty
from spark_ckpt.plan.relations._windows import (
    TimeWindow,
    Windowed,
    refuse_calls_in,
    window_of,
    windowed,
    without_shown,
)
from spark_ckpt.plan.relations.uids import given_uid
from spark_ckpt.plan.windows import in_place
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.runtime.windows import ShowWindows
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.aggregates.kinds import in_any_order
from spark_ckpt.state.aggregates.windowed import WindowedAggregate

Relation = Any


@dataclass(frozen=True)
class _Grouped:
    """``keys`` as given; ``names`` are theirs behind the operator, of ``rows`` in front. ``window``: the one among the
    keys, and its place there."""

    node: Relation
    rows: Rows
    keys: list[Any]
    names: list[str]
    split: Split
    window: TimeWindow | None
    place: int

    @property
    def specs(self) -> dict[str, AggSpec]:
        """Of keys alone, that the group is there is what is kept."""
        return self.split.specs or {free("rows_of_group", [*self.rows.shown, *self.names]): agg.count()}


def aggregate(of: Translation, node: Relation) -> Rows:
    if node._group_type != "groupby":
        raise InvalidInputError(f"Aggregate: {node._group_type} is not translated over Spark Connect")
    schema, rows = of.schema(node), of.rows(node._child)
    grouped = _grouped(of, node, rows)
    kept = _kept(of, grouped)
    shown = step(of, _shown(of, grouped, kept), kept)
    return replace(shown, plan=node, schema=renamed(shown.schema, schema.names), shown=tuple(schema.names))


def _grouped(of: Translation, node: Relation, rows: Rows) -> _Grouped:
    keys = list(node._grouping_cols)
    found = [window_of(of, rows, key._expr) for key in keys]
    place, window = next(((i, w) for i, w in enumerate(found) if w is not None), (0, None))
    refuse_calls_in([c for i, c in enumerate([*keys, *node._aggregate_cols]) if window is None or i != place])
    names = _key_names(of, keys, rows, window, place)
    split = split_aggregates(of.frame(rows.plan), keys, names, list(node._aggregate_cols))
    return _Grouped(node, rows, keys, names, split, window, place)


def _key_names(of: Translation, keys: list[Any], rows: Rows, window: TimeWindow | None, window_at: int) -> list[str]:
    """What each key is called in the state: the column's name, or what Spark calls the expression."""
    shown = of.schema(P.Project(rows.plan, keys)).names if keys else []
    names: list[str] = []
    for at, (key, name) in enumerate(zip(keys, shown, strict=True)):
        is_column = place_of(of, rows, key._expr) is not None and not (window is not None and at == window_at)
        taken = names if is_column else [*names, *rows.shown]
        own = stored_name(name)
        names.append(own if own.lower() not in {t.lower() for t in taken} else free(f"{own}_key", taken))
    return names or [ALL_ROWS]


def _kept(of: Translation, grouped: _Grouped) -> Rows:
    """The operator's keys and aggregates."""
    window, rows, names = _windowed(of, grouped), grouped.rows, list(grouped.names)
    keys = [column(bare(key._expr)) for key in grouped.keys] or [F.lit(0)]
    if window is not None:
        names[grouped.place], keys[grouped.place] = f"{names[grouped.place]}_start", F.col(quoted(window.key))
        rows = replace(window.rows, plan=_asked(grouped, window), shown=(*rows.shown, window.key))
    read = step(of, _read(grouped, rows, dict(zip(names, keys, strict=True))), rows)
    by = _keys(names, read)
    function = _function(of, grouped, by, read, window)
    mode = None if isinstance(function, WindowedAggregate) else "update"
    inputs = [f.name for f in read.schema.fields if f.name in grouped.split.columns()]
    made = keyed_rows(read.upstream(), given_uid(of, grouped.node), function, inputs, by, mode)
    schema, recipe = made.schema, rows_of(made.recipe, made.lineage, empty(made.schema), made.schema)
    return recipe if window is None else _with_shown(recipe, names[grouped.place], grouped, schema)


def _asked(grouped: _Grouped, window: Windowed) -> Relation:
    """The client's relation of rows with windows, for Spark to analyse what is read of them."""
    field = window.rows.schema.fields[-1]
    return P.WithColumns(grouped.rows.plan, [field.name], [F.lit(None).cast(field.dataType)])


def _windowed(of: Translation, grouped: _Grouped) -> Windowed | None:
    """The rows with their windows' starts. Windows that begin in step with their length, of event times, and whose
    aggregates do not mind the order, are added up by slices: a row comes once then."""
    window = grouped.window
    if window is None:
        return None
    whole = window.size.most > 1 and window.size.size % window.size.slide == 0
    sliced = window.event_time and whole and window.call is not None and in_any_order(grouped.specs.values())
    made = windowed(of, grouped.rows, window, grouped.names[grouped.place], sliced)
    return replace(made, rows=without_shown(made, len(grouped.rows.shown)))


def _function(of: Translation, grouped: _Grouped, keys: Keys, read: Rows, made: Windowed | None) -> AggregateFunction:
    inputs = T.StructType([f for f in read.schema.fields if f.name in grouped.split.columns()])
    rules = rules_of(of.spark)
    by, rows, window = arrow_schema(keys.schema), arrow_schema(inputs), grouped.window
    if window is not None and made is not None:
        key, size = f"{grouped.names[grouped.place]}_start", window.size
        windows, slide = {key: size.text}, size.slide if made.newest else None
        if not window.event_time:
            return AggregateFunction(by, rows, grouped.specs, rules=rules, windows=windows)
        return WindowedAggregate(
            by, rows, grouped.specs, rules=rules, windows=windows, window=key, size_us=size.size, slide_us=slide
        )
    time = keys.event_time
    if time is not None and read.lineage.watermarks:
        return WindowedAggregate(by, rows, grouped.specs, rules=rules, window=time, size_us=0)
    return AggregateFunction(by, rows, grouped.specs, rules=rules, over_everything=not grouped.keys)


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
    keys = [F.col(quoted(n)).alias(shown) for n, shown in zip(grouped.names, split.keys)]
    if split.results is None:
        results = [F.col(quoted(n)).alias(shown) for n, shown in zip(split.plain, split.names, strict=True)]
    else:
        results = split.results(of.frame(kept.plan))
    return P.Project(kept.plan, [*keys, *results])
