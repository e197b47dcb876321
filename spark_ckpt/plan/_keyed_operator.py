"""A keyed operator behind rows: its place in the lineage, its recipe and what comes out. Driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._event_time import event_time_among, event_times, late_by_window, passed_on
from spark_ckpt.plan._wiring import wire_operator
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.key_columns import Keys
from spark_ckpt.plan.lineage import Lineage, OperatorNode
from spark_ckpt.runtime.stateless import spark_schema, with_control
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.aggregates.windowed import WindowedAggregate
from spark_ckpt.state.functions.base import StateFunction
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.storage.delta_schema import to_delta_schema
from spark_ckpt.types import KEY_HASH


@dataclass(frozen=True)
class Upstream:
    """The rows in front of an operator. ``schema`` is that of the user's columns; ``for_expressions`` gives the chain
    where keys are expressions over them."""

    recipe: Recipe
    lineage: Lineage
    schema: T.StructType
    for_expressions: Callable[[Any], Chain]


@dataclass(frozen=True)
class KeyedRows:
    """What an operator puts out; ``schema`` is without the control columns."""

    recipe: Recipe
    lineage: Lineage
    schema: T.StructType


def keyed_rows(
    upstream: Upstream,
    uid: str | None,
    function: StateFunction,
    columns: list[str],
    keys: Keys,
    output_mode: str | None = None,
    whole_in_complete: bool = False,
    asked: Collection[str] | None = None,
    takes_updates: bool = False,
) -> KeyedRows:
    """``function`` gets the keys and these ``columns``. Of several event times that among ``asked`` counts. Raises
    ``InvalidInputError`` for a column named as one of the operator's own."""
    _refuse_own_names(columns)
    node = replace(_node(upstream.lineage, uid, function, output_mode, whole_in_complete), takes_updates=takes_updates)
    before, time = upstream.lineage, _event_time(upstream, function, asked)
    late = time or late_by_window(upstream.schema)
    lineage = (before if time is not None else before.with_watermarks_told()).through(node)
    out = _noted(function, keys, upstream.schema)

    def make(ctx: Any) -> Chain:
        chain = ctx.chain(upstream.recipe) if keys.plain else upstream.for_expressions(ctx)
        made = wire_operator(ctx, chain, before, node, keys, function, columns, time, late)
        return replace(made, schema=with_control(out))

    return KeyedRows(Recipe(make, (upstream.recipe,), operators=(node,)), lineage, out)


def _noted(function: StateFunction, keys: Keys, before: T.StructType) -> T.StructType:
    """What comes out, with what is noted of its columns."""
    out = spark_schema(function.output_schema)
    if function.passes_rows:
        return passed_on(out, before)
    if isinstance(function, WindowedAggregate):
        return keys.noted(out)
    if isinstance(function, AggregateFunction):  # which goes by no event time
        return replace(keys, delays_ms=()).noted(out)
    return out


def _refuse_own_names(columns: Collection[str]) -> None:
    """Of what rows are given on their way to an operator."""
    if KEY_HASH in columns:
        raise InvalidInputError(f"a column is named '{KEY_HASH}', as what the operator adds: rename it in front of it")


def _node(
    lineage: Lineage, uid: str | None, function: StateFunction, output_mode: str | None, whole_in_complete: bool
) -> OperatorNode:
    return OperatorNode(
        uid,
        state_layout(function),
        lineage.sources,
        function.timeout,
        function.made_of,
        output_mode,
        function.listens,
        function.families,
        function.kind,
        addable(function),
        function.results,
        function.can_complete,
        lineage.operators,
        whole_in_complete,
        function.waits,
        follows_mode=function.late_by_key,
    )


def addable(function: StateFunction) -> dict[str, Collection[str] | None]:
    """By state table of ``function``, its own first: the columns that a query may add to it."""
    begins = {family: function.begins(family) for family in ("", *function.families)}
    return {family: None if known is None else frozenset(known) for family, known in begins.items()}


def uid_of_use(uses: Counter[tuple[str, Any]], uid: str, operator: Any) -> str:
    """What each use of one ``operator`` is called, counted in ``uses``: by its uid, the second one ``totals-2``."""
    uses[uid, operator] += 1
    number = uses[uid, operator]
    return uid if number == 1 else f"{uid}-{number}"


def no_operator(uid: str, found: str) -> InvalidInputError:
    """Of ``uid`` behind ``found``, which keeps no state."""
    return InvalidInputError(
        f"uid({uid!r}): expected a DataFrame that ends with an operator that keeps state, such as "
        f"groupBy(...).agg(...) or dropDuplicates(...), found one that ends with {found}; call uid right behind the "
        "operator"
    )


def _event_time(upstream: Upstream, function: StateFunction, asked: Collection[str] | None) -> str | None:
    """The column that watermarks are computed of here, and by which rows are late."""
    if function.timeout != "EventTimeTimeout" or function.late_by_key:
        return next((t.name for t in event_times(upstream.schema)), None)
    if not upstream.lineage.watermarks:
        raise InvalidInputError("EventTimeTimeout needs withWatermark(...) before groupBy, as in Spark")
    behind = asked is not None and not upstream.lineage.open_watermarks
    found = event_time_among(upstream.schema, function.kind, asked or (), behind)
    if found is None and upstream.lineage.open_watermarks and late_by_window(upstream.schema) is None:
        raise InvalidInputError(
            "Watermark must be specified in the query using '[Dataset/DataFrame].withWatermark()' for using event-time "
            f"timeout in {function.kind}: expected the event-time column among {upstream.schema.names}, by any name "
            "but not computed anew; keep it up to groupBy, or call withWatermark behind the operation that changes it"
        )
    return None if found is None else found.name


def state_layout(function: StateFunction) -> StateLayout:
    layout = function.layout
    for stored in (layout, *(family.stored for family in function.families.values())):
        to_delta_schema(stored.table_schema)  # raises for what no state table can store, before anything starts
    return layout
