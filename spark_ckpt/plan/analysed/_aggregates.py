"""``Aggregate``: groups and aggregate functions, as Spark resolved them. Driver; classic Spark.

Of Spark's node, what stands inside an aggregate function becomes a column in front of the operator, the function an
accumulator of ours, and what stands around it a projection behind, under the ids that the node puts out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import types as T

from spark_ckpt.execution.java_classes import attribute_id, frame_of, seq_items
from spark_ckpt.operators.aggregates import Split, split_aggregates
from spark_ckpt.operators.groups import Grouped, InSessions, Windowed, kept, key_names
from spark_ckpt.operators.handlers import refuse_pivoted_updates, sessions_of_sets_refused
from spark_ckpt.operators.key_columns import check_key, key_text
from spark_ckpt.operators.walks import own_names
from spark_ckpt.operators.windows import the_session
from spark_ckpt.plan.analysed._aggregate_calls import ClassicExpressions
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    column_of,
    kind_of,
    output_of,
    project,
    relation,
    resolved,
    text_of,
    type_of,
    under_id,
)
from spark_ckpt.plan.analysed._pivots import without_pivots
from spark_ckpt.plan.analysed._row_by_row import step
from spark_ckpt.plan.analysed._sessions import NodeSession, in_sessions, session_of
from spark_ckpt.plan.analysed._time_windows import NodeWindow, directly_below, window_of, windowed, with_starts
from spark_ckpt.plan.analysed._translation import Translation

SparkDF = Any
JavaObject = Any

_KEPT = "__ckpt_kept_"
_NUMBER_OF_SET = "spark_grouping_id"
"""The last column of grouping sets, as Spark calls it."""


@dataclass(frozen=True)
class _Grouped(Grouped[Rows]):
    """``renamed``: what aggregates read under other names, as keys have theirs -> those of the rows."""

    of: Translation
    window: NodeWindow | None
    session: NodeSession | None
    renamed: dict[str, str]

    def rows(self) -> Rows:
        return self.of.rows(self.node.child())

    def windowed(self, name: str, sliced: bool) -> Windowed[Rows]:
        assert self.window is not None
        if directly_below(self.node.child(), self.window) is None:
            return with_starts(self.of, self.rows(), self.window, name)
        return windowed(self.of, self.window, name, sliced, self.node.references())

    def in_sessions(self, name: str) -> InSessions[Rows]:
        assert self.session is not None
        return in_sessions(self.of, self.node.child(), self.session, name)

    def reads(self) -> Mapping[str, Column]:
        by_name = dict(zip(self.taken, output_of(self.node.child()), strict=True))
        by_name |= {own: by_name[name] for own, name in self.renamed.items()}
        computed = self.split.computed
        return {n: computed[n] if n in computed else column_of(by_name[n]) for n in self.split.columns()}


def aggregate(of: Translation, node: JavaObject) -> Rows:
    grouped = _grouped(of, without_pivots(of, node))
    made = kept(of, grouped)
    if grouped.node is not node:
        refuse_pivoted_updates(made.lineage)
    return step(of, _shown(of, grouped, made), made)


def _grouped(of: Translation, node: JavaObject) -> _Grouped:
    before = output_of(node.child())
    grouping, results = seq_items(node.groupingExpressions()), seq_items(node.aggregateExpressions())
    taken = own_names(str(a.name()) for a in before)
    frame = frame_of(relation([a.withName(n) for a, n in zip(before, taken, strict=True)]), of.spark)
    session = the_session([session_of(node.child(), key, place) for place, key in enumerate(grouping)])
    if session is not None and _is_of_sets(node.child()):
        raise sessions_of_sets_refused()
    windows = [None if session is not None else window_of(node.child(), key) for key in grouping]
    at = next((i for i, w in enumerate(windows) if w is not None), None)
    of_time = at if session is None else session.place
    window, place = None if at is None else windows[at], of_time or 0
    names = _key_names(grouping, results, {attribute_id(a): str(a.name()) for a in before}, of_time)
    for name, key in zip(names, grouping, strict=False):
        check_key(T.StructField(name, type_of(key)))
    split = split_aggregates(frame, ClassicExpressions(frame, grouping, results), names)
    starts = [f"{n}_start" if window is not None and i == place else n for i, n in enumerate(names)]
    renamed = _told_from_keys(split, dict(zip(taken, before, strict=True)), dict(zip(starts, grouping, strict=False)))
    keys, kinds = list(map(column_of, grouping)), list(map(type_of, grouping))
    by_id = {attribute_id(a): a for a in before}
    computed = [window.time if window and window.is_column(key) else key for key in grouping]
    computed = [by_id.get(attribute_id(e), e) if kind_of(e) == "AttributeReference" else e for e in computed]
    if session is not None:
        computed[place] = session.time
    texts = ["" if e is None else key_text(text_of(e)) for e in computed]
    return _Grouped(node, keys, kinds, names, texts, split, window, session, place, taken, of, renamed)


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
    grouping: list[JavaObject], results: list[JavaObject], columns: dict[int, str], of_time: int | None
) -> list[str]:
    """What each key is called in the state: the column's name, as it is called in ``columns``, by ids, and not as it
    is written here; or what Spark calls the expression. A window, key number ``of_time``, is called as the result that
    shows it."""
    shown, taken = [], []
    for at, key in enumerate(grouping):
        if kind_of(key) == "AttributeReference" and at != of_time:
            shown.append(columns[attribute_id(key)])
            taken.append(list[str]())
        else:
            shown.append(_shown_name(key, results))
            taken.append([name for name in columns.values() if at != of_time or name != str(key.name())])
    return key_names(shown, taken)


def _shown_name(key: JavaObject, results: list[JavaObject]) -> str:
    """As the result that is the key alone is called; else Spark's text of it."""
    same = (r for r in results if kind_of(r) == "Alias" and r.child().semanticEquals(key))
    found = next(same, None)
    return text_of(key) if found is None else str(found.name())


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
