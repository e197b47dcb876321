"""``Union``: the rows of several streams. Driver; classic Spark."""

from __future__ import annotations

from functools import reduce
from typing import Any

from spark_ckpt.plan._distinct import DROP_DUPLICATES, WITHIN, DistinctBy
from spark_ckpt.plan._keyed_operator import Upstream, keyed_rows
from spark_ckpt.plan.analysed._nodes import Rows, kind_of, output_of, schema_of, with_own_names
from spark_ckpt.plan.analysed._rules import applied
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed._udf_plan import seq_items
from spark_ckpt.plan.analysed.uids import given_uid
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.spark_errors import unsupported
from spark_ckpt.runtime.stateless import with_control

JavaObject = Any


def union(of: Translation, node: JavaObject) -> Rows:
    """By position: Spark's analysis has put names in order and types in common in front of it."""
    children = seq_items(node.children())
    if not all(child.isStreaming() for child in children):
        raise unsupported(
            "Union between streaming and batch DataFrames/Datasets is not supported, in Spark neither: write the rows "
            "of a table beside those of the query, or read them as a stream"
        )
    rows = [of.rows(child) for child in children]
    recipes, schema = tuple(r.recipe for r in rows), schema_of(node)

    def make(ctx: Any) -> Chain:
        frames = [ctx.frame(recipe) for recipe in recipes]
        return Chain(reduce(lambda one, other: one.union(other), frames), with_control(schema))

    lineage = reduce(lambda one, other: one.union(other), (r.lineage for r in rows))
    return Rows(Recipe(make, recipes), lineage, output_of(node), schema)


_RULES = {"Intersect": "ReplaceIntersectWithSemiJoin", "Except": "ReplaceExceptWithAntiJoin"}


def set_operation(of: Translation, node: JavaObject) -> Rows:
    """Nulls are equal, and each row comes once."""
    kind = kind_of(node)
    if node.isAll():
        raise unsupported(
            f"{kind} All: how often a row comes is known when both sides have ended: write {kind.upper()}, or join"
        )
    if node.right().isStreaming() and not node.left().isStreaming():
        raise unsupported(
            f"{kind} on a streaming DataFrame/Dataset on the right is not supported: that a row of the table is not in "
            "the stream is known when it has ended. An INTERSECT has the stream first"
        )
    return of.rows(applied(_RULES[kind], node))


def distinct(of: Translation, node: JavaObject) -> Rows:
    """What SQL calls DISTINCT is an aggregation without aggregates: in mode update, a row comes with each batch that
    has it. The method ``distinct()`` is a ``Deduplicate``."""
    return of.rows(applied("ReplaceDistinctWithAggregate", node))


_METHODS = {"Deduplicate": DROP_DUPLICATES, "DeduplicateWithinWatermark": WITHIN}


def deduplicate(of: Translation, node: JavaObject) -> Rows:
    """The rows come out as they are, under the ids that they had."""
    rows, method = with_own_names(of.rows(node.child())), _METHODS[kind_of(node)]
    names = rows.schema.names
    wanted = [names[place] for place in sorted({rows.place(key) for key in seq_items(node.keys())})]
    function, by = DistinctBy(method, rows.schema, wanted, bool(rows.lineage.open_watermarks)).function()

    def in_spark(ctx: Any) -> Chain:
        chain = ctx.chain(rows.recipe)
        return Chain(ctx.for_spark(chain), chain.schema)

    upstream = Upstream(rows.recipe, rows.lineage, rows.schema, in_spark)
    made = keyed_rows(upstream, given_uid(of, node), function, names, by, asked=wanted)
    return Rows(made.recipe, made.lineage, rows.attributes, made.schema)
