"""``ApplyInPandasWithState`` and ``TransformWithState``: users' functions with state. Driver; Spark Connect."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as T
from pyspark.util import PythonEvalType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._functions_with_state import (
    pandas_function,
    processor_function,
    with_initial_rows,
    with_stored_names,
)
from spark_ckpt.plan._keyed_operator import Upstream, keyed_rows
from spark_ckpt.plan.key_columns import Keys, arrow_columns, check_key_of_function
from spark_ckpt.plan.relations._columns import place_of
from spark_ckpt.plan.relations._python_functions import function_of
from spark_ckpt.plan.relations._translation import Rows, Translation, rows_of, with_own_names
from spark_ckpt.plan.relations._tree import kind_of
from spark_ckpt.plan.relations.uids import given_uid
from spark_ckpt.state.functions.base import StateFunction
from spark_ckpt.state.processors.declared import INITIAL

Relation = Any

_TIME_MODES = {"none": "None", "processingtime": "ProcessingTime", "eventtime": "EventTime"}
"""What PySpark takes in any letters -> what it calls them."""

_OF_FRAMES = (
    PythonEvalType.SQL_TRANSFORM_WITH_STATE_PANDAS_UDF,
    PythonEvalType.SQL_TRANSFORM_WITH_STATE_PANDAS_INIT_STATE_UDF,
)


def function_with_state(of: Translation, node: Relation) -> Rows:
    """``applyInPandasWithState``."""
    state = _struct(node._state_schema)
    state = with_stored_names(state)
    rows, keys = _keyed(of, node, state.names)
    inputs, watermark = arrow_columns(rows.schema, rows.schema.names), bool(rows.lineage.watermarks)
    function = pandas_function(
        of.spark, function_of(node), keys, inputs, of.schema(node), state, node._timeout_conf, watermark
    )
    return _operator(node, rows.upstream(), function, keys, given_uid(of, node), rows.schema.names)


def processor(of: Translation, node: Relation) -> Rows:
    """``transformWithState`` and ``transformWithStateInPandas``."""
    initial = node._initial_state_plan is not None
    rows, keys = _keyed(of, node, [])
    pandas = node._function._function._eval_type in _OF_FRAMES
    # PySpark keeps the user's processor in the object whose method is the function.
    user, mode = function_of(node).__self__._stateful_processor, _TIME_MODES[node._time_mode.lower()]
    inputs = arrow_columns(rows.schema, rows.schema.names)
    time = node._event_time_col_name or None
    function = processor_function(
        of.spark, user, keys, inputs, of.schema(node), mode, pandas, initial=initial, output_time=time
    )
    uid, upstream = given_uid(of, node), rows.upstream()
    if not initial:
        return _operator(node, upstream, function, keys, uid, rows.schema.names)
    by, frame = node._initial_state_grouping_cols, of.frame(node._initial_state_plan)
    together = with_initial_rows(upstream, keys, frame.select(*by, *frame), len(by), uid)
    upstream = Upstream(together.recipe, together.lineage, together.schema, lambda ctx: ctx.chain(together.recipe))
    return _operator(node, upstream, function, keys, uid, [*rows.schema.names, INITIAL])


def _struct(text: str) -> T.StructType:
    found = T._parse_datatype_json_string(text) if text.lstrip().startswith("{") else T.DataType.fromDDL(text)
    assert isinstance(found, T.StructType)
    return found


def _keyed(of: Translation, node: Relation, state: list[str]) -> tuple[Rows, Keys]:
    """The rows and their keys, which Spark Connect takes as columns only. ``state``: names in the function's state."""
    of.schema(node)  # raises as Spark does
    rows = of.rows(node._child)
    places = [place_of(of, rows, key._expr) for key in node._grouping_cols]
    if None in places:
        raise InvalidInputError(f"{kind_of(node)}: expected keys with names of their own; rename those of {rows.shown}")
    rows = with_own_names(rows)
    fields = [rows.schema.fields[place] for place in places if place is not None]
    for f in fields:
        check_key_of_function(f)
    return rows, Keys.of_columns(fields).named_for(rows.schema.names, state)


def _operator(
    node: Relation, rows: Upstream, function: StateFunction, keys: Keys, uid: str | None, columns: list[str]
) -> Rows:
    out = keyed_rows(rows, uid, function, columns, keys, node._output_mode.lower())
    return rows_of(out.recipe, out.lineage, node, out.schema)
