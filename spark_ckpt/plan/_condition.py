"""A user's condition over two DataFrames, before Spark knows what its names mean. Driver; classic and Connect.

A column that was taken from a stream, ``stream["k"]``, is a name, as the stream's plan is built later. Spark's own
would be bound to its DataFrame: so in a join, where the other side may have a ``k`` too, it is bound then.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.plan._java_classes import COLUMN, EXPRESSION_UTILS, OPTION, is_a, java_class, to_seq
from spark_ckpt.plan._names_in_text import with_qualified
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.udf_plan import items_of

JavaObject = Any

_SEQ, _PAIR = "scala.collection.immutable.Seq", "scala.Tuple2"
_SEVERAL = (_SEQ, _PAIR, "scala.Option")
_A_NAME = re.compile(r"(?:[^\W\d]\w*|`(?:[^`]|``)+`)(?:\.(?:[^\W\d]\w*|`(?:[^`]|``)+`))*")
_PART = re.compile(r"`(?:[^`]|``)+`|[^.`]+")
_OF_STREAM = re.compile(r"(`(?:[^`]|``)+`(?:\.`(?:[^`]|``)+`)*) --(\d+)")


@dataclass(frozen=True)
class Name:
    """``text``: as Spark's parser reads it. ``stream``: the number of the stream it was taken from, if it was.
    ``table``: Spark's id of a table's column, if it was taken from one."""

    text: str
    stream: int | None = None
    table: int | None = None


Replace = Callable[[Name], Column | None]


def parts_of(name: str) -> list[str]:
    """A name, as Spark's parser reads it, and the fields of structs behind it."""
    return _PART.findall(name)


def without_stream(text: str) -> str:
    """How a column is printed, without the number of its stream."""
    return _OF_STREAM.sub(r"\1", text)


def _of_stream(text: str) -> Name | None:
    found = _OF_STREAM.fullmatch(text)
    return None if found is None else Name(found[1], int(found[2]))


def name_of(text: str) -> Name | None:
    """What a SQL text on Spark Connect names, if it is a name and nothing else."""
    plain = _A_NAME.fullmatch(text.strip()) and text.strip().lower() not in ("null", "true", "false")
    return Name(text.strip()) if plain else _of_stream(text)


def replaced(condition: Column, replace: Replace, tables: bool = False) -> Column:
    """``condition`` with other columns for names, where ``replace`` gives one; ``tables``: it is asked for columns of
    tables, too, ``table["k"]`` (classic Spark's)."""
    if type(condition).__module__.startswith("pyspark.sql.classic"):
        return ClassicTree(replace, tables).column(condition)
    from pyspark.sql.connect.column import Column as ConnectColumn

    return ConnectColumn(ConnectTree(replace).expression(condition._expr))


def shape(condition: Column) -> tuple[str, list[Column]] | None:
    """The operator at the top, ``and``, ``or``, ``not``, ``between``, ``+``, ``-`` or a comparison, and its arguments;
    None if it is something else."""
    if type(condition).__module__.startswith("pyspark.sql.classic"):
        return ClassicTree(lambda _: None).shape(condition)
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
    """All names in it; None if there may be others, in a SQL text on Spark Connect."""
    names: list[Name] = []
    if type(condition).__module__.startswith("pyspark.sql.classic"):
        ClassicTree(names.append).column(condition)
        return names
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
_EXPRESSIONS = {
    "And": "and",
    "Or": "or",
    "Not": "not",
    "Between": "between",
    "Add": "+",
    "Subtract": "-",
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
"""Spark's classes."""


class ClassicTree:
    """A column is a tree of Spark's column nodes, which are turned into expressions when they meet a plan."""

    def __init__(self, replace: Replace, tables: bool = False) -> None:
        self._replace, self._tables = replace, tables
        self._convert = java_class(EXPRESSION_UTILS)

    def column(self, condition: Any) -> Any:
        old = condition._jc.node()
        new = self._node(old)
        return condition if new is old else type(condition)(java_class(COLUMN)(new))

    def shape(self, condition: Any) -> tuple[str, list[Column]] | None:
        node = condition._jc.node()
        kind, made = node.getClass().getSimpleName(), type(condition)
        if kind == "UnresolvedFunction":
            op = _OPERATORS.get(node.functionName().lower())
            args = [java_class(COLUMN)(arg) for arg in items_of(node.arguments())]
            return None if op is None else _shaped(op, [made(arg) for arg in args])
        if kind not in ("SqlExpression", "ExpressionColumnNode"):
            return None
        tree = self._parsed(node) if kind == "SqlExpression" else node.expression()
        name = tree.getClass().getSimpleName()
        op = _EXPRESSIONS.get(name)
        if name == "UnresolvedFunction":
            op = _OPERATORS.get(".".join(items_of(tree.nameParts())).lower())
        return None if op is None else _shaped(op, [made(self._convert.column(c)) for c in items_of(tree.children())])

    def _node(self, node: JavaObject) -> JavaObject:
        kind = node.getClass().getSimpleName()
        if kind == "SqlExpression":
            found = _of_stream(node.expression())
            return self._text(node) if found is None else self._named(node, found)
        if kind == "UnresolvedAttribute":
            return self._named(node, _name(node))
        if kind == "ExpressionColumnNode":
            return self._of_expression(node, node.expression())
        args = items_of(node.productIterator())
        done = [self._value(arg) for arg in args]
        same = all(new is old for new, old in zip(done, args, strict=True))
        return node if same else node.copy(*done)

    def _text(self, node: JavaObject) -> JavaObject:
        return self._of_expression(node, self._parsed(node))

    def _parsed(self, text: JavaObject) -> JavaObject:
        session = java_class("org.apache.spark.sql.classic.SparkSession").active()
        return session.sessionState().sqlParser().parseExpression(text.expression())

    def _of_expression(self, node: JavaObject, old: JavaObject) -> JavaObject:
        """Python functions are expressions, with nodes within."""
        new = self._expression(old)
        return node if new is old else self._convert.column(new).node()

    def _expression(self, e: JavaObject) -> JavaObject:
        kind = e.getClass().getSimpleName()
        if kind == "ColumnNodeExpression":
            node = e.node()
            new = self._node(node)
            return e if new is node else self._convert.expression(java_class(COLUMN)(new))
        if kind == "UnresolvedAttribute" or (kind == "AttributeReference" and self._tables):
            column: Any = self._replace(_name(e) if kind == "UnresolvedAttribute" else _of_table(e))
            return e if column is None else self._convert.expression(column._jc)
        children = items_of(e.children())
        done = [self._expression(child) for child in children]
        same = all(new is old for new, old in zip(done, children, strict=True))
        return e if same else e.withNewChildren(to_seq(done))

    def _value(self, value: Any) -> Any:
        if is_a(value, "org.apache.spark.sql.internal.ColumnNode"):
            return self._node(value)
        several = next((kind for kind in _SEVERAL if is_a(value, kind)), None)
        if several is None:
            return value
        items = items_of(value.productIterator() if several == _PAIR else value.iterator())
        done = [self._value(item) for item in items]
        if all(new is old for new, old in zip(done, items, strict=True)):
            return value
        if several == _PAIR:
            return java_class("scala.Tuple2")(*done)
        return to_seq(done) if several == _SEQ else java_class(OPTION).apply(done[0])

    def _named(self, node: JavaObject, name: Name) -> JavaObject:
        column: Any = self._replace(name)
        return node if column is None else column._jc.node()


def _name(unresolved: JavaObject) -> Name:
    return Name(".".join(quoted(part) for part in items_of(unresolved.nameParts())))


def _of_table(resolved: JavaObject) -> Name:
    return Name(quoted(resolved.name()), table=int(resolved.exprId().id()))


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
