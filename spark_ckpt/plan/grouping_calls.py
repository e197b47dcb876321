"""``grouping`` and ``grouping_id`` of ``cube``, ``rollup`` and ``groupingSets``, computed of the set's number. Driver.

The number is one of the operator's keys, so these calls are expressions over a key. Classic and Connect; on Connect a
SQL text with such a call cannot be taken apart and is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.condition import ClassicTree, ConnectTree
from spark_ckpt.plan.java_classes import COLUMN, java_class
from spark_ckpt.plan.key_columns import column_named, written
from spark_ckpt.plan.udf_plan import items_of

JavaObject = Any
_GROUPING = ("grouping", "grouping_id")
AGAIN = 1 << 48
"""What is added to the number of a set that is there already."""


def numbered(keys: Sequence[str], sets: Iterable[Sequence[int]]) -> list[tuple[int, tuple[int, ...]]]:
    """``sets`` of places in ``keys``, which are as they are written, with Spark's number of each: a bit for each key,
    the first one's is the highest, 1 where the set is without it. Keys that are written alike are one."""
    first = [keys.index(key) for key in keys]
    distinct, seen, found = sorted(set(first)), Counter[int](), []
    for places in sets:
        within = {first[place] for place in places}
        number = sum(1 << at for at, key in enumerate(reversed(distinct)) if key not in within)
        found.append((number + seen[number] * AGAIN, tuple(i for i, key in enumerate(first) if key in within)))
        seen[number] += 1
    return found


@dataclass
class SetCalls:
    """``keys`` are the grouping's, as they are written; ``number`` is the column with the set's number."""

    keys: Sequence[str]
    number: str
    sensitive: bool

    def rewritten(self, column: Column) -> Column:
        if type(column).__module__.startswith("pyspark.sql.classic"):
            made: Column = _Classic(self).column(column)
            return made
        from pyspark.sql.connect.column import Column as ConnectColumn

        return ConnectColumn(_Connect(self).expression(column._expr))

    def grouping(self, function: str, arguments: Sequence[Column]) -> Column:
        """Spark's analysis has seen to it that the arguments are keys, all of them for ``grouping_id``."""
        if function == "grouping_id":
            return F.col(self.number).bitwiseAND(F.lit(AGAIN - 1))
        found = column_named(self.keys, written(arguments[0]), self.sensitive) if len(arguments) == 1 else None
        if found is None:
            raise InvalidInputError(f"grouping: expected one of the columns {list(self.keys)}, found {arguments}")
        place = len(self.keys) - 1 - self.keys.index(found)
        return F.shiftright(F.col(self.number), place).bitwiseAND(F.lit(1)).cast("tinyint")


class _Classic(ClassicTree):
    def __init__(self, calls: SetCalls) -> None:
        from pyspark.sql.classic.column import Column as ClassicColumn

        super().__init__(lambda _: None)
        self._calls, self._made = calls, ClassicColumn

    def _node(self, node: JavaObject) -> JavaObject:
        kind = node.getClass().getSimpleName()
        if kind == "SqlExpression" and "grouping" not in node.expression().lower():
            return node
        if kind != "UnresolvedFunction" or node.functionName().lower() not in _GROUPING:
            return super()._node(node)
        arguments = [self._made(java_class(COLUMN)(a)) for a in items_of(node.arguments())]
        made: Any = self._calls.grouping(node.functionName().lower(), arguments)
        return made._jc.node()

    def _expression(self, e: JavaObject) -> JavaObject:
        kind = e.getClass().getSimpleName()
        name = ".".join(items_of(e.nameParts())).lower() if kind == "UnresolvedFunction" else ""
        if name not in _GROUPING:
            return super()._expression(e)
        made: Any = self._calls.grouping(name, [F.expr(a.sql()) for a in items_of(e.arguments())])
        return self._convert.expression(made._jc)


class _Connect(ConnectTree):
    def __init__(self, calls: SetCalls) -> None:
        from pyspark.sql.connect.column import Column as ConnectColumn

        super().__init__(lambda _: None)
        self._calls, self._made = calls, ConnectColumn

    def expression(self, e: Any) -> Any:
        from pyspark.sql.connect import expressions

        if isinstance(e, expressions.SQLExpression) and "grouping" in e._expr.lower():
            raise InvalidInputError(
                f"agg: on Spark Connect the text {e._expr!r} cannot be taken apart for grouping sets; write it with "
                "pyspark.sql.functions, as in F.grouping('a') + 1"
            )
        named = isinstance(e, expressions.UnresolvedFunction | expressions.CallFunction)
        if not named or e._name.lower() not in _GROUPING:
            return super().expression(e)
        made: Any = self._calls.grouping(e._name.lower(), [self._made(a) for a in e._args])
        return made._expr
