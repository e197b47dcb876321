"""Which column of the rows an expression of the client is. Driver; Spark Connect."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.connect import expressions as E

from spark_ckpt.plan.relations._translation import Rows, Translation
from spark_ckpt.types import CTL

Expression = Any

_A_NAME = re.compile(r"(?:[^\W\d]\w*|`(?:[^`]|``)+`)(?:\.(?:[^\W\d]\w*|`(?:[^`]|``)+`))*")
_PARTS = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_STAR = re.compile(r"\s*(?:(?:\w+|`[^`]+`)\s*\.\s*)*\*.*", re.DOTALL)


def is_control() -> Column:
    return F.col(CTL).isNotNull()


def is_data() -> Column:
    return F.col(CTL).isNull()


def name_parts(text: str) -> list[str]:
    """The names in ``a.`b c`.d``."""
    return [a.replace("``", "`") if a else b for a, b in _PARTS.findall(text)]


def name_of(text: str) -> str | None:
    """What a SQL text names, if it is a name and nothing else."""
    found = text.strip()
    return found if _A_NAME.fullmatch(found) and found.lower() not in ("null", "true", "false") else None


def bare(e: Expression) -> Expression:
    """``e`` without aliases."""
    while isinstance(e, E.ColumnAlias):
        e = e._child
    return e


def identifier_of(e: Expression) -> str | None:
    """The name that ``e`` is, and nothing around it."""
    if isinstance(e, E.ColumnReference):
        return str(e._unparsed_identifier)
    return name_of(e._expr) if isinstance(e, E.SQLExpression) else None


def is_star(e: Expression) -> bool:
    """Whether it stands for several columns of the rows."""
    if isinstance(e, E.SQLExpression):
        return _STAR.fullmatch(e._expr) is not None
    return isinstance(e, E.UnresolvedStar | E.UnresolvedRegex)


OF_ELEMENTS = {f"{name}{outer}" for name in ("explode", "posexplode", "inline") for outer in ("", "_outer")}


def is_generator(e: Expression) -> bool:
    return isinstance(e, E.UnresolvedFunction) and e._name.lower() in {*OF_ELEMENTS, "stack", "json_tuple"}


def is_whole(e: Expression) -> bool:
    """Whether it is a star that stands for all columns."""
    if isinstance(e, E.SQLExpression):
        return bool(e._expr.strip() == "*")
    return isinstance(e, E.UnresolvedStar) and e._unparsed_target is None and e._plan_id is None


def is_text(e: Expression) -> bool:
    """Whether only the server knows what it does: SQL text that is more than a name, or a function by its name."""
    if isinstance(e, E.CallFunction):
        return True
    return isinstance(e, E.SQLExpression) and identifier_of(e) is None and not is_star(e)


def place_of(of: Translation, rows: Rows, e: Expression) -> int | None:
    """The place of the column of ``rows`` that ``e`` is; None if it is none, or if the name does not tell which."""
    return name_among(rows.shown, e, of.case_sensitive)


def name_among(names: Sequence[str], e: Expression, case_sensitive: bool) -> int | None:
    """Which of ``names`` the column ``e`` has, as :func:`place_of`."""
    text = identifier_of(e)
    parts = [] if text is None else name_parts(text)
    if not parts:
        return None
    own = names if case_sensitive else [name.lower() for name in names]
    first, last = (part if case_sensitive else part.lower() for part in (parts[0], parts[-1]))
    if len(parts) > 1 and first in own:
        return None  # a field of it
    return own.index(last) if own.count(last) == 1 else None


def column(e: Expression) -> Column:
    from pyspark.sql.connect.column import Column as ConnectColumn

    return ConnectColumn(e)


_OPERATORS = ("and", "or", "not", "+", "-", "==", "<=>", "<", "<=", ">", ">=")
"""As operators of PySpark's columns make them: ``a != b`` is a ``not``, ``between`` an ``and``."""


def shape(condition: Column) -> tuple[str, list[Column]] | None:
    """The operator at the top, ``and``, ``or``, ``not``, ``+``, ``-`` or a comparison, and its arguments; None if it is
    something else."""
    tree = condition._expr
    if not isinstance(tree, E.UnresolvedFunction) or tree._name not in _OPERATORS:
        return None
    return "=" if tree._name == "==" else tree._name, [column(arg) for arg in tree._args]


def conjuncts(condition: Column) -> list[Column]:
    """What ``condition`` is the AND of, as Spark's optimizer takes it apart: NOT is moved inwards first."""
    op, args = shape(condition) or ("", [])
    if op == "and":
        return [part for arg in args for part in conjuncts(arg)]
    inner, inner_args = (shape(args[0]) if op == "not" else None) or ("", [])
    if inner == "or":
        return [part for arg in inner_args for part in conjuncts(~arg)]
    return conjuncts(inner_args[0]) if inner == "not" else [condition]
