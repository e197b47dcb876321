"""A DataFrame with keyed operators that is joined with itself, or stands in a union twice. Driver.

As in Spark, whose plan then has each of its operators twice: for the second use they are built anew, each with state of
its own. What lies in front of the first of them is built once, and both have its rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import count

from spark_ckpt.plan.chain import Recipe
from spark_ckpt.plan.lineage import Lineage, OperatorNode


def again(recipe: Recipe, lineage: Lineage, beside: Lineage) -> tuple[Recipe, Lineage]:
    """``recipe`` and its lineage, without operators that are in the lineage ``beside``, too.

    One with a uid is called by that and a number: ``counts-2``.
    """
    taken = {table for o in (*lineage.operators, *beside.operators) for table in o.given}
    copies: dict[OperatorNode, OperatorNode] = {}
    for operator in lineage.operators:
        if operator in beside.operators:
            copies[operator] = copy = replace(operator, uid=_free(operator, taken))
            taken |= copy.given
    if not copies:
        return recipe, lineage
    own = _made_of(recipe, copies)
    shared = tuple(dict.fromkeys(p for r in own for p in r.parents if p not in own))
    made = Recipe(
        lambda ctx: ctx.again(copies, own).chain(recipe),
        shared,
        also=recipe.numbers(),
        operators=tuple(copies.values()),
    )
    return made, replace(lineage, operators=tuple(copies.get(o, o) for o in lineage.operators))


def _free(operator: OperatorNode, taken: set[str]) -> str | None:
    if operator.uid is None:
        return None
    names = (f"{operator.uid}-{number}" for number in count(2))
    return next(name for name in names if not taken & set(operator.tables(name)))


def _made_of(recipe: Recipe, operators: Collection[OperatorNode]) -> dict[Recipe, None]:
    """What of it has one of ``operators`` in it, in the order of building."""
    found: dict[Recipe, bool] = {}

    def look(at: Recipe) -> bool:
        if at not in found:
            parents = [look(parent) for parent in at.parents]
            found[at] = any(parents) or any(o in operators for o in at.operators)
        return found[at]

    look(recipe)
    return {r: None for r, has in found.items() if has}
