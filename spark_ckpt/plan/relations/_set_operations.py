"""``SetOperation`` that is a union: the rows of several streams. Driver; Spark Connect."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

from spark_ckpt.plan._distinct import DISTINCT, DROP_DUPLICATES, WITHIN, DistinctBy
from spark_ckpt.plan._keyed_operator import Upstream, keyed_rows
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.relations._control_rows import control_last
from spark_ckpt.plan.relations._row_by_row import under_names
from spark_ckpt.plan.relations._translation import Rows, Translation, rows_of, with_own_names
from spark_ckpt.plan.relations._tree import over
from spark_ckpt.plan.relations.uids import given_uid
from spark_ckpt.plan.spark_errors import unsupported
from spark_ckpt.runtime.stateless import with_control

Relation = Any


def union(of: Translation, node: Relation) -> Rows:
    """By position, or by name: Spark puts names in order and types in common, of control columns too."""
    sides = (node._child, node.other)
    if not all(map(of.reads_stream, sides)):
        raise unsupported(
            "Union between streaming and batch DataFrames/Datasets is not supported, in Spark neither: write the rows "
            "of a table beside those of the query, or read them as a stream"
        )
    rows = [of.rows(side) for side in sides]
    recipes, schema = tuple(r.recipe for r in rows), of.schema(node)

    def make(ctx: Any) -> Chain:
        one, other = (under_names(node, r, ctx.frame(r.recipe)) for r in rows)
        made = over(node, one, other=other, is_all=True)
        return Chain(of.frame(control_last(made)), with_control(schema))

    lineage = reduce(lambda a, b: a.union(b), (r.lineage for r in rows))
    made = rows_of(Recipe(make, recipes), lineage, node, schema)
    return made if node.is_all else distinct_of(of, node, made)


def deduplicate(of: Translation, node: Relation) -> Rows:
    """``distinct()`` and ``dropDuplicates()`` are one relation."""
    rows = of.rows(node._child)
    method = WITHIN if node.within_watermark else DROP_DUPLICATES
    asked = node.column_names or []
    wanted = {i for i, name in enumerate(rows.shown) if any(of.same_name(name, a) for a in asked)}
    of.schema(node)  # raises as Spark does
    return _distinct(of, node, rows, method, wanted if asked else set(range(len(rows.shown))))


def distinct_of(of: Translation, node: Relation, rows: Rows) -> Rows:
    """``rows``, each once."""
    return _distinct(of, node, rows, DISTINCT, set(range(len(rows.shown))))


def _distinct(of: Translation, node: Relation, rows: Rows, method: str, wanted: set[int]) -> Rows:
    named = with_own_names(rows)
    names = named.schema.names
    asked = [names[place] for place in sorted(wanted)]
    function, by = DistinctBy(method, named.schema, asked, bool(named.lineage.open_watermarks)).function()

    def in_spark(ctx: Any) -> Chain:
        chain = ctx.chain(named.recipe)
        return Chain(ctx.for_spark(chain), chain.schema)

    upstream = Upstream(named.recipe, named.lineage, named.schema, in_spark)
    made = keyed_rows(upstream, given_uid(of, node), function, names, by, asked=asked)
    return replace(named, recipe=made.recipe, lineage=made.lineage, plan=node, schema=made.schema)
