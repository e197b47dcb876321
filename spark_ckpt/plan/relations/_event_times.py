"""``WithWatermark``: which column is the event time, and how late its rows may be. Driver; Spark Connect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spark_ckpt.plan._event_time import DELAY_KEY, mark_stream
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.lineage import WatermarkNode
from spark_ckpt.plan.relations._translation import Rows, Translation, renamed, with_own_names
from spark_ckpt.runtime.stateless import MarkStream, with_control

Relation = Any


def watermark(of: Translation, node: Relation) -> Rows:
    """Rows are numbered with their watermark's stream. Spark notes of one column that it is the event time."""
    rows = with_own_names(of.rows(node._child))
    found = of.schema(node)
    (place,) = (i for i, f in enumerate(found.fields) if DELAY_KEY in f.metadata)
    names = rows.schema.names
    known = WatermarkNode(names[place], int(found.fields[place].metadata[DELAY_KEY]) * 1000, rows.lineage.sources)
    schema, parent = renamed(found, names), rows.recipe
    full = with_control(schema)

    def make(ctx: Any) -> Chain:
        chain, number = ctx.chain(parent), ctx.stream_number(known)
        marked = MarkStream(number, ctx.stream_name(known), known.column, known.delay_us)
        if known in ctx.told:
            return chain.then(marked, full)
        return chain.either(marked, lambda frame: mark_stream(frame, number), full)

    lineage = rows.lineage.with_watermark(known)
    made = Recipe(make, (parent,))
    return replace(rows, recipe=made, lineage=lineage, plan=node, schema=schema, shown=tuple(found.names))
