"""A user's expression before Spark knows what its names mean: its parts, and the names in it. Driver; Spark Connect."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.plan._names_in_text import with_qualified

_A_NAME = re.compile(r"(?:[^\W\d]\w*|`(?:[^`]|``)+`)(?:\.(?:[^\W\d]\w*|`(?:[^`]|``)+`))*")
_PART = re.compile(r"`(?:[^`]|``)+`|[^.`]+")


@dataclass(frozen=True)
class Name:
    """``text``: as Spark's parser reads it."""

    text: str


Replace = Callable[[Name], Column | None]


def parts_of(name: str) -> list[str]:
    """A name, as Spark's parser reads it, and the fields of structs behind it."""
    return _PART.findall(name)


def name_of(text: str) -> Name | None:
    """What a SQL text names, if it is a name and nothing else."""
    plain = _A_NAME.fullmatch(text.strip()) and text.strip().lower() not in ("null", "true", "false")
    return Name(text.strip()) if plain else None


def replaced(condition: Column, replace: Replace) -> Column:
    """``condition`` with other columns for names, where ``replace`` gives one."""
    from pyspark.sql.connect.column import Column as ConnectColumn

    return ConnectColumn(ConnectTree(replace).expression(condition._expr))


def shape(condition: Column) -> tuple[str, list[Column]] | None:
    """The operator at the top, ``and``, ``or``, ``not``, ``between``, ``+``, ``-`` or a comparison, and its arguments;
    None if it is something else."""
    from pyspark.sql.connect import expressions
    from pyspark.sql.connect.column import Column as ConnectColumn

    from spark_ckpt.plan._sql_apart import taken_apart

    tree = condition._expr
    if isinstance(tree, expressions.SQLExpression):
        op, texts = taken_apart(tree._expr) or ("", [])
        return _shaped(op, [F.expr(text) for text in texts]) if op else None
    if not isinstance(tree, expressions.UnresolvedFunction) or tree._name.lower() not in _OPERATORS:
        return None
    return _shaped(_OPERATORS[tree._name.lower()], [ConnectColumn(arg) for arg in tree._args])


def conjuncts(condition: Column) -> list[Column]:
    """What ``condition`` is the AND of, as Spark's optimizer takes it apart: NOT is moved inwards first."""
    op, args = shape(condition) or ("", [])
    if op == "and":
        return [part for arg in args for part in conjuncts(arg)]
    inner, inner_args = (shape(args[0]) if op == "not" else None) or ("", [])
    if inner == "or":
        return [part for arg in inner_args for part in conjuncts(~arg)]
    return conjuncts(inner_args[0]) if inner == "not" else [condition]


def names_in(condition: Column) -> list[Name] | None:
    """All names in it; None if there may be others, in a SQL text."""
    names: list[Name] = []
    walker = ConnectTree(names.append)
    walker.expression(condition._expr)
    return None if walker.texts else names


def _shaped(op: str, args: list[Column]) -> tuple[str, list[Column]] | None:
    """What is written ``!=`` is not equal."""
    return ("not", [args[0] == args[1]]) if op == "!=" else ("=" if op == "==" else op, args)


_OPERATORS = {
    **{op: op for op in ("and", "or", "not", "between", "+", "-", "=", "<=>", "<", "<=", ">", ">=", "!=")},
    "&&": "and",
    "||": "or",
    "!": "not",
    "==": "=",
}


class ConnectTree:
    def __init__(self, replace: Replace) -> None:
        from pyspark.sql.connect import expressions

        self._replace, self.texts = replace, False
        self._reference, self._text = expressions.ColumnReference, expressions.SQLExpression
        self._expression_class = expressions.Expression

    def expression(self, e: Any) -> Any:
        if isinstance(e, self._text):
            name = name_of(e._expr)
            return self._other_text(e) if name is None else self._named(e, name)
        if isinstance(e, self._reference):
            return e if e._plan_id is not None else self._named(e, Name(e._unparsed_identifier))
        parts = {n: (v, self._value(v)) for n, v in vars(e).items()}
        found = {name: new for name, (old, new) in parts.items() if new is not old}
        if not found:
            return e
        made = copy.copy(e)
        vars(made).update(found)
        return made

    def _value(self, value: Any) -> Any:
        if isinstance(value, self._expression_class):
            return self.expression(value)
        if isinstance(value, list | tuple):
            done = [self._value(item) for item in value]
            return value if all(n is o for n, o in zip(done, value, strict=True)) else type(value)(done)
        return value

    def _other_text(self, e: Any) -> Any:
        """Only Spark knows all names in it: those with an alias in front are found here, too."""
        self.texts = True
        text = with_qualified(e._expr, self._written)
        return e if text == e._expr else type(e)(text)

    def _written(self, name: str) -> str | None:
        column: Any = self._replace(Name(name))
        plain = column is not None and isinstance(column._expr, self._reference)
        return column._expr._unparsed_identifier if plain else None

    def _named(self, e: Any, name: Name) -> Any:
        column: Any = self._replace(name)
        return e if column is None else column._expr
