"""Stars inside of functions, ``F.struct("*")``: they stand for the user's columns, and for no control columns. Driver;
Spark Connect."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P

from spark_ckpt.execution.columns import quoted
from spark_ckpt.plan.relations._columns import column
from spark_ckpt.plan.relations._translation import Rows, Translation
from spark_ckpt.plan.relations._tree import rewritten, with_expressions

Relation = Any
Expression = Any


def without_stars(of: Translation, node: Relation, rows: Rows) -> Relation:
    """``node``, over ``rows``, with columns for stars inside of its functions. Those of a projection stay."""
    return with_expressions(node, partial(_listed, of, rows))


def _listed(of: Translation, rows: Rows, e: Expression) -> Expression | None:
    if not isinstance(e, E.UnresolvedFunction | E.CallFunction) or not any(_is_star(a) for a in e._args):
        return None
    if len(e._args) == 1 and e._name.lower() == "count":  # of rows
        return e
    made = copy.copy(e)
    args = [c for a in e._args for c in (_columns(of, rows, a) if _is_star(a) else [a])]
    made._args = [rewritten(a, partial(_listed, of, rows)) for a in args]
    return made


def _is_star(e: Expression) -> bool:
    return isinstance(e, E.UnresolvedStar)


def _columns(of: Translation, rows: Rows, star: Expression) -> list[Expression]:
    if star._unparsed_target is None:
        return [E.ColumnReference(quoted(name), rows.plan._plan_id) for name in rows.shown]
    names = of.schema(P.Project(rows.plan, [column(star)])).names
    return [E.ColumnReference(star._unparsed_target[:-1] + quoted(name)) for name in names]
