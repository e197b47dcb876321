"""``zipWithIndex``: the rows of each batch get numbers. Driver; classic Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from spark_ckpt.plan.analysed._nodes import Rows, output_of, own_names, schema_of, with_names
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed.ledger_of_expressions import Leaves
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.lineage import Place
from spark_ckpt.runtime.numbered import CarryControlRows, DropControlRowsOff
from spark_ckpt.runtime.stateless import arrow_schema, with_control
from spark_ckpt.types import CTL, TAG

JavaObject = Any

_NUMBER = "__ckpt_index"


def numbered(of: Translation, node: JavaObject) -> Rows:
    """From 0, in the order of the batch's tasks.

    Spark counts the rows of all tasks but the last first: what is in front of it, back to the last shuffle, may run
    twice in each batch, as in its own streams. A batch that is run again after a crash is numbered again, and may have
    other numbers.
    """
    number, *columns = own_names(schema_of(node).names)
    rows = with_names(of.rows(node.child()), columns)
    schema = StructType([StructField(number, schema_of(node)[0].dataType), *rows.schema.fields])
    full, parent = with_control(schema), rows.recipe

    def make(ctx: Any) -> Chain:
        chain = ctx.chain(parent)
        carried = ctx.place(chain.then(CarryControlRows(arrow_schema(chain.schema)), chain.schema))
        # As many rows of the tasks in front are no data rows.
        found = F.when(F.col(CTL).isNull(), F.col(_NUMBER) - F.spark_partition_id())
        listed = [found.alias(number), *(F.col(quoted(c)) for c in columns), TAG, CTL]
        return Chain(carried.zipWithIndex(_NUMBER).select(*listed), full, (DropControlRowsOff(),))

    places = (
        *rows.lineage.places,
        Place("AttachDistributedSequence", "in Spark: it counts the rows of a batch", Leaves.WHOLE),
    )
    return Rows(Recipe(make, (parent,)), replace(rows.lineage, places=places), output_of(node), schema)
