"""``observe`` of data rows alone, in the tree that the user wrote. Driver; Spark Connect.

Nothing but literals and aggregates may stand in a metric, and the names of columns in aggregates only: there, control
rows are passed over. What cannot be seen to be so, a SQL text or a function that is not known, is refused.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._aggregate_kinds import KINDS
from spark_ckpt.plan._condition import ConnectTree, names_in
from spark_ckpt.plan._observed import BY_ORDER, refuse_by_order
from spark_ckpt.types import CTL

SparkDF = Any


def of_data_rows(df: SparkDF, exprs: tuple[Column, ...]) -> list[Column]:
    """``exprs`` of the data rows of ``df``, by Spark's names. Raises as ``plan.observed`` does."""
    from pyspark.sql.connect.column import Column as ConnectColumn

    names = df.agg(*exprs).columns  # raises as Spark does
    made = [ConnectColumn(_Metric().expression(e._expr)) for e in exprs]
    return [column.alias(name) for column, name in zip(made, names, strict=True)]


class _Metric(ConnectTree):
    def __init__(self) -> None:
        super().__init__(lambda _: None)

    def expression(self, e: Any) -> Any:
        from pyspark.sql.connect import expressions

        if isinstance(e, expressions.ColumnAlias):
            return self.expression(e._child)
        if isinstance(e, expressions.UnresolvedFunction) and e._name.lower() in KINDS:
            return self._of_data_rows(e, expressions)
        if isinstance(e, self._text | self._reference):
            raise InvalidInputError(
                f"observe: on Spark Connect {e} cannot be seen to leave control rows out; write each metric with "
                f"functions of pyspark.sql.functions, of {', '.join(sorted(set(KINDS) - set(BY_ORDER)))}"
            )
        return super().expression(e)

    def _of_data_rows(self, e: Any, expressions: Any) -> Any:
        refuse_by_order(e._name.lower())
        # What comes behind the value, such as a percentage, has to stay constant.
        args = [a if i and _constant(a) else self._null_in_control_rows(a) for i, a in enumerate(e._args)]
        return expressions.UnresolvedFunction(e._name, args, e._is_distinct)

    def _null_in_control_rows(self, e: Any) -> Any:
        from pyspark.sql.connect import expressions
        from pyspark.sql.connect.column import Column as ConnectColumn

        value = F.lit(1) if isinstance(e, expressions.UnresolvedStar) else ConnectColumn(e)
        return F.when(F.col(CTL).isNull(), value)._expr


def _constant(e: Any) -> bool:
    from pyspark.sql.connect.column import Column as ConnectColumn

    return names_in(ConnectColumn(e)) == []
