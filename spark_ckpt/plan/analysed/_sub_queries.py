"""Sub-queries over tables that name columns of a stream's rows: which of them a stream can have. Driver; classic Spark.

Spark writes most of them as joins with the table. Where a table is aggregated by other than equality with columns of
the row, Spark first finds the values of the rows that there are, by an aggregation of the stream.
"""

from __future__ import annotations

from typing import Any

from spark_ckpt.plan._java_classes import CATALYST, java_class, to_seq
from spark_ckpt.plan.analysed._nodes import has_sub_query, kind_of, output_of, relation, walk
from spark_ckpt.plan.analysed._udf_plan import seq_items
from spark_ckpt.plan.spark_errors import unsupported

JavaObject = Any

_RULES = (
    "PullupCorrelatedPredicates",
    "RewritePredicateSubquery",
    "RewriteCorrelatedScalarSubquery",
    "RewriteLateralSubquery",
)


def refuse_aggregated_stream(node: JavaObject) -> None:
    """Raises ``InvalidInputError`` for a sub-query that Spark computes by an aggregation of the stream. Of what is
    below ``node``, only the columns count."""
    if not has_sub_query(node):
        return
    made = node.withNewChildren(to_seq([relation(output_of(child)) for child in seq_items(node.children())]))
    for rule in _RULES:
        made = java_class(f"{CATALYST}.optimizer.{rule}").apply(made)
    if any(kind_of(found) == "Aggregate" and found.isStreaming() for found in walk(made)):
        raise unsupported(
            f"{kind_of(node)}: a sub-query aggregates rows that it finds by other than equality with columns of the "
            "stream, which Spark computes by an aggregation of the stream itself. Join a table that has an array of "
            "the values of each key, (SELECT k, collect_list(v) AS vs FROM t GROUP BY k), and aggregate that: "
            f"array_max(filter(vs, v -> v < o.v)). Spark's plan of it: {node.simpleString(200)}"
        )
