"""Aggregate expressions of ``cube``, ``rollup`` and ``groupingSets``, over rows that are there once a set. Driver.

Outside of aggregates a key is null where its set is without it, as in Spark; inside of them it is what it was. So in
aggregates names of keys become those of the columns that were kept, and ``grouping`` and ``grouping_id`` are computed
of the set's number. Classic and Connect; on Connect a SQL text cannot be taken apart and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._aggregate_kinds import KINDS
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.condition import ClassicTree, ConnectTree, Name, name_of, names_in
from spark_ckpt.plan.key_columns import column_named
from spark_ckpt.plan.udf_plan import items_of

JavaObject = Any
KEPT = "__ckpt_kept_"
_FIELD = re.compile(r"(`(?:[^`]|``)+`|[^.`]+)(\..+)")
"""The name of a column, and those of fields within it."""
_GROUPING = ("grouping", "grouping_id")


@dataclass
class SetCalls:
    """``keys`` are the grouping's columns, ``number`` the one of the set's. ``kept``: which keys aggregates read."""

    keys: Sequence[str]
    number: str
    sensitive: bool
    kept: set[str] = field(default_factory=set)
    _inside: int = 0

    def rewritten(self, column: Column) -> Column:
        if type(column).__module__.startswith("pyspark.sql.classic"):
            made: Column = _Classic(self).column(column)
            return made
        from pyspark.sql.connect.column import Column as ConnectColumn

        return ConnectColumn(_Connect(self).expression(column._expr))

    def in_aggregate(self, make: Callable[[], Any]) -> Any:
        self._inside += 1
        try:
            return make()
        finally:
            self._inside -= 1

    def named(self, name: Name) -> Column | None:
        key, fields = column_named(self.keys, name.text, self.sensitive), ""
        if key is None and (field := _FIELD.fullmatch(name.text)):
            key, fields = column_named(self.keys, field[1], self.sensitive), field[2]
        if key is None or not self._inside:
            return None
        self.kept.add(key)
        return F.col(f"{quoted(f'{KEPT}{key}')}{fields}")

    def grouping(self, function: str, names: Sequence[Name]) -> Column:
        """Spark's analysis has seen to it that the names are keys, all of them for ``grouping_id``."""
        if function == "grouping_id":
            return F.col(self.number)
        key = column_named(self.keys, names[0].text, self.sensitive) if len(names) == 1 else None
        if key is None:
            raise InvalidInputError(
                f"grouping: expected one of the columns {list(self.keys)}, found another expression"
            )
        place = len(self.keys) - 1 - list(self.keys).index(key)
        return F.shiftright(F.col(self.number), place).bitwiseAND(F.lit(1)).cast("tinyint")


class _Classic(ClassicTree):
    def __init__(self, calls: SetCalls) -> None:
        from pyspark.sql.classic.column import Column as ClassicColumn

        super().__init__(calls.named)
        self._calls, self._made = calls, ClassicColumn

    def _node(self, node: JavaObject) -> JavaObject:
        if node.getClass().getSimpleName() != "UnresolvedFunction":
            return super()._node(node)
        name = node.functionName().lower()
        if name in _GROUPING:
            columns = [self._made(self._jvm.org.apache.spark.sql.Column(a)) for a in items_of(node.arguments())]
            return self._grouping(name, columns)._jc.node()
        below = super()._node
        return self._calls.in_aggregate(lambda: below(node)) if name in KINDS else below(node)

    def _expression(self, e: JavaObject) -> JavaObject:
        if e.getClass().getSimpleName() != "UnresolvedFunction":
            return super()._expression(e)
        name, below = ".".join(items_of(e.nameParts())).lower(), super()._expression
        if name in _GROUPING:
            columns = [self._made(self._convert.column(a)) for a in items_of(e.arguments())]
            return self._convert.expression(self._grouping(name, columns)._jc)
        return self._calls.in_aggregate(lambda: below(e)) if name in KINDS else below(e)

    def _grouping(self, name: str, columns: list[Column]) -> Any:
        return self._calls.grouping(name, [n for c in columns for n in names_in(c) or []])


class _Connect(ConnectTree):
    def __init__(self, calls: SetCalls) -> None:
        super().__init__(calls.named)
        self._calls = calls

    def expression(self, e: Any) -> Any:
        from pyspark.sql.connect import expressions

        if isinstance(e, expressions.SQLExpression) and name_of(e._expr) is None:
            raise InvalidInputError(
                f"agg: on Spark Connect the text {e._expr!r} cannot be taken apart for grouping sets; write it with "
                "pyspark.sql.functions, as in F.sum('a') / F.count('*')"
            )
        if not isinstance(e, expressions.UnresolvedFunction | expressions.CallFunction):
            return super().expression(e)
        name, below = e._name.lower(), super().expression
        if name in _GROUPING:
            return self._calls.grouping(name, [Name(a._unparsed_identifier) for a in e._args])._expr
        return self._calls.in_aggregate(lambda: below(e)) if name in KINDS else below(e)
