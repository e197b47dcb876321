"""``ApplyInPandasWithState`` and ``TransformWithState``: users' functions with state. Driver; Spark Connect."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as T
from pyspark.util import PythonEvalType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.functions_with_state import pandas_function, processor_function, with_stored_names
from spark_ckpt.plan.key_columns import Keys, arrow_columns
from spark_ckpt.plan.keyed_operator import keyed_rows
from spark_ckpt.plan.relations._columns import place_of
from spark_ckpt.plan.relations._python_functions import function_of
from spark_ckpt.plan.relations._translation import Rows, Translation, rows_of, with_own_names
from spark_ckpt.plan.relations._tree import kind_of
from spark_ckpt.plan.relations.uids import given_uid
from spark_ckpt.state.functions.base import StateFunction

Relation = Any

_TIME_MODES = {"none": "None", "processingtime": "ProcessingTime", "eventtime": "EventTime"}
"""What PySpark takes in any letters -> what it calls them."""


def function_with_state(of: Translation, node: Relation) -> Rows:
    """``applyInPandasWithState``."""
    state = _struct(node._state_schema)
    state = with_stored_names(state)
    rows, keys = _keyed(of, node, state.names)
    inputs, watermark = arrow_columns(rows.schema, rows.schema.names), bool(rows.lineage.watermarks)
    function = pandas_function(
        of.spark, function_of(node), keys, inputs, of.schema(node), state, node._timeout_conf, watermark
    )
    return _operator(of, node, rows, function, keys)


def processor(of: Translation, node: Relation) -> Rows:
    """``transformWithState`` and ``transformWithStateInPandas``."""
    if node._initial_state_plan is not None:
        raise InvalidInputError(f"{kind_of(node)}: initialState is not translated yet")
    rows, keys = _keyed(of, node, [])
    pandas = node._function._function._eval_type == PythonEvalType.SQL_TRANSFORM_WITH_STATE_PANDAS_UDF
    # PySpark keeps the user's processor in the object whose method is the function.
    user, mode = function_of(node).__self__._stateful_processor, _TIME_MODES[node._time_mode.lower()]
    inputs = arrow_columns(rows.schema, rows.schema.names)
    function = processor_function(
        of.spark, user, keys, inputs, of.schema(node), mode, pandas, output_time=node._event_time_col_name or None
    )
    return _operator(of, node, rows, function, keys)


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
    return rows, Keys.of_columns(fields).named_for(rows.schema.names, state)


def _operator(of: Translation, node: Relation, rows: Rows, function: StateFunction, keys: Keys) -> Rows:
    mode = node._output_mode.lower()
    out = keyed_rows(rows.upstream(), given_uid(of, node), function, rows.schema.names, keys, mode)
    return rows_of(out.recipe, out.lineage, node, out.schema)
