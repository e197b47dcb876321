"""``observe`` of data rows alone, in the tree that the user wrote. Driver; Spark Connect.

Nothing but literals and aggregates may stand in a metric, and the names of columns in aggregates only: there, control
rows are passed over. What cannot be seen to be so, a SQL text or a function that is not known, is refused.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.connect import expressions as E

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._aggregate_kinds import BY_ORDER, KINDS, refuse_by_order
from spark_ckpt.plan.relations._columns import bare, column, is_data
from spark_ckpt.plan.relations._tree import parts_of, rewritten

SparkDF = Any
Expression = Any


def of_data_rows(df: SparkDF, exprs: tuple[Column, ...]) -> list[Column]:
    """``exprs`` of the data rows of ``df``, by Spark's names. Raises as ``plan.observed`` does."""
    names = df.agg(*exprs).columns  # raises as Spark does
    made = [column(rewritten(bare(e._expr), _of_data_rows)) for e in exprs]
    return [c.alias(name) for c, name in zip(made, names, strict=True)]


def _of_data_rows(e: Expression) -> Expression | None:
    if isinstance(e, E.SQLExpression | E.ColumnReference):
        raise InvalidInputError(
            f"observe: on Spark Connect {e} cannot be seen to leave control rows out; write each metric with "
            f"functions of pyspark.sql.functions, of {', '.join(sorted(set(KINDS) - set(BY_ORDER)))}"
        )
    if not isinstance(e, E.UnresolvedFunction) or e._name.lower() not in KINDS:
        return None
    refuse_by_order(e._name.lower())
    # What comes behind the value, such as a percentage, has to stay constant.
    args = [a if i and _constant(a) else _null_in_control_rows(a) for i, a in enumerate(e._args)]
    return E.UnresolvedFunction(e._name, args, e._is_distinct)


def _null_in_control_rows(e: Expression) -> Expression:
    value = F.lit(1) if isinstance(e, E.UnresolvedStar) else column(e)
    return F.when(is_data(), value)._expr


def _constant(e: Expression) -> bool:
    return not any(isinstance(part, E.SQLExpression | E.ColumnReference) for part in parts_of(e))
