"""``limit``: the first rows of all that ever come, or of each whole result. Driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.plan._keyed_operator import KeyedRows, Upstream, keyed_rows
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.key_columns import Keys, arrow_columns
from spark_ckpt.runtime.limits import FirstOfResult
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.state.functions.first_rows import COUNT, FirstRows

_ALL = "all"


def first_rows(upstream: Upstream, n: int, uid: str | None) -> KeyedRows:
    """The first ``n`` rows. In output mode complete, behind an aggregation, of each result; else an operator counts
    them over time, in one task."""
    names = upstream.schema.names
    keys = Keys({_ALL: F.lit(True)}, T.StructType().add(_ALL, "boolean"), frozenset()).named_for(names, [COUNT])
    function = FirstRows(n, arrow_schema(keys.schema), arrow_columns(upstream.schema, names))
    whole = upstream.lineage.whole_result
    made = keyed_rows(upstream, uid, function, names, keys, whole_in_complete=whole)
    counting, lineage = made.recipe.make, replace(made.lineage, is_limited=True)

    def make(ctx: Any) -> Chain:
        in_complete = whole and ctx.output_mode == "complete"
        return of_result(ctx, upstream.recipe, n) if in_complete else counting(ctx)

    return replace(made, recipe=replace(made.recipe, make=make), lineage=lineage)


def of_result(ctx: Any, recipe: Recipe, n: int) -> Chain:
    """In each task first, and then in one. Behind Python, Spark keeps the order that its rows have."""
    chain = ctx.chain(recipe)
    few = ctx.place(chain.then(FirstOfResult(n), chain.schema))
    return Chain(few.repartition(1), chain.schema, (FirstOfResult(n),))
