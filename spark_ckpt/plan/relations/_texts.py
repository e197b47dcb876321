"""Stars inside of functions, ``F.struct("*")``: they stand for the user's columns, and for no control columns. Driver;
Spark Connect."""

from __future__ import annotations

import copy
import re
from functools import partial
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.columns import quoted
from spark_ckpt.execution.spark_errors import unlogged
from spark_ckpt.plan.relations._columns import bare, column, name_parts
from spark_ckpt.plan.relations._sql_texts import read
from spark_ckpt.plan.relations._translation import Rows, Translation
from spark_ckpt.plan.relations._tree import (
    all_parts,
    children_of,
    kind_of,
    known_as,
    rewritten,
    walk,
    with_children,
    with_expressions,
)
from spark_ckpt.plan.relations._window_calls import is_window

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


_ASKED = re.compile(r"\b(?:session_)?window\s*\(|(?<!\bcount)\s*[(,]\s*\*\s*[,)]", re.I)


def with_texts_read(of: Translation, node: Relation) -> Relation:
    """``node``, with trees for such texts in it and below. Raises ``InvalidInputError`` for one that is not read."""

    def put(e: Expression) -> Expression | None:
        if not isinstance(e, E.SQLExpression) or not _ASKED.search(e._expr):
            return None
        found = read(e._expr, _ASKED)
        return None if found is None else rewritten(found, _with_names)

    made = _everywhere(of, node, put)
    left = next((e for each in walk(made) for e in all_parts(each) if _is_asked(e)), None)
    if left is not None:
        raise InvalidInputError(
            f"{left._expr}: over Spark Connect, the client does not read this text of a window or a star; give "
            'it a name, as in F.expr("... AS w"), or write it with pyspark.sql.functions, as in F.window(...)'
        )
    return made


def _is_asked(e: Expression) -> bool:
    return isinstance(e, E.SQLExpression) and _ASKED.search(e._expr) is not None


def _everywhere(of: Translation, node: Relation, put: Any) -> Relation:
    below = with_children(node, [_everywhere(of, child, put) for child in children_of(node)])
    made = with_expressions(below, put)
    return made if made is below or _same(of, made, below) else below


def _with_names(e: Expression) -> Expression | None:
    """In the text of a struct, a window has no name."""
    if not isinstance(e, E.UnresolvedFunction) or e._name != "struct" or not any(map(is_window, e._args)):
        return None
    pairs = [(E.LiteralExpression._from_value(_name_of(a, i)), bare(a)) for i, a in enumerate(e._args, 1)]
    return E.UnresolvedFunction("named_struct", [part for pair in pairs for part in pair])


def _name_of(e: Expression, number: int) -> str:
    if isinstance(e, E.ColumnAlias):
        return str(e._alias[0])
    return name_parts(e._unparsed_identifier)[-1] if isinstance(e, E.ColumnReference) else f"col{number}"


def _same(of: Translation, one: Relation, other: Relation) -> bool:
    try:
        with unlogged():
            same = of.frame(_without_watermarks(one)).sameSemantics(of.frame(_without_watermarks(other)))
            return bool(same) and of.schema(one).names == of.schema(other).names
    except PySparkException:
        return False


def _without_watermarks(node: Relation) -> Relation:
    """No two watermarks are the same to Spark."""
    made = with_children(node, [_without_watermarks(child) for child in children_of(node)])
    return known_as(made._child, node._plan_id) if kind_of(node) == "WithWatermark" else made
