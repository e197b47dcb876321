"""``MapPartitions``: mapInPandas and mapInArrow. Driver; Spark Connect."""

from __future__ import annotations

from typing import Any

from pyspark.util import PythonEvalType

from spark_ckpt.plan._event_time import kept_by_name
from spark_ckpt.plan.chain import Chain, Recipe, in_python
from spark_ckpt.plan.refused_types import refuse_in_pandas
from spark_ckpt.plan.relations._translation import Rows, Translation, rows_of, with_own_names
from spark_ckpt.plan.session_confs import pandas_options
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.runtime.stateless import MapArrow, MapPandas, with_control

Relation = Any


def function_of(node: Relation) -> Any:
    """The user's function. The client has the object itself."""
    return node._function._function._func


def map_rows(of: Translation, node: Relation) -> Rows:
    """The function sees data rows only, once for each run of rows of the same epoch."""
    rows = with_own_names(of.rows(node._child))
    schema, parent = kept_by_name(of.schema(node), rows.schema), rows.recipe
    full = with_control(schema)
    operation, barrier, profile = _operation(of, node, rows, full), bool(node._is_barrier), node._profile
    if barrier or profile is not None:

        def apart(ctx: Any) -> Chain:
            """A stage that is to run in a way of its own is not one with its neighbours."""
            return Chain(in_python(ctx.frame(parent), (operation,), full, barrier, profile), full)

        return rows_of(Recipe(apart, (parent,)), rows.lineage, node, schema)
    made = Recipe(lambda ctx: ctx.chain(parent).then(operation, full), (parent,))
    return rows_of(made, rows.lineage, node, schema)


def _operation(of: Translation, node: Relation, rows: Rows, full: Any) -> Operation:
    function, conf = function_of(node), of.spark.conf
    if node._function._function._eval_type == PythonEvalType.SQL_MAP_ARROW_ITER_UDF:
        return MapArrow(function, full)
    refuse_in_pandas([*rows.schema.fields, *full.fields])
    return MapPandas(function, full, conf.get("spark.sql.session.timeZone"), pandas_options(conf))
