"""What relations say, for the handlers that both translations share. Driver; Spark Connect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.columns import refuse_reserved
from spark_ckpt.operators import batch_groups as groups
from spark_ckpt.operators import functions_with_state as with_state
from spark_ckpt.operators import handlers
from spark_ckpt.operators.batch_groups import PORTIONS, STATIC_FIRST, StreamSide, TableSide, UserFunction
from spark_ckpt.operators.distinct import DISTINCT, DROP_DUPLICATES, WITHIN
from spark_ckpt.operators.functions_with_state import Processor, StateFunction
from spark_ckpt.plan.relations._columns import bare, column, is_data, is_whole, place_of
from spark_ckpt.plan.relations._control_rows import control_last
from spark_ckpt.plan.relations._row_by_row import step, under_names
from spark_ckpt.plan.relations._translation import Rows, Translation
from spark_ckpt.plan.relations._tree import all_parts, kind_of, over
from spark_ckpt.plan.relations._windows import hidden_window
from spark_ckpt.runtime.batch_groups import BY
from spark_ckpt.spark_versions import eval_types
from spark_ckpt.spark_versions.processors import processor_behind
from spark_ckpt.types import TAG

Relation = Any


def union(of: Translation, node: Relation) -> Rows:
    """By position, or by name: Spark puts names in order and types in common, of control columns too."""

    def together(rows: list[Rows], frames: list[Any]) -> Any:
        one, other = (under_names(node, r, frame) for r, frame in zip(rows, frames, strict=True))
        return of.frame(control_last(over(node, one, other=other, is_all=True)))

    made = handlers.union(of, node, (node._child, node.other), together)
    if node.is_all:
        return made
    return handlers.distinct(of, node, made, DISTINCT, range(len(made.shown)))


def deduplicate(of: Translation, node: Relation) -> Rows:
    """``distinct()`` and ``dropDuplicates()`` are one relation."""
    rows = of.rows(node._child)
    method = WITHIN if node.within_watermark else DROP_DUPLICATES
    asked = node.column_names or []
    wanted = {i for i, name in enumerate(rows.shown) if any(of.same_name(name, a) for a in asked)}
    of.schema(node)  # raises as Spark does
    return handlers.distinct(of, node, rows, method, wanted if asked else range(len(rows.shown)))


_INDEX = "distributed_sequence_id"


def sort(of: Translation, node: Relation) -> Rows:
    return handlers.sort(of, node, partial(_sorted, node))


def _sorted(node: Relation, child: Relation) -> Relation:
    together = P.Repartition(child, 1, True) if node.is_global else child
    orders = [column(_of_data_rows(c._expr)) for c in node.columns]
    return over(node, together, is_global=False, columns=[F.col(TAG).asc(), *orders])


def _of_data_rows(e: Any) -> Any:
    if not isinstance(e, E.SortOrder):
        return F.when(is_data(), column(e)).asc()._expr
    return E.SortOrder(F.when(is_data(), column(e._child))._expr, e._ascending, e._nullsFirst)


def limit(of: Translation, node: Relation) -> Rows:
    return handlers.limit(of, node, node.limit)


def sample(of: Translation, node: Relation) -> Rows:
    """Control rows are not drawn."""
    wanted = handlers.drawn(node.with_replacement, node.seed, float(node.lower_bound), float(node.upper_bound))
    rows = of.rows(node._child)
    return replace(step(of, P.Filter(rows.plan, wanted), rows), plan=node)


def has_numbers(node: Relation) -> bool:
    """Whether it numbers rows, as ``zipWithIndex`` does."""
    return any(getattr(e, "_name", None) == _INDEX for e in all_parts(node))


def numbered(of: Translation, node: Relation) -> Rows:
    """The number is the last column."""
    columns = node._columns if kind_of(node) == "Project" else []
    if len(columns) != 2 or not is_whole(columns[0]._expr) or not isinstance(bare(columns[1]._expr), E.Expression):
        raise InvalidInputError(f"{kind_of(node)}: expected the number of a row in a column of its own, zipWithIndex()")
    schema, rows = of.schema(node), of.with_own_names(of.rows(node._child))
    return of.put_out(node, handlers.numbered(rows, schema, len(schema) - 1))


_TIME_MODES = {"none": "None", "processingtime": "ProcessingTime", "eventtime": "EventTime"}
"""What PySpark takes in any letters -> what it calls them."""

_PROCESSORS_OF_FRAMES = (
    eval_types.SQL_TRANSFORM_WITH_STATE_PANDAS_UDF,
    eval_types.SQL_TRANSFORM_WITH_STATE_PANDAS_INIT_STATE_UDF,
)


def function_of(node: Relation) -> Any:
    """The user's function. The client has the object itself."""
    return node._function._function._func


def kind_of_function(node: Relation) -> int:
    """PySpark's number of how it is called."""
    return int(node._function._function._eval_type)


def map_rows(of: Translation, node: Relation) -> Rows:
    is_arrow = kind_of_function(node) == eval_types.SQL_MAP_ARROW_ITER_UDF
    return handlers.map_rows(of, node, function_of(node), is_arrow, bool(node._is_barrier), node._profile)


def function_with_state(of: Translation, node: Relation) -> Rows:
    """``applyInPandasWithState``."""
    rows, text = of.rows(node._child), node._state_schema
    state = T._parse_datatype_json_string(text) if text.lstrip().startswith("{") else T.DataType.fromDDL(text)
    assert isinstance(state, T.StructType)
    asked = StateFunction(function_of(node), state, node._timeout_conf)
    return with_state.function_with_state(of, node, rows, _places(of, node, rows), asked, node._output_mode.lower())


def processor(of: Translation, node: Relation) -> Rows:
    """``transformWithState`` and ``transformWithStateInPandas``."""
    rows, initial = of.rows(node._child), None
    if node._initial_state_plan is not None:
        by, frame = node._initial_state_grouping_cols, of.frame(node._initial_state_plan)
        initial = frame.select(*by, *frame), len(by)
    asked = Processor(
        processor_behind(function_of(node)),
        kind_of_function(node) in _PROCESSORS_OF_FRAMES,
        _TIME_MODES[node._time_mode.lower()],
        node._event_time_col_name or None,
        initial,
    )
    return with_state.processor(of, node, rows, _places(of, node, rows), asked, node._output_mode.lower())


def _places(of: Translation, node: Relation, rows: Rows) -> list[int]:
    """Of the keys, which Spark Connect takes as columns only."""
    of.schema(node)  # raises as Spark does
    places = [place_of(of, rows, key._expr) for key in node._grouping_cols]
    found = [place for place in places if place is not None]
    if len(found) < len(places):
        raise InvalidInputError(f"{kind_of(node)}: expected keys with names of their own; rename those of {rows.shown}")
    return found


_OF_FRAMES = (
    eval_types.SQL_GROUPED_MAP_PANDAS_UDF,
    eval_types.SQL_GROUPED_MAP_PANDAS_ITER_UDF,
    eval_types.SQL_COGROUPED_MAP_PANDAS_UDF,
)


def batch_groups(of: Translation, node: Relation) -> Rows:
    of.schema(node)  # raises as Spark does
    side = _stream_side(of, node._child, node._grouping_cols)
    return groups.batch_groups(of, node, side, _function(node, kind_of_function(node) in PORTIONS, True))


def batch_cogroups(of: Translation, node: Relation) -> Rows:
    if not of.reads_stream(node._child):
        raise InvalidInputError(STATIC_FIRST)
    of.schema(node)  # raises as Spark does
    left = _stream_side(of, node._child, node._input_grouping_cols)
    made = _stream_side if of.reads_stream(node._other) else _table_side
    right = made(of, node._other, node._other_grouping_cols)
    return groups.batch_cogroups(of, node, left, right, _function(node))


def _function(node: Relation, portions: bool = False, large: bool = False) -> UserFunction:
    return UserFunction(function_of(node), kind_of_function(node) in _OF_FRAMES, portions, large)


def _stream_side(of: Translation, child: Relation, keys: Sequence[Any]) -> StreamSide:
    rows, keys = hidden_window(of, of.rows(child), list(keys), f"{BY}window")
    places = [place_of(of, rows, key._expr) for key in keys]
    names = [f"{BY}{i}" if place is None else rows.schema.names[place] for i, place in enumerate(places)]
    computed = {name: column(bare(key._expr)) for name, key, place in zip(names, keys, places) if place is None}
    if computed:
        rows = step(of, P.WithColumns(rows.plan, list(computed), list(computed.values())), rows)
    return StreamSide(rows, names)


def _table_side(of: Translation, child: Relation, keys: Sequence[Any]) -> TableSide:
    frame, names = of.frame(child), [f"{BY}{i}" for i in range(len(keys))]
    refuse_reserved(frame.columns, "the static side")
    computed = dict(zip(names, (column(bare(key._expr)) for key in keys), strict=True))
    return TableSide(frame.withColumns(computed) if computed else frame, names)
