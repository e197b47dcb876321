"""The aliases that classic Spark knows the columns of a DataFrame by. Driver.

Behind a join with a table that is ``t.k`` for ``table.alias("t")``. Where rows come out of Python, as behind an
operator, there are none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_ckpt.plan.attributes import column_ids
from spark_ckpt.plan.columns import OWN, quoted
from spark_ckpt.plan.udf_plan import items_of
from spark_ckpt.types import CONTROL_COLUMNS

SparkDF = Any


@dataclass(frozen=True)
class Qualifiers:
    """``aliases``: the names and places of the columns that each stands in front of; those of ``hiding`` stand in front
    of others, too, which the join hides."""

    aliases: dict[str, tuple[tuple[str, int], ...]]
    hiding: frozenset[str]


def qualifiers(df: SparkDF) -> Qualifiers:
    """Of the user's columns of ``df``, one of classic Spark's."""
    ids, output = column_ids(df), items_of(df._jdf.queryExecution().analyzed().output())
    aliases: dict[str, list[tuple[str, int]]] = {}
    for at, attribute in enumerate(a for a in output if a.name() not in CONTROL_COLUMNS):
        alias = (["", *items_of(attribute.qualifier())])[-1]
        if alias and not alias.startswith(OWN):
            aliases.setdefault(alias, []).append((attribute.name(), at))
    stars = {alias: column_ids(df.select(f"{quoted(alias)}.*")) for alias in aliases}
    hiding = {alias.lower() for alias, star in stars.items() if not set(star) <= set(ids)}
    return Qualifiers({alias: tuple(found) for alias, found in aliases.items()}, frozenset(hiding))
