"""``zipWithIndex`` of a checkpointed stream: numbers of a batch's rows. Driver only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.columns import refuse_control, refuse_repeated
from spark_ckpt.runtime.numbered import CarryControlRows, DropControlRowsOff
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.types import CTL, TAG

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

SparkDF = Any
_NUMBER = "__ckpt_index"


class Numbered:
    """What :class:`spark_ckpt.api.dataframe.CkptDataFrame` has of it."""

    def zipWithIndex(self: Any, indexColName: str = "index") -> CkptDataFrame:
        """As PySpark's: the column ``indexColName`` numbers the rows of each batch, from 0, in the order of its tasks.

        Spark counts the rows of all tasks but the last first: what is in front of it, back to the last shuffle, may run
        twice in each batch, as in its own streams. A batch that is run again after a crash is numbered again, and may
        have other numbers. Raises ``InvalidInputError`` where two columns have one name.
        """
        refuse_control([indexColName])
        refuse_repeated([*self.columns, indexColName], self._session.spark)
        parent = self._recipe
        preview = _with_number(self._preview, self._quoted(), F.lit(None).cast("bigint"), indexColName)

        def make(ctx: Any) -> Chain:
            chain = ctx.chain(parent)
            rows = ctx.place(chain.then(CarryControlRows(arrow_schema(chain.schema)), chain.schema))
            # As many rows of the tasks in front are no data rows.
            number = F.when(F.col(CTL).isNull(), F.col(_NUMBER) - F.spark_partition_id())
            numbered = _with_number(rows.zipWithIndex(_NUMBER), self._quoted(), number, indexColName)
            return Chain(numbered, preview.schema, (DropControlRowsOff(),))

        return self._made(Recipe(make, (parent,)), self._lineage, preview)


def _with_number(rows: SparkDF, columns: list[str], number: Any, name: str) -> SparkDF:
    return rows.select(*[F.col(c) for c in columns], number.alias(name), TAG, CTL)
