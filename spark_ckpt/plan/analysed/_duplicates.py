"""``Deduplicate`` and ``DeduplicateWithinWatermark``: one row of each key. Driver; classic Spark."""

from __future__ import annotations

from typing import Any

from spark_ckpt.plan._distinct_by import DROP_DUPLICATES, WITHIN, DistinctBy
from spark_ckpt.plan._keyed_operator import Upstream, keyed_rows
from spark_ckpt.plan.analysed._nodes import Rows, kind_of, with_own_names
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed.uids import given_uid
from spark_ckpt.plan.chain import Chain
from spark_ckpt.plan.udf_plan import seq_items

JavaObject = Any

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
