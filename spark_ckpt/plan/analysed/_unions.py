"""``Union``: the rows of several streams. Driver; classic Spark."""

from __future__ import annotations

from functools import reduce
from typing import Any

from spark_ckpt.plan.analysed._nodes import Rows, output_of, schema_of
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.spark_errors import unsupported
from spark_ckpt.plan.udf_plan import seq_items
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
