"""``mapInArrow`` and ``mapInPandas`` of a checkpointed stream. Driver only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from spark_ckpt.plan.as_called import as_called
from spark_ckpt.plan.attributes import new
from spark_ckpt.plan.chain import Chain, Recipe, in_python
from spark_ckpt.plan.event_time import kept_by_name
from spark_ckpt.plan.refused_types import refuse_in_pandas
from spark_ckpt.plan.session_confs import pandas_options
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.runtime.stateless import MapArrow, MapPandas, with_control

if TYPE_CHECKING:
    from pyspark.resource import ResourceProfile

    from spark_ckpt.api.dataframe import CkptDataFrame


class PythonFunctions:
    """The methods of a DataFrame that take a user's function of all rows."""

    def mapInArrow(
        self: Any,
        func: Callable[..., Any],
        schema: StructType | str,
        barrier: bool = False,
        profile: ResourceProfile | None = None,
    ) -> CkptDataFrame:
        """As PySpark's: ``func`` maps an iterator of Arrow batches to another one, whose columns are ``schema``.

        It sees data rows only, and is called once for each run of rows of the same epoch; columns go by position.
        ``barrier``, all tasks at the same time, and ``profile``, what they need, are Spark's, in a stage of its own::

            def shout(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    yield pa.record_batch([pc.utf8_upper(batch["customer"])], ["customer"])

            orders.mapInArrow(shout, "customer string")
        """
        _check(self._in_spark().mapInArrow, func, schema)
        out = with_control(kept_by_name(_as_struct(schema), self.schema))
        return _mapped(self, MapArrow(as_called(func, self._session.spark), out), out, barrier, profile)

    def mapInPandas(
        self: Any,
        func: Callable[..., Any],
        schema: StructType | str,
        barrier: bool = False,
        profile: ResourceProfile | None = None,
    ) -> CkptDataFrame:
        """As PySpark's: ``func`` maps an iterator of pandas DataFrames to another one, whose columns are ``schema``.

        It sees data rows only, and is called once for each run of rows of the same epoch. ``barrier`` and ``profile``
        as of :meth:`mapInArrow`. Raises ``InvalidInputError`` for variants.
        """
        _check(self._in_spark().mapInPandas, func, schema)
        refuse_in_pandas([*self.schema.fields, *_as_struct(schema).fields])
        out, conf = with_control(kept_by_name(_as_struct(schema), self.schema)), self._session.spark.conf
        called = as_called(func, self._session.spark)
        operation = MapPandas(called, out, conf.get("spark.sql.session.timeZone"), pandas_options(conf))
        return _mapped(self, operation, out, barrier, profile)

    def _python_operation(self: Any, operation: Operation, out: StructType) -> CkptDataFrame:
        """An operation that stays in Python together with its neighbours (:mod:`spark_ckpt.plan.chain`)."""
        parent = self._recipe
        recipe = Recipe(lambda ctx: ctx.chain(parent).then(operation, out), (parent,))
        return type(self)(self._session, recipe, self._lineage, self._session.preview(out))


def _check(method: Callable[..., Any], func: Any, schema: Any) -> None:
    """Raises as Spark does for what is no function, and for the type of one column."""
    if not callable(func) or not isinstance(_as_struct(schema), StructType):
        method(func, schema)


def _mapped(
    df: Any, operation: Operation, out: StructType, barrier: bool, profile: ResourceProfile | None
) -> CkptDataFrame:
    """A stage that is to run in a way of its own is not one with its neighbours."""
    if not barrier and profile is None:
        made: CkptDataFrame = df._python_operation(operation, out)
        return made._with(new(made.columns))
    parent = df._recipe

    def make(ctx: Any) -> Chain:
        return Chain(in_python(ctx.frame(parent), (operation,), out, barrier, profile), out)

    staged: CkptDataFrame = type(df)(df._session, Recipe(make, (parent,)), df._lineage, df._session.preview(out))
    return staged._with(new(staged.columns))


def _as_struct(schema: Any) -> StructType:
    if isinstance(schema, StructType):
        return schema
    return StructType.fromDDL(schema)
