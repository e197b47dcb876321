"""A join of two streams: both sides in front of one keyed operator. Driver."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.chain import Chain, Recipe, StreamRows
from spark_ckpt.execution.event_time import event_time_among, noted_as
from spark_ckpt.execution.lineage import Lineage, OperatorNode
from spark_ckpt.operators.join_columns import JoinColumns, JoinPlan, SideColumns
from spark_ckpt.operators.join_conditions import SplitCondition
from spark_ckpt.operators.join_rules import INNER, LEFT, RIGHT, Times, Until, grows, until
from spark_ckpt.operators.keyed_operator import addable, produced_by, state_layout
from spark_ckpt.operators.walks import Node, R, Walked
from spark_ckpt.runtime.join_side import TIME
from spark_ckpt.runtime.operator.pack import PACKED, PackStage
from spark_ckpt.runtime.operator.spec import OperatorSpec, WatermarkSpec
from spark_ckpt.runtime.stateless import spark_schema, with_control
from spark_ckpt.state.joins.function import COUNTS, StreamJoin
from spark_ckpt.types import EVENT_TIME, KEY_HASH

_log = logging.getLogger("spark_ckpt")


def stream_join(
    of: Walked[R], node: Node, how: str, split: SplitCondition[R], names: list[str], sensitive: bool = True
) -> tuple[StreamRows, JoinPlan]:
    """What comes out, before what is ``behind`` in ``split``. ``names``: those that it is by.

    Raises ``InvalidInputError`` for what no stream of Spark's has, and for conditions of pairs that only Spark can
    compute, in other than inner joins."""
    sides, parts, shown = split.sides, split.parts, of.schema(node).fields
    times, ends = _ends(how, split)

    def touches_time(column: Column, side: int) -> bool:
        return times[side] in sides.columns(sides.expression(column), side)

    left, right = sides.rows
    columns = JoinColumns(how, parts, (left.schema.names, right.schema.names), touches_time)
    left, right = (_with(of, rows, columns.sides[side]) for side, rows in enumerate(sides.rows))
    plan = JoinPlan(columns, (left.schema, right.schema), ends, sensitive)
    lineages = (left.lineage, right.lineage)
    both = met(lineages, times)
    function = plan.function(shown, names or None, bool(both.watermarks), f"a {how} join", _texts(split))
    wiring = JoinWiring((left.recipe, right.recipe), timed(lineages, times), both, plan, function)
    return joined_rows(wiring, of.uid(node), shown), plan


def _ends(how: str, split: SplitCondition[R]) -> tuple[Times, tuple[Until | None, Until | None]]:
    """The event time of each side, and until when its rows are kept."""
    times = times_of(split.sides.rows, split.compared)
    split.bound(times)
    ends = until(how, split.parts, times)
    if split.behind and how != INNER:
        why = f" ({split.why})" if split.why else ""
        raise InvalidInputError(
            f"{how} join: {split.written(split.behind[0])} mixes columns of both streams, and only Spark can compute "
            f"it{why}, which a {how} join has to know earlier. Have columns of one stream on each side of a "
            "comparison, as in a.at <= b.at + interval 1 hour; what an inner join gives can be filtered by anything"
        )
    grown = grows(ends)
    if grown is not None:
        _log.warning("%s", grown)
    return times, ends


def _texts(split: SplitCondition[R]) -> dict[str, str]:
    """What is kept of each side for the condition, as Spark writes it: under another one it means nothing."""
    return {
        f"{COUNTS[side]}.{name}": split.sides.text(column, side)
        for side in (LEFT, RIGHT)
        for name, column in split.parts.computed[side].items()
    }


def _with(of: Walked[R], rows: R, found: SideColumns) -> R:
    """``rows`` with what the join compares, which is computed for rows only that can match."""
    if not found.computed:
        return rows
    computed = dict(found.computed)
    if found.decides and len(found.decides) < len(computed):
        rows = of.wider(rows, {name: computed.pop(name) for name in found.decides})
        can_match = reduce(and_, (of.column(rows, name) for name in found.decides))
        computed = {name: F.when(can_match, column) for name, column in computed.items()}
    return of.wider(rows, computed)


def times_of(sides: Sequence[StreamRows], compared: Sequence[set[str]]) -> Times:
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
        left, right = (self._side(ctx, side) for side in (LEFT, RIGHT))
        if ctx.wants_rows(node):
            return ctx.rows_for(spec, ctx.place(left).union(ctx.place(right)), True)
        packed = [ctx.place(s.then(PackStage(spec, hashes=True), spark_schema(PACKED))) for s in (left, right)]
        return produced_by(packed[LEFT].union(packed[RIGHT]), spec)

    def _side(self, ctx: Any, side: int) -> Chain:
        rows = self.plan.side(side, self.times[side])
        return ctx.chain(self.recipes[side]).then(rows, spark_schema(rows.schema))

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


def joined_rows(wiring: JoinWiring, uid: str | None, shown: list[T.StructField]) -> StreamRows:
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
        function=function,
    )
    out = T.StructType(noted_as(spark_schema(function.output_schema).fields, shown))
    full = with_control(out)
    recipe = Recipe(lambda ctx: replace(wiring(ctx, node), schema=full), wiring.recipes, operators=(node,))
    return StreamRows(recipe, lineage.through(node), out)
