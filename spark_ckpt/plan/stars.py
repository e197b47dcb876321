"""``F.to_json(F.struct("*"))``: a star means the user's columns, also inside a function. Driver; classic and Connect.

Spark would take in the control columns. A star in a SQL text on Spark Connect is left as it is: the client cannot take
the text apart, so :mod:`spark_ckpt.plan.plan_check` refuses it by what Spark makes of it.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import Column

from spark_ckpt.plan.attributes import known
from spark_ckpt.plan.columns import everything
from spark_ckpt.plan.condition import ClassicTree, ConnectTree, starred_stream, stream_column
from spark_ckpt.plan.udf_plan import items_of

JavaObject = Any
_STAR = "UnresolvedStar"
_STAR_COLUMN = re.compile(r"Column<'(?:\*|(.+\.\*)\.\*|unresolvedstar\((.*)\))'>")
"""``F.col("*")`` and ``F.col("x.*")``, as they are printed on classic Spark and Connect."""
_COUNT = "count"
"""``count(*)`` counts rows and looks at no column."""


def may_have_star(column: Any) -> bool:
    """Quickly; a product looks like one."""
    return "*" in str(column) or "star" in str(column)


def with_stars(columns: list[Any], stream: int) -> list[Any]:
    """With the columns that ``other["*"]`` stands for; ``stream`` is the number of the one that is asked for them."""
    return [one for column in columns for one in _of_star(column, stream)]


def _of_star(column: Any, stream: int) -> list[Any]:
    star = starred_stream(column) if isinstance(column, Column) else None
    if star is None:
        found = _STAR_COLUMN.fullmatch(str(column)) if isinstance(column, Column) else None
        return [column if found is None else found[1] or found[2] or "*"]
    those = None if star == stream else known(star)
    return ["*"] if those is None else [stream_column(name, star, those.names) for name in those.names]


def without_control(column: Any) -> Any:
    """``column`` with stars that leave the control columns out."""
    if not (isinstance(column, Column) and may_have_star(column)):
        return column
    if type(column).__module__.startswith("pyspark.sql.classic"):
        return _ClassicStars(lambda _: None).column(column)
    from pyspark.sql.connect.column import Column as ConnectColumn

    return ConnectColumn(_ConnectStars(lambda _: None).expression(column._expr))


class _ClassicStars(ClassicTree):
    def _node(self, node: JavaObject) -> JavaObject:
        kind = node.getClass().getSimpleName()
        if kind == _STAR and node.unparsedTarget().isEmpty():
            return everything()._jc.node()
        if kind == "UnresolvedFunction" and node.functionName().lower() == _COUNT and not node.isDistinct():
            return node
        if kind == "SqlExpression" and "*" not in node.expression():
            return node
        return super()._node(node)

    def _expression(self, e: JavaObject) -> JavaObject:
        kind = e.getClass().getSimpleName()
        if kind == _STAR and e.target().isEmpty():
            return self._convert.expression(everything()._jc)
        counts = kind == "UnresolvedFunction" and [p.lower() for p in items_of(e.nameParts())] == [_COUNT]
        if counts and not e.isDistinct():
            return e
        return super()._expression(e)


class _ConnectStars(ConnectTree):
    def expression(self, e: Any) -> Any:
        from pyspark.sql.connect import expressions

        if isinstance(e, expressions.UnresolvedStar) and e._unparsed_target is None and e._plan_id is None:
            return everything()._expr
        if isinstance(e, expressions.UnresolvedFunction) and e._name.lower() == _COUNT and not e._is_distinct:
            return e
        return super().expression(e)
