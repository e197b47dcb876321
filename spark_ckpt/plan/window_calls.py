"""``F.window(...)`` and ``F.session_window(...)`` inside of expressions of ``select`` and ``withColumn``: found, and
columns put for them. Driver; classic and Connect.

A window in a SQL text is one, too. Classic Spark parses the text; on Spark Connect, whose client has no parser, the
call is cut out of it, and what is around it stays text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.condition import ClassicTree, ConnectTree
from spark_ckpt.plan.java_classes import COLUMN, java_class
from spark_ckpt.plan.sql_aggregates import end_of_call
from spark_ckpt.plan.sql_names import string_of
from spark_ckpt.plan.sql_query import between_commas
from spark_ckpt.plan.sql_tokens import tokens_of
from spark_ckpt.plan.udf_plan import items_of
from spark_ckpt.plan.windows import WINDOWS

JavaObject = Any
Put = Callable[[Column], Column]
"""From the call of a window to the column that has it."""


def may_have_window(column: Any) -> bool:
    """Quickly; ``window_time`` looks like one."""
    return isinstance(column, Column) and "window" in str(column).lower()


def with_columns_for_windows(column: Column, put: Put, calls: Sequence[str] = WINDOWS) -> Column:
    """``column`` with what ``put`` gives for each of these calls in it, of a window or ``window_time``; itself if there
    is none."""
    if type(column).__module__.startswith("pyspark.sql.classic"):
        return _ClassicWindows(put, type(column), calls, "struct(" in str(column)).column(column)
    from pyspark.sql.connect.column import Column as ConnectColumn

    walker = _ConnectWindows(put, calls, "struct(" in str(column))
    made = walker.expression(column._expr)
    return column if made is column._expr else ConnectColumn(made)


class _ClassicWindows(ClassicTree):
    def __init__(self, put: Put, made: type, calls: Sequence[str], fields: bool) -> None:
        super().__init__(lambda _: None)
        self._put, self._made, self._calls, self._fields = put, made, calls, fields

    def _node(self, node: JavaObject) -> JavaObject:
        kind = node.getClass().getSimpleName()
        if kind == "UnresolvedFunction" and node.functionName().lower() in self._calls:
            call = self._made(java_class(COLUMN)(node))
            return _field(self._put(call), node.functionName(), self._fields)._jc.node()
        if kind == "SqlExpression" and "window" not in node.expression().lower():
            return node
        return super()._node(node)

    def _expression(self, e: JavaObject) -> JavaObject:
        kind = e.getClass().getSimpleName()
        name = ".".join(items_of(e.nameParts())).lower() if kind == "UnresolvedFunction" else ""
        if name not in self._calls:
            return super()._expression(e)
        column = self._put(self._call(name, items_of(e.arguments())))
        return self._convert.expression((F.coalesce(column) if self._fields else column)._jc)

    def _call(self, name: str, arguments: list[JavaObject]) -> Column:
        """A call in a SQL text, as it is written with PySpark's functions."""
        made: Column = F.call_function(name, *[self._argument(argument) for argument in arguments])
        return made

    def _argument(self, e: JavaObject) -> Column:
        text = e.getClass().getSimpleName() == "Literal" and e.dataType().typeName() == "string"
        made: Column = F.lit(str(e.value())) if text else self._made(self._convert.column(e))
        return made


class _ConnectWindows(ConnectTree):
    def __init__(self, put: Put, calls: Sequence[str], fields: bool) -> None:
        from pyspark.sql.connect.column import Column as ConnectColumn

        super().__init__(lambda _: None)
        self._put, self._made, self._calls, self._fields = put, ConnectColumn, calls, fields

    def expression(self, e: Any) -> Any:
        from pyspark.sql.connect import expressions

        if isinstance(e, expressions.SQLExpression):
            text = _without_calls(e._expr, self._put, self._calls, self._fields)
            return e if text == e._expr else F.expr(text)._expr
        if isinstance(e, expressions.UnresolvedFunction) and e._name.lower() in self._calls:
            return _field(self._put(self._made(e)), e._name, self._fields)._expr
        return super().expression(e)


def _field(column: Column, call: str, fields: bool) -> Column:
    """In a struct, a window has its function's name. (In the text of one it has none: nothing with a name is there.)"""
    return column.alias(call.lower()) if fields and call.lower() in WINDOWS else column


def _without_calls(text: str, put: Put, calls: Sequence[str], fields: bool) -> str:
    """The text with the names of what is put for calls in it."""
    tokens, found, written = tuple(tokens_of(text)), "", 0
    for at, token in enumerate(tokens[:-1]):
        if token.start < written or not token.word(*calls) or tokens[at + 1].text != "(":
            continue
        end = end_of_call(tokens, at)
        arguments = between_commas(tokens[at + 2 : end - 1])
        column: Any = put(_called(token.text, [text[a[0].start : a[-1].end] for a in arguments]))
        shown = quoted(column._expr._unparsed_identifier)
        shown = f"coalesce({shown})" if fields else shown
        found, written = f"{found}{text[written : token.start]}{shown}", tokens[end - 1].end
    return found + text[written:]


def _called(name: str, texts: list[str]) -> Column:
    arguments = [string if (string := string_of(text)) is not None else F.expr(text) for text in texts]
    made: Column = getattr(F, name.lower())(*arguments)
    return made
