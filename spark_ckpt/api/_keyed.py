"""A keyed operator behind a DataFrame: its place in the lineage, its recipe and what comes out. Driver only."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from spark_ckpt.api.dataframe import CkptDataFrame
from spark_ckpt.errors import InvalidInputError, TopologyError
from spark_ckpt.names import checked_name
from spark_ckpt.plan.attributes import by_name
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.event_time import event_time_among, event_times, late_by_window, passed_on
from spark_ckpt.plan.key_columns import Keys
from spark_ckpt.plan.lineage import NEEDS_UID, OperatorNode
from spark_ckpt.plan.wiring import wire_operator
from spark_ckpt.runtime.stateless import spark_schema, with_control
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.aggregates.windowed import WindowedAggregate
from spark_ckpt.state.functions.base import StateFunction
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.state.topn.function import TopN
from spark_ckpt.storage.delta_schema import to_delta_schema
from spark_ckpt.types import KEY_HASH


def keyed(
    parent: CkptDataFrame,
    uid: str | None,
    function: StateFunction,
    columns: list[str],
    keys: Keys,
    output_mode: str | None = None,
    whole_in_complete: bool = False,
    asked: Collection[str] | None = None,
    takes_updates: bool = False,
) -> CkptDataFrame:
    """A keyed operator behind ``parent``: ``function`` gets the keys and these ``columns``. Of several event times that
    among ``asked`` counts. Raises ``InvalidInputError`` for a column named as one of its own."""
    _refuse_own_names(columns)
    node = replace(_node(parent, uid, function, output_mode, whole_in_complete), takes_updates=takes_updates)
    before, time = parent._lineage, _event_time(parent, function, asked)
    late = time or late_by_window(parent.schema)
    lineage = (before if time is not None else before.with_watermarks_told()).through(node)

    out = spark_schema(function.output_schema)
    if function.passes_rows:
        out = passed_on(out, parent.schema)
    elif isinstance(function, WindowedAggregate):
        out = keys.noted(out)
    elif isinstance(function, AggregateFunction):  # which goes by no event time
        out = replace(keys, delays_ms=()).noted(out)

    def make(ctx: Any) -> Chain:
        chain = ctx.chain(parent._recipe) if keys.plain else parent._for_expressions(ctx)
        made = wire_operator(ctx, chain, before, node, keys, function, columns, time, late)
        return replace(made, schema=with_control(out))

    preview = parent._session.preview(with_control(out))
    made = CkptDataFrame(parent._session, Recipe(make, (parent._recipe,), operators=(node,)), lineage, preview)
    return made._with(by_name(parent._attributes, made.columns, _handed_on(parent, function, keys)))


def _refuse_own_names(columns: Collection[str]) -> None:
    """Of what rows are given on their way to an operator."""
    if KEY_HASH in columns:
        raise InvalidInputError(f"a column is named '{KEY_HASH}', as what the operator adds: rename it in front of it")


def _handed_on(parent: CkptDataFrame, function: StateFunction, keys: Keys) -> Iterable[str]:
    """The columns that come out as they are. What a function of the user's gives is new, whatever it is called."""
    if function.passes_rows or isinstance(function, TopN) or getattr(function, "emit", "") == "rows":
        return parent.columns
    return keys.columns if isinstance(function, AggregateFunction | WindowedAggregate) else ()


def _node(
    parent: CkptDataFrame, uid: str | None, function: StateFunction, output_mode: str | None, whole_in_complete: bool
) -> OperatorNode:
    return OperatorNode(
        checked_uid(parent, uid),
        state_layout(function),
        parent._lineage.sources,
        function.timeout,
        function.made_of,
        output_mode,
        function.listens,
        function.families,
        function.kind,
        frozenset(function.begins),
        function.can_complete,
        parent._lineage.operators,
        whole_in_complete,
        function.waits,
    )


def checked_uid(parent: CkptDataFrame, uid: str | None) -> str | None:
    """None: the start derives one."""
    if uid is not None:
        return checked_name("operator uid", uid, TopologyError)
    if parent._session.config().require_uid:
        raise TopologyError(NEEDS_UID)
    return None


def _event_time(parent: CkptDataFrame, function: StateFunction, asked: Collection[str] | None) -> str | None:
    """The column that watermarks are computed of here, and by which rows are late."""
    if function.timeout != "EventTimeTimeout" or function.late_by_key:
        return next((t.name for t in event_times(parent.schema)), None)
    if not parent._lineage.watermarks:
        raise InvalidInputError("EventTimeTimeout needs withWatermark(...) before groupBy, as in Spark")
    behind = asked is not None and not parent._lineage.open_watermarks
    found = event_time_among(parent.schema, function.kind, asked or (), behind)
    if found is None and parent._lineage.open_watermarks and late_by_window(parent.schema) is None:
        raise InvalidInputError(
            "Watermark must be specified in the query using '[Dataset/DataFrame].withWatermark()' for using event-time "
            f"timeout in {function.kind}: expected the event-time column among {parent.columns}, by any name but not "
            "computed anew; keep it up to groupBy, or call withWatermark behind the operation that changes it"
        )
    return None if found is None else found.name


def state_layout(function: StateFunction) -> StateLayout:
    layout = function.layout
    for stored in (layout, *(family.stored for family in function.families.values())):
        to_delta_schema(stored.table_schema)  # raises for what no state table can store, before anything starts
    return layout
