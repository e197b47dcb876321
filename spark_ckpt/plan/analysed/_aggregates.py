"""``Aggregate``: groups and aggregate functions, as Spark resolved them. Driver; classic Spark.

Of Spark's node, what stands inside an aggregate function becomes a column in front of the operator, the function an
accumulator of ours, and what stands around it a projection behind, under the ids that the node puts out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt import agg
from spark_ckpt.plan._aggregates_classic import ClassicExpressions
from spark_ckpt.plan.aggregates import Split, split_found
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    attribute_id,
    kind_of,
    named_as,
    new_attributes,
    output_of,
    project,
    relation,
    resolved,
    under_id,
    with_own_names,
)
from spark_ckpt.plan.analysed._row_by_row import step
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed._uids import given_uid
from spark_ckpt.plan.columns import free, quoted
from spark_ckpt.plan.event_time import DELAY_KEY
from spark_ckpt.plan.java_classes import EXPRESSION_UTILS, frame_of, java_class
from spark_ckpt.plan.key_columns import Keys, stored_name
from spark_ckpt.plan.keyed_operator import Upstream, keyed_rows
from spark_ckpt.plan.udf_plan import items_of
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.aggregates.kinds import Rules

SparkDF = Any
JavaObject = Any

ALL_ROWS = "all_rows"
"""The one key of an aggregation without keys."""
_RULES = {"ansi": "spark.sql.ansi.enabled", "nan_for_one": "spark.sql.legacy.statisticalAggregate"}
"""Spark's settings for what aggregates give, by the names of ``Rules``."""


class NodeExpressions(ClassicExpressions):
    """Those of an ``Aggregate`` node over ``df``, whose columns have names of their own."""

    def __init__(self, df: SparkDF, grouping: list[JavaObject], results: list[JavaObject]) -> None:
        self.names = [str(e.name()) for e in results]
        self._utils = java_class(EXPRESSION_UTILS)
        self._results, self._grouping = results, grouping
        self._ids = {attribute_id(a): str(a.name()) for a in output_of(df._jdf.queryExecution().analyzed())}


@dataclass(frozen=True)
class _Grouped:
    """An ``Aggregate`` node over rows with names of their own. ``frame`` has those names, and no rows."""

    rows: Rows
    frame: SparkDF
    grouping: list[JavaObject]
    results: list[JavaObject]
    key_names: list[str]
    split: Split


def aggregate(of: Translation, node: JavaObject) -> Rows:
    grouped = _grouped(of, node)
    kept = _kept(of, node, grouped)
    return step(of, _shown(of, node, grouped, kept), kept)


def _grouped(of: Translation, node: JavaObject) -> _Grouped:
    rows = with_own_names(of.rows(node.child()))
    named = [a.withName(name) for a, name in zip(rows.attributes, rows.schema.names, strict=True)]
    frame = frame_of(relation(named), of.spark)
    grouping, results = items_of(node.groupingExpressions()), items_of(node.aggregateExpressions())
    key_names = _key_names(grouping, results, frame.columns, {attribute_id(a) for a in named})
    found = NodeExpressions(frame, grouping, results)
    return _Grouped(rows, frame, grouping, results, key_names, split_found(frame, found, key_names))


def _key_names(
    grouping: list[JavaObject], results: list[JavaObject], columns: list[str], column_ids: set[int]
) -> list[str]:
    """What each key is called in the state: the column's name, or what Spark calls the expression."""
    names: list[str] = []
    for key in grouping:
        is_column = hasattr(key, "exprId") and kind_of(key) == "AttributeReference"
        name = str(key.name()) if is_column else _shown_name(key, results)
        taken = names if is_column and attribute_id(key) in column_ids else [*names, *columns]
        own = stored_name(name)
        names.append(own if own.lower() not in {t.lower() for t in taken} else free(f"{own}_key", taken))
    return names or [ALL_ROWS]


def _shown_name(key: JavaObject, results: list[JavaObject]) -> str:
    """As the result that is the key alone is called; else Spark's text of it."""
    same = (r for r in results if kind_of(r) == "Alias" and r.child().semanticEquals(key))
    found = next(same, None)
    return str(key.sql() if found is None else found.name())


def _kept(of: Translation, node: JavaObject, grouped: _Grouped) -> Rows:
    """The operator's keys and aggregates, under ids of their own."""
    split = grouped.split
    read = step(of, _read(grouped), grouped.rows)
    specs = split.specs or {free("rows_of_group", [*read.schema.names]): agg.count()}
    keys = _keys(grouped, read)
    inputs = [f for f in read.schema.fields if f.name in split.columns()]
    rules = Rules(**{name: of.spark.conf.get(conf).lower() == "true" for name, conf in _RULES.items()})
    function = AggregateFunction(
        arrow_schema(keys.schema), arrow_schema(T.StructType(inputs)), specs, rules=rules,
        over_everything=not grouped.grouping,
    )  # fmt: skip
    upstream = Upstream(read.recipe, read.lineage, read.schema, lambda ctx: ctx.chain(read.recipe))
    made = keyed_rows(upstream, given_uid(of, node), function, [f.name for f in inputs], keys, "update")
    return Rows(made.recipe, made.lineage, new_attributes(made.schema), made.schema)


def _read(grouped: _Grouped) -> JavaObject:
    """The projection in front of the operator: keys, and what aggregates read, under the names of the state."""
    by_name = dict(zip(grouped.frame.columns, grouped.rows.attributes, strict=True))
    names = list(grouped.split.computed)
    computed = dict(zip(names, resolved(grouped.frame, [grouped.split.computed[n] for n in names]), strict=True))
    keys = grouped.grouping or resolved(grouped.frame, [F.lit(0)])
    listed = dict(zip(grouped.key_names, keys, strict=True))
    for name in grouped.split.columns():
        if name not in listed:
            listed[name] = computed[name] if name in computed else by_name[name]
    return project([named_as(e, name) for name, e in listed.items()], relation(grouped.rows.attributes))


def _keys(grouped: _Grouped, read: Rows) -> Keys:
    names = grouped.key_names
    fields = [f for f in read.schema.fields if f.name in names]
    delays = [f.metadata.get(DELAY_KEY) for f in fields]
    return Keys(
        {name: F.col(quoted(name)) for name in names},
        T.StructType([T.StructField(f.name, f.dataType, True) for f in fields]),
        frozenset(names),
        tuple(None if delay is None else int(delay) for delay in delays),
        notes=tuple(dict(f.metadata) for f in fields),
    )


def _shown(of: Translation, node: JavaObject, grouped: _Grouped, kept: Rows) -> JavaObject:
    """The projection behind the operator: the results, under the ids of the node."""
    over = frame_of(relation(kept.attributes), of.spark)
    place = dict(zip(kept.schema.names, kept.attributes, strict=True))
    trees = [place[n] for n in grouped.split.plain] if grouped.split.trees is None else grouped.split.trees(over)
    named = [under_id(tree, out) for tree, out in zip(trees, output_of(node), strict=True)]
    return project(named, relation(kept.attributes))
