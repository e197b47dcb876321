"""``Sort`` and ``Limit``. Driver; Spark Connect."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P

from spark_ckpt.plan._top_rows import first_rows, of_result
from spark_ckpt.plan.analysed.ledger_of_expressions import Leaves
from spark_ckpt.plan.chain import Recipe
from spark_ckpt.plan.lineage import Stays
from spark_ckpt.plan.relations._columns import column, is_data
from spark_ckpt.plan.relations._row_by_row import carried_step
from spark_ckpt.plan.relations._translation import Rows, Translation, with_own_names
from spark_ckpt.plan.relations._tree import over
from spark_ckpt.plan.relations.uids import given_uid
from spark_ckpt.plan.spark_errors import SORTING, unsupported
from spark_ckpt.types import TAG

Relation = Any


def sort(of: Translation, node: Relation) -> Rows:
    """Of a whole result: its rows come into one task, sorted by their epoch first."""
    rows = of.rows(node._child)
    if not rows.lineage.whole_result:
        raise unsupported(f"{SORTING}: behind groupBy(...).agg(...)")
    made = carried_step(of, node, rows, partial(_sorted, node), Stays(Leaves.WHOLE, "it looks at all rows of a result"))
    return replace(made, lineage=replace(made.lineage, is_sorted=True))


def _sorted(node: Relation, child: Relation) -> Relation:
    together = P.Repartition(child, 1, True) if node.is_global else child
    orders = [column(_of_data_rows(c._expr)) for c in node.columns]
    return over(node, together, is_global=False, columns=[F.col(TAG).asc(), *orders])


def _of_data_rows(e: Any) -> Any:
    if not isinstance(e, E.SortOrder):
        return F.when(is_data(), column(e)).asc()._expr
    return E.SortOrder(F.when(is_data(), column(e._child))._expr, e._ascending, e._nullsFirst)


def limit(of: Translation, node: Relation) -> Rows:
    """The number of rows over time, or of each whole result that is sorted."""
    n, rows = node.limit, with_own_names(of.rows(node._child))
    if rows.lineage.is_sorted:
        lineage = replace(rows.lineage, is_limited=True)
        recipe = Recipe(lambda ctx: of_result(ctx, rows.recipe, n), (rows.recipe,))
        return replace(rows, recipe=recipe, lineage=lineage, plan=node)
    made = first_rows(rows.upstream(), n, given_uid(of, node))
    return replace(rows, recipe=made.recipe, lineage=made.lineage, plan=node, schema=made.schema)
