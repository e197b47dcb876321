"""``F.window(...)`` and ``F.session_window(...)`` inside of expressions of ``select`` and ``withColumn``: found, and
columns put for them. Driver; classic and Connect.

A window in a SQL text is one, too, on classic Spark; on Spark Connect the client cannot take the text apart, so
:mod:`spark_ckpt.plan.plan_check` refuses it by what Spark makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.plan.condition import ClassicTree, ConnectTree
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
        return _ClassicWindows(put, type(column), calls).column(column)
    from pyspark.sql.connect.column import Column as ConnectColumn

    walker = _ConnectWindows(put, calls)
    made = walker.expression(column._expr)
    return column if made is column._expr else ConnectColumn(made)


class _ClassicWindows(ClassicTree):
    def __init__(self, put: Put, made: type, calls: Sequence[str]) -> None:
        super().__init__(lambda _: None)
        self._put, self._made, self._calls = put, made, calls

    def _node(self, node: JavaObject) -> JavaObject:
        kind = node.getClass().getSimpleName()
        if kind == "UnresolvedFunction" and node.functionName().lower() in self._calls:
            return self._put(self._made(self._jvm.org.apache.spark.sql.Column(node)))._jc.node()
        if kind == "SqlExpression" and "window" not in node.expression().lower():
            return node
        return super()._node(node)

    def _expression(self, e: JavaObject) -> JavaObject:
        kind = e.getClass().getSimpleName()
        name = ".".join(items_of(e.nameParts())).lower() if kind == "UnresolvedFunction" else ""
        if name not in self._calls:
            return super()._expression(e)
        return self._convert.expression(self._put(self._call(name, items_of(e.arguments())))._jc)

    def _call(self, name: str, arguments: list[JavaObject]) -> Column:
        """A call in a SQL text, as it is written with PySpark's functions."""
        made: Column = F.call_function(name, *[self._argument(argument) for argument in arguments])
        return made

    def _argument(self, e: JavaObject) -> Column:
        text = e.getClass().getSimpleName() == "Literal" and e.dataType().typeName() == "string"
        made: Column = F.lit(str(e.value())) if text else self._made(self._convert.column(e))
        return made


class _ConnectWindows(ConnectTree):
    def __init__(self, put: Put, calls: Sequence[str]) -> None:
        from pyspark.sql.connect.column import Column as ConnectColumn

        super().__init__(lambda _: None)
        self._put, self._made, self._calls = put, ConnectColumn, calls

    def expression(self, e: Any) -> Any:
        from pyspark.sql.connect import expressions

        if isinstance(e, expressions.UnresolvedFunction) and e._name.lower() in self._calls:
            return self._put(self._made(e))._expr
        return super().expression(e)
