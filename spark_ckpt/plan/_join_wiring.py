"""Turns a join of two streams into stages: each side is packed where its rows are, then one operator has them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from spark_ckpt.plan._event_time import event_time_among, noted_as
from spark_ckpt.plan._join_columns import JoinPlan
from spark_ckpt.plan._join_rules import INNER, LEFT, RIGHT, Times
from spark_ckpt.plan._keyed_operator import KeyedRows, Upstream, addable, state_layout
from spark_ckpt.plan._wiring import produced_by
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.lineage import Lineage, OperatorNode
from spark_ckpt.runtime.join_side import TIME
from spark_ckpt.runtime.operator.pack import PACKED, PackStage
from spark_ckpt.runtime.operator.spec import OperatorSpec, WatermarkSpec
from spark_ckpt.runtime.stateless import spark_schema, with_control
from spark_ckpt.state.joins.function import StreamJoin
from spark_ckpt.types import EVENT_TIME, KEY_HASH


def times_of(sides: Sequence[Upstream], compared: Sequence[set[str]]) -> Times:
    """The event time of each side. Of several, the one that the condition compares."""
    left, right = (
        event_time_among(rows.schema, "one side of a join", asked, not rows.lineage.open_watermarks)
        for rows, asked in zip(sides, compared, strict=True)
    )
    return None if left is None else left.name, None if right is None else right.name


def met(lineages: Sequence[Lineage], times: Times) -> Lineage:
    """That of both sides together. Of a side without an event time, the watermark is told."""
    left, right = (i if time else i.with_watermarks_told() for i, time in zip(lineages, times, strict=True))
    return left.union(right, "join")


def timed(lineages: Sequence[Lineage], times: Times) -> Times:
    """Those of ``times`` that a watermark is known of."""
    left, right = (time if i.watermarks else None for i, time in zip(lineages, times, strict=True))
    return left, right


@dataclass(frozen=True)
class JoinWiring:
    """``recipes`` and ``times`` are those of the sides; ``lineage`` is that of both together."""

    recipes: tuple[Recipe, Recipe]
    times: Times
    lineage: Lineage
    plan: JoinPlan
    function: StreamJoin

    def __call__(self, ctx: Any, node: OperatorNode) -> Chain:
        """``ctx`` is the build context of a start."""
        spec = self._spec(ctx, node)
        sides = [self._packed(ctx, spec, side) for side in (LEFT, RIGHT)]
        return produced_by(sides[LEFT].union(sides[RIGHT]), spec)

    def _packed(self, ctx: Any, spec: OperatorSpec, side: int) -> Any:
        rows = self.plan.side(side, self.times[side])
        chain = ctx.chain(self.recipes[side]).then(rows, spark_schema(rows.schema))
        return ctx.place(chain.then(PackStage(spec, hashes=True), spark_schema(PACKED)))

    def _spec(self, ctx: Any, node: OperatorNode) -> OperatorSpec:
        fields = [*self.plan.rows_schema, pa.field(KEY_HASH, pa.int64())]
        if self.function.timeout == "EventTimeTimeout" and any(self.times):
            fields.append(pa.field(EVENT_TIME, pa.int64()))
        return OperatorSpec(
            run=ctx.run,
            uid=ctx.uids[node],
            inputs=self.lineage.inputs,
            function=self.function,
            rows_schema=pa.schema(fields),
            watermarks=tuple(ctx.stream_name(w) for w in self.lineage.watermarks),
            open_watermarks=tuple(
                WatermarkSpec(ctx.stream_number(w), ctx.stream_name(w), TIME, w.delay_us)
                for w in self.lineage.open_watermarks
                if any(self.times)
            ),
            event_time=TIME if any(self.times) else None,
            time=ctx.event_time,
            behind_others=bool(self.lineage.operators),
        )


def joined_rows(wiring: JoinWiring, uid: str | None, shown: list[T.StructField]) -> KeyedRows:
    """What the join puts out. ``shown``: what Spark says of the columns, event times among them."""
    function, lineage = wiring.function, wiring.lineage
    node = OperatorNode(
        uid,
        state_layout(function),
        lineage.sources,
        function.timeout,
        function.made_of,
        None if function.how == INNER else "append",
        families=function.families,
        kind=function.kind,
        begins=addable(function),
        behind=lineage.operators,
        waits=function.waits,
    )
    out = T.StructType(noted_as(spark_schema(function.output_schema).fields, shown))
    full = with_control(out)
    recipe = Recipe(lambda ctx: replace(wiring(ctx, node), schema=full), wiring.recipes, operators=(node,))
    return KeyedRows(recipe, lineage.through(node), out)
