"""What classic Spark knows the columns of a DataFrame by, besides their names: ids and aliases. Driver.

Behind a join with a table that is ``table["k"]``, and ``t.k`` for ``table.alias("t")``. Where rows come out of Python,
as behind an operator, there are neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.udf_plan import items_of
from spark_ckpt.types import CONTROL_COLUMNS

SparkDF = Any
_OWN = "__ckpt_"


@dataclass(frozen=True)
class Qualifiers:
    """``ids`` of the columns; ``aliases``: the names and places of the columns that each stands in front of; those of
    ``hiding`` stand in front of others, too, which the join hides."""

    ids: list[int]
    aliases: dict[str, tuple[tuple[str, int], ...]]
    hiding: frozenset[str]


def qualifiers(df: SparkDF) -> Qualifiers:
    """Of the user's columns of ``df``, one of classic Spark's."""
    ids: list[int] = []
    aliases: dict[str, list[tuple[str, int]]] = {}
    for at, attribute in enumerate(_output(df)):
        ids.append(_id(attribute))
        alias = (["", *items_of(attribute.qualifier())])[-1]
        if alias and not alias.startswith(_OWN):
            aliases.setdefault(alias, []).append((attribute.name(), at))
    stars = {alias: _output(df.select(f"{quoted(alias)}.*")) for alias in aliases}
    hiding = {alias.lower() for alias, star in stars.items() if not {_id(a) for a in star} <= set(ids)}
    return Qualifiers(ids, {alias: tuple(found) for alias, found in aliases.items()}, frozenset(hiding))


def ids_of(df: SparkDF) -> set[int]:
    """Those of its columns."""
    return set(map(_id, _output(df)))


def _output(df: SparkDF) -> list[Any]:
    output = items_of(df._jdf.queryExecution().analyzed().output())
    return [attribute for attribute in output if attribute.name() not in CONTROL_COLUMNS]


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())
