"""``EventTimeWatermark``: which column is the event time, and how late its rows may be. Driver; classic Spark."""

from __future__ import annotations

from typing import Any

from spark_ckpt.plan._event_time import mark_stream
from spark_ckpt.plan._java_classes import CATALYST, java_class
from spark_ckpt.plan.analysed._nodes import Rows, output_of, schema_of, with_own_names
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.lineage import WatermarkNode
from spark_ckpt.runtime.stateless import MarkStream, with_control

JavaObject = Any

_NODE = f"{CATALYST}.plans.logical.EventTimeWatermark"


def watermark(of: Translation, node: JavaObject) -> Rows:
    """Rows are numbered with their watermark's stream; the column's metadata says that it is the event time."""
    rows = with_own_names(of.rows(node.child()))
    column = rows.schema.names[rows.place(node.eventTime())]
    delay_us = int(java_class(_NODE).getDelayMs(node.delay())) * 1000
    # Copies of one node, as both sides of a join of a stream with itself, have one watermark.
    made = WatermarkNode(column, delay_us, rows.lineage.sources)
    known = of.watermarks.setdefault(str(node.nodeId().toString()), made)
    named = schema_of(node)
    for field, own in zip(named.fields, rows.schema.names, strict=True):
        field.name = own
    full, parent = with_control(named), rows.recipe

    def make(ctx: Any) -> Chain:
        chain, number = ctx.chain(parent), ctx.stream_number(known)
        marked = MarkStream(number, ctx.stream_name(known), known.column, known.delay_us)
        if known in ctx.told:
            return chain.then(marked, full)
        return chain.either(marked, lambda frame: mark_stream(frame, number), full)

    return Rows(Recipe(make, (parent,)), rows.lineage.with_watermark(known), output_of(node), named)
