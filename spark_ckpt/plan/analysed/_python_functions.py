"""``MapInArrow`` and ``MapInPandas``, and the user's function in a node. Driver; classic Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.broadcast import Broadcast
from pyspark.serializers import CPickleSerializer
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._event_time import kept_by_name
from spark_ckpt.plan._functions_with_state import (
    pandas_function,
    processor_function,
    with_initial_rows,
    with_stored_names,
)
from spark_ckpt.plan._java_classes import attribute_id, frame_of, java_class
from spark_ckpt.plan._keyed_operator import keyed_rows
from spark_ckpt.plan.analysed._nodes import Rows, kind_of, new_attributes, output_of, schema_of, with_own_names
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed._udf_plan import seq_items
from spark_ckpt.plan.analysed.uids import given_uid
from spark_ckpt.plan.chain import Chain, Recipe, in_python
from spark_ckpt.plan.key_columns import Keys, arrow_columns, check_key_of_function
from spark_ckpt.plan.refused_types import refuse_in_pandas
from spark_ckpt.plan.session_confs import pandas_options
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.runtime.stateless import MapArrow, MapPandas, with_control
from spark_ckpt.state.functions.base import StateFunction
from spark_ckpt.state.processors.declared import INITIAL

JavaObject = Any


def function_of(node: JavaObject) -> Any:
    """A copy of the function that PySpark pickled into ``node``. This process pickled it, so it may read it.

    Raises ``InvalidInputError`` for one so large that PySpark made a broadcast of it.
    """
    command = node.functionExpr().func().command()
    data = bytes(command.toArray(java_class("scala.reflect.ClassTag").Byte()))
    found = CPickleSerializer().loads(data)
    if isinstance(found, Broadcast):
        raise InvalidInputError(
            f"{kind_of(node)}: the function is larger than spark.broadcast.UDFCompressionThreshold; load what it holds "
            "when it is called, or broadcast that by spark.sparkContext.broadcast"
        )
    function, _return_type = found
    return function


def map_rows(of: Translation, node: JavaObject) -> Rows:
    """The function sees data rows only, once for each run of rows of the same epoch."""
    rows = with_own_names(of.rows(node.child()))
    schema, parent = kept_by_name(schema_of(node), rows.schema), rows.recipe
    full = with_control(schema)
    operation = _operation(of, node, rows, full)
    profile = node.profile()
    if node.isBarrier() or profile.isDefined():
        given = profile.get() if profile.isDefined() else None
        made = Recipe(lambda ctx: _apart(ctx, parent, operation, full, bool(node.isBarrier()), given), (parent,))
    else:
        made = Recipe(lambda ctx: ctx.chain(parent).then(operation, full), (parent,))
    return Rows(made, rows.lineage, output_of(node), schema)


def _operation(of: Translation, node: JavaObject, rows: Rows, full: Any) -> Operation:
    function, conf = function_of(node), of.spark.conf
    if kind_of(node) == "MapInArrow":
        return MapArrow(function, full)
    refuse_in_pandas([*rows.schema.fields, *full.fields])
    return MapPandas(function, full, conf.get("spark.sql.session.timeZone"), pandas_options(conf))


def _apart(ctx: Any, parent: Recipe, operation: Operation, full: Any, barrier: bool, profile: JavaObject) -> Chain:
    """A stage that is to run in a way of its own is not one with its neighbours."""
    given = None if profile is None else _profile(profile)
    return Chain(in_python(ctx.frame(parent), (operation,), full, barrier, given), full)


def _profile(profile: JavaObject) -> Any:
    from pyspark.resource import ResourceProfile

    return ResourceProfile(_java_resource_profile=profile)


_TIME_MODES = {"NoTime": "None", "ProcessingTime": "ProcessingTime", "EventTime": "EventTime"}
"""Spark's objects -> what PySpark calls them."""


def function_with_state(of: Translation, node: JavaObject) -> Rows:
    """``applyInPandasWithState``."""
    rows = with_own_names(of.rows(node.child()))
    state = T._parse_datatype_json_string(node.stateType().json())
    assert isinstance(state, T.StructType)
    state = with_stored_names(state)
    keys = _keys(rows, seq_items(node.groupingAttributes()), state.names)
    inputs, watermark = arrow_columns(rows.schema, rows.schema.names), bool(rows.lineage.watermarks)
    function = pandas_function(
        of.spark, function_of(node), keys, inputs, schema_of(node), state, str(node.timeout().toString()), watermark
    )
    return _operator(node, rows, function, keys, given_uid(of, node), rows.schema.names)


def processor(of: Translation, node: JavaObject) -> Rows:
    """``transformWithState`` and ``transformWithStateInPandas``."""
    grouped, count, uid = node.child(), int(node.groupingAttributesLen()), given_uid(of, node)
    rows = with_own_names(of.rows(grouped.child()))  # Spark's projection has the keys once more in front
    columns, keys = rows.schema.names, _keys(rows, list(output_of(grouped))[:count], [])
    pandas, initial = str(node.userFacingDataType().toString()) == "pandas", bool(node.hasInitialState())
    user, mode = _processor_of(node), _TIME_MODES[str(node.timeMode().toString())]
    output_time = next((str(a.name()) for a in output_of(node) if attribute_id(a) in of.output_times), None)
    inputs = arrow_columns(rows.schema, columns)
    function = processor_function(
        of.spark, user, keys, inputs, schema_of(node), mode, pandas, initial=initial, output_time=output_time
    )
    if initial:
        state = frame_of(node.initialState(), of.spark)
        made = with_initial_rows(rows.upstream(), keys, state, int(node.initGroupingAttrsLen()), uid)
        more = new_attributes(T.StructType([made.schema[INITIAL]]))
        rows = Rows(made.recipe, made.lineage, (*rows.attributes, *more), made.schema)
    return _operator(node, rows, function, keys, uid, [*columns, *([INITIAL] if initial else [])])


def output_times(of: Translation, node: JavaObject) -> Rows:
    """``UpdateEventTimeWatermarkColumn``: which column of what a processor puts out is the event time behind it."""
    of.output_times.add(attribute_id(node.eventTime()))
    return replace(of.rows(node.child()), attributes=output_of(node), schema=schema_of(node))


def _processor_of(node: JavaObject) -> Any:
    """PySpark pickles a method of an object that holds the user's processor."""
    return function_of(node).__self__._stateful_processor


def _keys(rows: Rows, grouping: list[JavaObject], state: list[str]) -> Keys:
    """Spark's keys of functions are columns of the rows."""
    fields = [rows.schema.fields[rows.place(key)] for key in grouping]
    for f in fields:
        check_key_of_function(f)
    return Keys.of_columns(fields).named_for(rows.schema.names, state)


def _operator(
    node: JavaObject, rows: Rows, function: StateFunction, keys: Keys, uid: str | None, columns: list[str]
) -> Rows:
    mode = str(node.outputMode().toString()).lower()
    if mode not in ("append", "update"):
        raise InvalidInputError(f"{kind_of(node)}: outputMode must be append or update, found {mode!r}")
    made = keyed_rows(rows.upstream(), uid, function, columns, keys, mode)
    return Rows(made.recipe, made.lineage, output_of(node), made.schema)
