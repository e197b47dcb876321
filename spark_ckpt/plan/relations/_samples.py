"""``Sample``, and numbers of rows: ``zipWithIndex``. Driver; Spark Connect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.relations._columns import bare, is_data, is_whole
from spark_ckpt.plan.relations._row_by_row import step
from spark_ckpt.plan.relations._translation import Rows, Translation, with_own_names
from spark_ckpt.plan.relations._tree import all_parts, kind_of
from spark_ckpt.runtime.numbered import CarryControlRows, DropControlRowsOff
from spark_ckpt.runtime.stateless import arrow_schema, with_control
from spark_ckpt.types import CONTROL_COLUMNS

Relation = Any

_INDEX = "distributed_sequence_id"
_NUMBER = "__ckpt_index"


def sample(of: Translation, node: Relation) -> Rows:
    """Anew with every batch, as all that is random is in Spark's streams; control rows are not drawn."""
    if node.with_replacement:
        raise InvalidInputError(
            "sample(withReplacement=True) is not there on a checkpointed stream: it draws rows several times, "
            "control rows among them; use sample(fraction)"
        )
    rows, least, most = of.rows(node._child), float(node.lower_bound), float(node.upper_bound)
    # A row has one number: two conditions of rand() would count two.
    drawn = F.exists(F.array(F.rand(node.seed)), lambda x: (x >= F.lit(least)) & (x < F.lit(most)))
    return replace(step(of, P.Filter(rows.plan, drawn), rows), plan=node)


def has_numbers(node: Relation) -> bool:
    """Whether it numbers rows, as ``zipWithIndex`` does."""
    return any(getattr(e, "_name", None) == _INDEX for e in all_parts(node))


def numbered(of: Translation, node: Relation) -> Rows:
    """Spark numbers all rows of a batch, in the order of its tasks; control rows take no number."""
    columns = node._columns if kind_of(node) == "Project" else []
    if len(columns) != 2 or not is_whole(columns[0]._expr) or not isinstance(bare(columns[1]._expr), E.Expression):
        raise InvalidInputError(f"{kind_of(node)}: expected the number of a row in a column of its own, zipWithIndex()")
    schema, given = of.schema(node), of.rows(node._child)
    rows = with_own_names(given)
    parent, full = rows.recipe, with_control(schema)

    def make(ctx: Any) -> Chain:
        chain = ctx.chain(parent)
        carried = ctx.place(chain.then(CarryControlRows(arrow_schema(chain.schema)), chain.schema))
        # As many rows of the tasks in front are no data rows.
        number = F.when(is_data(), F.col(_NUMBER) - F.spark_partition_id()).alias(_NUMBER)
        own = [F.col(quoted(name)) for name in rows.schema.names]
        made = carried.zipWithIndex(_NUMBER).select(*own, number, *CONTROL_COLUMNS).toDF(*full.names)
        return Chain(made, full, (DropControlRowsOff(),))

    return replace(rows, recipe=Recipe(make, (parent,)), plan=node, schema=schema, shown=tuple(schema.names))
