"""What a projection or filter of a table becomes in Arrow, by the DataFrames in front of it and behind it."""

from __future__ import annotations

from typing import Any

from spark_ckpt.execution.java_classes import attribute_id, seq_items
from spark_ckpt.execution.lineage import Stays
from spark_ckpt.plan.analysed._in_arrow import RowColumns, StaysError, Trees
from spark_ckpt.runtime.expressions import Compute, Keep


def in_arrow(before: Any, after: Any) -> tuple[Keep | Compute, ...] | Stays:
    """What makes the rows of ``after`` of those of ``before``: projections and filters."""
    stop, node = before._jdf.queryExecution().analyzed(), after._jdf.queryExecution().analyzed()
    nodes = []
    while not node.fastEquals(stop):
        nodes.append(node)
        node = node.child()
    columns = RowColumns([attribute_id(a) for a in seq_items(stop.output())], [f.dataType for f in before.schema])
    made: list[Keep | Compute] = []
    try:
        for node in reversed(nodes):
            trees = Trees(columns, before.sparkSession)
            if node.nodeName() == "Filter":
                made.append(Keep(trees.tree(node.condition())))
            elif node.nodeName() == "Project":
                found = seq_items(node.projectList())
                computed = [(str(e.name()), trees.tree(e)) for e in found]
                made.append(Compute(computed))
                columns = RowColumns([attribute_id(e) for e in found], [tree.type for _, tree in computed])
    except StaysError as e:
        return e.stays()
    return tuple(made)
