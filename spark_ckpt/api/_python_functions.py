"""``mapInArrow`` and ``mapInPandas`` of a checkpointed stream. Driver only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from spark_ckpt.plan.chain import Recipe
from spark_ckpt.plan.event_time import kept_by_name
from spark_ckpt.plan.refused_types import refuse_in_pandas
from spark_ckpt.plan.session_confs import pandas_options
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.runtime.stateless import MapArrow, MapPandas, with_control

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame


class PythonFunctions:
    """The methods of a DataFrame that take a user's function of all rows."""

    def mapInArrow(self: Any, func: Callable[..., Any], schema: StructType | str) -> CkptDataFrame:
        """As PySpark's: ``func`` maps an iterator of Arrow batches to another one, whose columns are ``schema``.

        It sees data rows only, and is called once for each run of rows of the same epoch; columns go by position::

            def shout(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    yield pa.record_batch([pc.utf8_upper(batch["customer"])], ["customer"])

            orders.mapInArrow(shout, "customer string")
        """
        out = with_control(kept_by_name(_as_struct(schema), self.schema))
        return self._python_operation(MapArrow(func, out), out)

    def mapInPandas(self: Any, func: Callable[..., Any], schema: StructType | str) -> CkptDataFrame:
        """As PySpark's: ``func`` maps an iterator of pandas DataFrames to another one, whose columns are ``schema``.

        It sees data rows only, and is called once for each run of rows of the same epoch. Raises ``InvalidInputError``
        for variants.
        """
        refuse_in_pandas([*self.schema.fields, *_as_struct(schema).fields])
        out, conf = with_control(kept_by_name(_as_struct(schema), self.schema)), self._session.spark.conf
        operation = MapPandas(func, out, conf.get("spark.sql.session.timeZone"), pandas_options(conf))
        return self._python_operation(operation, out)

    def _python_operation(self: Any, operation: Operation, out: StructType) -> CkptDataFrame:
        """An operation that stays in Python together with its neighbours (:mod:`spark_ckpt.plan.chain`)."""
        parent = self._recipe
        recipe = Recipe(lambda ctx: ctx.chain(parent).then(operation, out), (parent,))
        return type(self)(self._session, recipe, self._lineage, self._session.preview(out))


def _as_struct(schema: Any) -> StructType:
    if isinstance(schema, StructType):
        return schema
    return StructType.fromDDL(schema)
