"""Users' functions and processors, as operators run them. Driver; the same for every way to write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from spark_ckpt.plan._processor_variables import variables_of
from spark_ckpt.plan.key_columns import Keys, stored_name
from spark_ckpt.plan.session_confs import pandas_options
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.state.functions.pandas_function import PandasStateFunction
from spark_ckpt.state.processors.function import ProcessorFunction

_ZONE = "spark.sql.session.timeZone"


def with_stored_names(state: T.StructType) -> T.StructType:
    """``state`` of a user's function, by names that its table can have."""
    return T.StructType([T.StructField(stored_name(f.name), f.dataType, f.nullable) for f in state.fields])


def pandas_function(
    spark: Any,
    user: Callable[..., Any],
    keys: Keys,
    inputs: pa.Schema,
    output: T.StructType,
    state: T.StructType,
    timeout: str,
    has_watermark: bool,
) -> PandasStateFunction:
    """``user`` of ``applyInPandasWithState``, which sees the columns ``inputs``."""
    return PandasStateFunction(
        user,
        arrow_schema(keys.schema),
        inputs,
        arrow_schema(output),
        arrow_schema(state),
        output_struct=output.json(),
        state_struct=state.json(),
        timeout=timeout,
        session_timezone=spark.conf.get(_ZONE),
        has_watermark=has_watermark,
        options=pandas_options(spark.conf),
    )


def processor_function(
    spark: Any,
    user: Any,
    keys: Keys,
    inputs: pa.Schema,
    output: T.StructType,
    time_mode: str,
    pandas: bool,
    initial: bool = False,
    output_time: str | None = None,
) -> ProcessorFunction:
    """``user``, a ``StatefulProcessor`` of ``transformWithState``, which sees the columns ``inputs``."""
    return ProcessorFunction(
        user,
        variables_of(user, time_mode, keys.schema.names),
        arrow_schema(keys.schema),
        inputs,
        arrow_schema(output),
        output_struct=output.json(),
        time_mode=time_mode,
        pandas=pandas,
        session_timezone=spark.conf.get(_ZONE),
        options=pandas_options(spark.conf),
        initial=initial,
        output_time=output_time,
    )
