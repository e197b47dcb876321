"""Which columns Spark keeps of the left side of a semi join of two streams. Driver; classic Spark.

Spark's optimizer moves a semi join in front of projections, so its state has the columns of another plan than the one
that its user wrote. Ids of attributes stay the same on the way: the optimizer itself is asked, and columns are followed
by their ids.
"""

from __future__ import annotations

from typing import Any

from spark_ckpt.execution.java_classes import attribute_id, seq_items
from spark_ckpt.execution.semi_columns import SemiColumns
from spark_ckpt.plan.analysed._nodes import analysed, is_stream_join, kind_of, output_of, walk

JavaObject = Any


def semi_columns(df: Any) -> SemiColumns | None:
    """Those of the one semi join of two streams in ``df``; None if there are several: which is which is not known."""
    plan = analysed(df)
    written = _semi_joins(plan)
    made = _semi_joins(df._jdf.sparkSession().sessionState().optimizer().execute(plan.clone()))
    if len(written) != 1 or len(made) != 1:
        return None
    kept = {attribute_id(a): str(a.name()) for a in output_of(made[0].left())}
    aliases = _aliases(plan)
    found = {str(a.name()): _kept(attribute_id(a), kept, aliases) for a in output_of(written[0].left())}
    return SemiColumns(list(kept.values()), {name: column for name, column in found.items() if column is not None})


def _semi_joins(plan: JavaObject) -> list[JavaObject]:
    return [n for n in walk(plan) if is_stream_join(n) and str(n.joinType().toString()) == "LeftSemi"]


def _kept(column: int, kept: dict[int, str], aliases: dict[int, int]) -> str | None:
    """Under which name; None if it is not kept, or computed behind the join."""
    while column not in kept and column in aliases:
        column = aliases[column]
    return kept.get(column)


def _aliases(plan: JavaObject) -> dict[int, int]:
    """Of columns that are others under a new name: the ids of both."""
    projected = [e for n in walk(plan) if kind_of(n) == "Project" for e in seq_items(n.projectList())]
    renamed = [e for e in projected if kind_of(e) == "Alias" and kind_of(e.child()) == "AttributeReference"]
    return {attribute_id(e.toAttribute()): attribute_id(e.child()) for e in renamed}
