"""``MapInArrow`` and ``MapInPandas``, and the user's function in a node. Driver; classic Spark."""

from __future__ import annotations

from typing import Any

from pyspark.broadcast import Broadcast
from pyspark.serializers import CPickleSerializer

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._event_time import kept_by_name
from spark_ckpt.plan._java_classes import java_class
from spark_ckpt.plan.analysed._nodes import Rows, kind_of, output_of, schema_of, with_own_names
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.chain import Chain, Recipe, in_python
from spark_ckpt.plan.refused_types import refuse_in_pandas
from spark_ckpt.plan.session_confs import pandas_options
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.runtime.stateless import MapArrow, MapPandas, with_control

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
