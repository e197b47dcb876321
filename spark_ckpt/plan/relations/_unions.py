"""``SetOperation`` that is a union: the rows of several streams. Driver; Spark Connect."""

from __future__ import annotations

from functools import reduce
from typing import Any

from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.relations._control_rows import control_last
from spark_ckpt.plan.relations._duplicates import distinct_of
from spark_ckpt.plan.relations._row_by_row import under_names
from spark_ckpt.plan.relations._translation import Rows, Translation, rows_of
from spark_ckpt.plan.relations._tree import over
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
