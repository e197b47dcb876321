"""``Aggregate``: groups and aggregate functions, as Spark resolved them. Driver; classic Spark.

Of Spark's node, what stands inside an aggregate function becomes a column in front of the operator, the function an
accumulator of ours, and what stands around it a projection behind, under the ids that the node puts out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt import agg
from spark_ckpt.agg import AggSpec
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._aggregate_functions import Grouping, WindowKey, in_slices, rules_of
from spark_ckpt.plan._aggregates import ALL_ROWS, Split, split_aggregates
from spark_ckpt.plan._carried_keys import carried, given_back, is_carried
from spark_ckpt.plan._java_classes import attribute_id, frame_of
from spark_ckpt.plan._keyed_operator import keyed_rows
from spark_ckpt.plan._windows import in_place
from spark_ckpt.plan.analysed._aggregate_calls import ClassicExpressions
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    column_of,
    kind_of,
    named_as,
    new_attributes,
    output_of,
    own_names,
    project,
    relation,
    resolved,
    text_of,
    type_of,
    under_id,
)
from spark_ckpt.plan.analysed._pivots import refuse_updates, without_pivots
from spark_ckpt.plan.analysed._row_by_row import python_step, step
from spark_ckpt.plan.analysed._sessions import Session, in_sessions, session_among
from spark_ckpt.plan.analysed._time_windows import (
    TimeWindow,
    Windowed,
    directly_below,
    window_of,
    windowed,
    with_starts,
)
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed._udf_plan import seq_items
from spark_ckpt.plan.analysed.uids import given_uid
from spark_ckpt.plan.columns import free
from spark_ckpt.plan.key_columns import Keys, arrow_columns, check_key, stored_name
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.runtime.windows import ShowWindows
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.aggregates.sessions import SessionAggregate
from spark_ckpt.state.aggregates.windowed import WindowedAggregate

SparkDF = Any
JavaObject = Any

_KEPT = "__ckpt_kept_"
_NUMBER_OF_SET = "spark_grouping_id"
"""The last column of grouping sets, as Spark calls it."""


@dataclass(frozen=True)
class _Grouped:
    """An ``Aggregate`` node. ``frame`` has the columns of its child under names of their own, and no rows.

    ``window``: the one among the keys, if there is one; ``key_names`` are the keys' names behind the operator.
    ``renamed``: what aggregates read under other names, as keys have theirs -> those of ``frame``.
    """

    node: JavaObject
    frame: SparkDF
    grouping: list[JavaObject]
    key_names: list[str]
    split: Split
    window: TimeWindow | None
    session: Session | None
    renamed: dict[str, str]

    @property
    def window_place(self) -> int:
        """Which of the keys the window is."""
        assert self.window is not None
        return next(i for i, key in enumerate(self.grouping) if self.window.is_column(key))

    @property
    def reads(self) -> list[str]:
        """The columns that aggregates read."""
        return self.split.columns()

    @property
    def specs(self) -> dict[str, AggSpec]:
        """Of keys alone, that the group is there is what is kept."""
        return self.split.specs or {free("rows_of_group", [*self.frame.columns, *self.key_names]): agg.count()}


def aggregate(of: Translation, node: JavaObject) -> Rows:
    grouped = _grouped(of, without_pivots(of, node))
    kept = _kept(of, grouped)
    if grouped.node is not node:
        refuse_updates(kept.lineage)
    kept = _given_back(of, grouped, kept)
    return step(of, _shown(of, grouped, kept), kept)


def _grouped(of: Translation, node: JavaObject) -> _Grouped:
    before = output_of(node.child())
    grouping, results = seq_items(node.groupingExpressions()), seq_items(node.aggregateExpressions())
    names = own_names(str(a.name()) for a in before)
    frame = frame_of(relation([a.withName(n) for a, n in zip(before, names, strict=True)]), of.spark)
    session = session_among(grouping)
    if session is not None and _is_of_sets(node.child()):
        raise InvalidInputError(
            "cube, rollup and grouping sets of session windows are not there on a stream, on Spark's neither: a session"
            " that a set is without would never end. Write one groupBy(F.session_window(...), ...) for each set of keys"
        )
    windows = () if session is not None else (window_of(node.child(), key) for key in grouping)
    window = next((w for w in windows if w is not None), None)
    own = session.column if session is not None else None if window is None else window.column
    key_names = _key_names(grouping, results, {attribute_id(a): str(a.name()) for a in before}, own)
    for name, key in zip(key_names, grouping, strict=False):
        check_key(T.StructField(name, type_of(key)))
    split = split_aggregates(frame, ClassicExpressions(frame, grouping, results), key_names)
    starts = [f"{n}_start" if window and window.is_column(k) else n for n, k in zip(key_names, grouping, strict=False)]
    renamed = _told_from_keys(split, dict(zip(names, before, strict=True)), dict(zip(starts, grouping, strict=True)))
    return _Grouped(node, frame, grouping, key_names, split, window, session, renamed)


def _is_of_sets(below: JavaObject) -> bool:
    """Whether rows come once for each grouping set."""
    return kind_of(below) == "Expand" and str(output_of(below)[-1].name()) == _NUMBER_OF_SET


def _told_from_keys(split: Split, columns: dict[str, JavaObject], keys: dict[str, JavaObject]) -> dict[str, str]:
    """Aggregates may read a column whose name has a key that is another one: a key of grouping sets is null where its
    set is without it, and two columns of a join have one name. So it is read under another name."""
    by_name = {name.lower(): key for name, key in keys.items()}
    read = {name for name in split.columns() if name in columns and name.lower() in by_name}
    others = {name for name in read if not columns[name].semanticEquals(by_name[name.lower()])}
    split.specs = {
        n: replace(s, column=f"{_KEPT}{s.column}") if s.column in others else s for n, s in split.specs.items()
    }
    return {f"{_KEPT}{name}": name for name in others}


def _key_names(
    grouping: list[JavaObject], results: list[JavaObject], columns: dict[int, str], window: JavaObject | None
) -> list[str]:
    """What each key is called in the state: the column's name, as it is called in ``columns``, by ids, and not as it
    is written here; or what Spark calls the expression. A window is called as the result that shows it."""
    names: list[str] = []
    for key in grouping:
        is_window = window is not None and kind_of(key) == "AttributeReference" and _same(key, window)
        is_column = kind_of(key) == "AttributeReference" and not is_window
        name = columns[attribute_id(key)] if is_column else _shown_name(key, results)
        taken = names if is_column else [*names, *columns.values()]
        own = stored_name(name)
        taken = [t for t in taken if not is_window or t != str(key.name())]
        names.append(own if own.lower() not in {t.lower() for t in taken} else free(f"{own}_key", taken))
    return names or [ALL_ROWS]


def _same(one: JavaObject, other: JavaObject) -> bool:
    return attribute_id(one) == attribute_id(other)


def _shown_name(key: JavaObject, results: list[JavaObject]) -> str:
    """As the result that is the key alone is called; else Spark's text of it."""
    same = (r for r in results if kind_of(r) == "Alias" and r.child().semanticEquals(key))
    found = next(same, None)
    return text_of(key) if found is None else str(found.name())


def _kept(of: Translation, grouped: _Grouped) -> Rows:
    """The operator's keys and aggregates, under ids of their own."""
    if grouped.session is not None:
        return _kept_sessions(of, grouped, grouped.session)
    window = None if grouped.window is None else _windowed(of, grouped, grouped.window)
    rows = of.rows(grouped.node.child()) if window is None else window.rows
    names = list(grouped.key_names)
    keys = grouped.grouping or resolved(grouped.frame, [F.lit(0)])
    if window is not None:
        place = grouped.window_place
        names[place], keys = f"{names[place]}_start", [*keys[:place], window.key, *keys[place + 1 :]]
    read = step(of, _read(grouped, rows, dict(zip(names, keys, strict=True))), rows)
    by = _keys(names, read)
    function = _function(of, grouped, by, read, window)
    mode = None if isinstance(function, WindowedAggregate) else "update"
    kept = _operator(of, grouped, read, function, by, grouped.reads, mode)
    return kept if window is None else _with_shown(kept, names[grouped.window_place], grouped, window)


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
    # An update of a row that is there changes nothing of which keys there are.
    keys_alone = not grouped.split.specs
    uid = given_uid(of, grouped.node)
    made = keyed_rows(read.upstream(), uid, function, inputs, by, mode, takes_updates=keys_alone)
    return Rows(made.recipe, made.lineage, new_attributes(made.schema), made.schema)


def _kept_sessions(of: Translation, grouped: _Grouped, session: Session) -> Rows:
    """Sessions are no key: the operator merges them. In update mode there are none, and without a watermark none
    ends."""
    place, name = session.place, grouped.key_names[session.place]
    found = in_sessions(of, grouped.node.child(), session, name)
    names = [n for i, n in enumerate(grouped.key_names) if i != place] or [ALL_ROWS]
    others = [k for i, k in enumerate(grouped.grouping) if i != place] or resolved(grouped.frame, [F.lit(0)])
    keys = dict(zip(names, others, strict=True))
    read = step(of, _read(grouped, found.rows, {**keys, **found.attributes()}), found.rows)
    by, wanted = _keys(names, read), [*grouped.reads, found.start, found.end]
    function = SessionAggregate(
        arrow_schema(by.schema), _inputs(grouped, read), grouped.specs,
        start=found.start, end=found.end, rules=rules_of(of.spark),
    )  # fmt: skip
    function.shown = grouped.split.shown
    ends = session.event_time and bool(read.lineage.watermarks)
    kept = _operator(of, grouped, read, function, by, wanted, "append" if ends else "complete")
    show, schema = session.shown(found.start, found.end, name, kept.schema)
    return python_step(kept, show, new_attributes(schema), schema)


def _windowed(of: Translation, grouped: _Grouped, window: TimeWindow) -> Windowed:
    """The rows with their windows' starts."""
    child, name = grouped.node.child(), grouped.key_names[grouped.window_place]
    at = directly_below(child, window)
    if at is None:
        return with_starts(of.rows(child), window, name)
    sliced = in_slices(window.size, window.event_time, grouped.specs.values())
    return windowed(of, window, name, newest=sliced, read=grouped.node.references())


def _function(of: Translation, grouped: _Grouped, keys: Keys, read: Rows, made: Windowed | None) -> AggregateFunction:
    key = None
    if made is not None:
        name, window = f"{grouped.key_names[grouped.window_place]}_start", made.window
        key = WindowKey(name, window.size, window.event_time, made.newest)
    grouping = Grouping(keys, key, bool(read.lineage.watermarks), not grouped.grouping)
    return grouping.function(_inputs(grouped, read), grouped.specs, rules_of(of.spark), grouped.split.shown)


def _inputs(grouped: _Grouped, read: Rows) -> pa.Schema:
    return arrow_columns(read.schema, grouped.reads)


def _read(grouped: _Grouped, rows: Rows, keys: dict[str, JavaObject]) -> JavaObject:
    """The projection in front of the operator: keys, and what aggregates read, under the names of the state."""
    by_name = dict(zip(grouped.frame.columns, output_of(grouped.node.child()), strict=True))
    names = list(grouped.split.computed)
    computed = dict(zip(names, resolved(grouped.frame, [grouped.split.computed[n] for n in names]), strict=True))
    by_name |= {own: by_name[name] for own, name in grouped.renamed.items()}
    read = {name: computed[name] if name in computed else by_name[name] for name in grouped.reads}
    listed = {**read, **{name: _as_kept(grouped, key) for name, key in keys.items()}}
    return project([named_as(e, name) for name, e in listed.items()], relation(rows.attributes))


def _as_kept(grouped: _Grouped, key: JavaObject) -> JavaObject:
    """A key, as another type where no state table has its own."""
    kind = type_of(key)
    return resolved(grouped.frame, [carried(column_of(key), kind)])[0] if is_carried(kind) else key


def _given_back(of: Translation, grouped: _Grouped, kept: Rows) -> Rows:
    """``kept``, with its keys as they were."""
    kinds = dict(zip(grouped.key_names, map(type_of, grouped.grouping), strict=False))
    if not any(map(is_carried, kinds.values())):
        return kept
    columns = [given_back(column_of(a), kinds.get(str(a.name()), T.NullType())) for a in kept.attributes]
    made = resolved(frame_of(relation(kept.attributes), of.spark), columns)
    named = [named_as(e, str(a.name())) for e, a in zip(made, kept.attributes, strict=True)]
    return step(of, project(named, relation(kept.attributes)), kept)


def _keys(names: list[str], read: Rows) -> Keys:
    fields = [read.schema[name] for name in names]
    return Keys.of_columns(fields).noting(fields)


def _with_shown(kept: Rows, key: str, grouped: _Grouped, window: Windowed) -> Rows:
    """The operator's output, with the window as Spark shows it in place of its start."""
    name, found = grouped.key_names[grouped.window_place], window.window
    schema = in_place(kept.schema, key, name, found.field)
    return python_step(kept, ShowWindows(key, name, found.size.size, found.local), new_attributes(schema), schema)


def _shown(of: Translation, grouped: _Grouped, kept: Rows) -> JavaObject:
    """The projection behind the operator: the results, under the ids of the node."""
    over = frame_of(relation(kept.attributes), of.spark)
    place = dict(zip(kept.schema.names, kept.attributes, strict=True))
    trees = _results(grouped.split, over, place)
    named = [under_id(tree, out) for tree, out in zip(trees, output_of(grouped.node), strict=True)]
    return project(named, relation(kept.attributes))


def _results(split: Split, over: SparkDF, place: dict[str, JavaObject]) -> list[JavaObject]:
    if split.trees is not None:
        return split.trees(over)
    return [place[name] for name in split.plain] if split.results is None else resolved(over, split.results(over))
