"""``Deduplicate``: one row of each key. Driver; Spark Connect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spark_ckpt.plan._distinct_by import DISTINCT, DROP_DUPLICATES, WITHIN, DistinctBy
from spark_ckpt.plan._keyed_operator import Upstream, keyed_rows
from spark_ckpt.plan.chain import Chain
from spark_ckpt.plan.relations._translation import Rows, Translation, with_own_names
from spark_ckpt.plan.relations.uids import given_uid

Relation = Any


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
