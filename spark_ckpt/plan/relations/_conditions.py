"""Conditions of filters and joins, taken apart before Spark knows what their names mean. Driver; Spark Connect."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.connect import expressions as E

from spark_ckpt.plan.relations._columns import column
from spark_ckpt.plan.relations._sql_texts import taken_apart

_OPERATORS = {
    **{op: op for op in ("and", "or", "not", "between", "+", "-", "=", "<=>", "<", "<=", ">", ">=", "!=")},
    "&&": "and",
    "||": "or",
    "!": "not",
    "==": "=",
}


def shape(condition: Column) -> tuple[str, list[Column]] | None:
    """The operator at the top, ``and``, ``or``, ``not``, ``between``, ``+``, ``-`` or a comparison, and its arguments;
    None if it is something else."""
    tree = condition._expr
    if isinstance(tree, E.SQLExpression):
        op, texts = taken_apart(tree._expr) or ("", [])
        return _shaped(op, [F.expr(text) for text in texts]) if op in _OPERATORS else None
    if not isinstance(tree, E.UnresolvedFunction) or tree._name.lower() not in _OPERATORS:
        return None
    return _shaped(_OPERATORS[tree._name.lower()], [column(arg) for arg in tree._args])


def conjuncts(condition: Column) -> list[Column]:
    """What ``condition`` is the AND of, as Spark's optimizer takes it apart: NOT is moved inwards first."""
    op, args = shape(condition) or ("", [])
    if op == "and":
        return [part for arg in args for part in conjuncts(arg)]
    inner, inner_args = (shape(args[0]) if op == "not" else None) or ("", [])
    if inner == "or":
        return [part for arg in inner_args for part in conjuncts(~arg)]
    return conjuncts(inner_args[0]) if inner == "not" else [condition]


def _shaped(op: str, args: list[Column]) -> tuple[str, list[Column]]:
    """What is written ``!=`` is not equal."""
    return ("not", [args[0] == args[1]]) if op == "!=" else (op, args)
