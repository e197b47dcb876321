"""The aggregate expressions of classic Spark, as Spark analysed them. Driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.java_classes import attribute_id, seq_items, to_seq
from spark_ckpt.operators.aggregate_kinds import KINDS, LISTED, OF_DOUBLES
from spark_ckpt.operators.calls import Call
from spark_ckpt.operators.forms import VALUE, Form, Listing, Order, each_within_structs, names, weighed
from spark_ckpt.plan.analysed._nodes import analysed, column_of, expression_of, kind_of, output_of, type_of
from spark_ckpt.plan.analysed.ledger_of_expressions import Where, kind_of_expression
from spark_ckpt.spark_versions.collected_nulls import collects_nulls

_OF_FIRST = ("Mode", "Median", "Percentile", "PercentileCont", "PercentileDisc", "ApproximatePercentile")
"""Functions whose other arguments are constants."""
SparkDF = Any
JavaObject = Any


class ClassicExpressions:
    """Those of an ``Aggregate`` node over ``df``, whose columns have names of their own. See
    :class:`spark_ckpt.operators.aggregates.Expressions`."""

    def __init__(self, df: SparkDF, grouping: list[JavaObject], results: list[JavaObject]) -> None:
        self.names = [str(e.name()) for e in results]
        self._results, self._grouping = results, grouping
        self._ids = {attribute_id(a): str(a.name()) for a in output_of(analysed(df))}

    def results(self) -> list[JavaObject]:
        return [seq_items(e.children())[0] if kind_of(e) == "Alias" else e for e in self._results]

    def aggregate(self, tree: JavaObject) -> Call | None:
        if kind_of(tree) != "AggregateExpression":
            return None
        function = tree.aggregateFunction()
        name, kind = function.prettyName(), kind_of_expression(kind_of(function))
        if kind.where is Where.REFUSED:
            called = function.name() if kind_of(function) == "PythonUDAF" else name
            raise InvalidInputError(f"the aggregate {called} is not there on a checkpointed stream; {kind.says}")
        options = _options(function)
        arguments, form = self._arguments(name, function)
        if KINDS.get(name) in OF_DOUBLES:
            arguments = [self._uncast(a) for a in arguments]
        only = tree.filter().get() if tree.filter().isDefined() else None
        return Call(name, arguments, options, tree.isDistinct(), only, form)

    def _arguments(self, name: str, function: JavaObject) -> tuple[list[JavaObject], Form | None]:
        """What is read of each row, and how it is kept."""
        kind, children = kind_of(function), seq_items(function.children())
        if name in LISTED:
            return self._listed(function)
        if kind in ("CollectList", "CollectSet") and collects_nulls(function):
            return children, each_within_structs()
        if kind == "Percentile" and not _is_one(function.frequencyExpression()):
            return [children[0], children[2]], weighed()
        if kind in _OF_FIRST:
            return children[:1], None
        return children[:2] if kind == "MaxMinByK" else children, None

    def _listed(self, function: JavaObject) -> tuple[list[JavaObject], Form]:
        """The value and what orders it, and what is made of all of them."""
        child, orders = function.child(), seq_items(function.orderExpressions())
        others = [o.child() for o in orders if not o.child().semanticEquals(child)]
        own = iter(names(len(others)))
        of_value = VALUE if others else ""
        fields = [of_value if o.child().semanticEquals(child) else next(own) for o in orders]
        is_binary = function.dataType().typeName() == "binary"
        delimiter = function.delimiter()
        given = F.lit(b"" if is_binary else "") if delimiter.eval(None) is None else self.column(delimiter)
        listing = Listing(given, is_binary, [_order(*pair) for pair in zip(fields, orders, strict=True)])
        return [child, *others], listing.form

    def key(self, tree: JavaObject) -> int | None:
        return next((i for i, g in enumerate(self._grouping) if g.semanticEquals(tree)), None)

    def column_name(self, tree: JavaObject) -> str | None:
        return self._ids.get(attribute_id(tree)) if kind_of(tree) == "AttributeReference" else None

    def type_of(self, tree: JavaObject) -> T.DataType:
        return type_of(tree)

    def is_constant(self, tree: JavaObject) -> bool:
        return kind_of(tree) == "Literal" and tree.value() is not None

    def same(self, one: JavaObject, other: JavaObject) -> bool:
        return bool(one.semanticEquals(other))

    def column(self, tree: JavaObject) -> Column:
        return column_of(tree)

    def tree(self, column: Column) -> JavaObject:
        return expression_of(column)

    def rebuilt(self, tree: JavaObject, part: Callable[[JavaObject], JavaObject]) -> JavaObject:
        children = seq_items(tree.children())
        parts = [part(c) for c in children]
        if all(new is old for new, old in zip(parts, children, strict=True)):
            return tree
        return tree.withNewChildren(to_seq(parts))

    def reference(self, df: SparkDF, name: str) -> JavaObject:
        return next(a for a in output_of(analysed(df)) if a.name() == name)

    def _uncast(self, tree: JavaObject) -> JavaObject:
        inner = seq_items(tree.children())[0] if kind_of(tree) == "Cast" else tree
        numbers = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType)
        kind = type_of(inner)
        return inner if isinstance(kind, numbers) and self.column_name(inner) else tree


def _options(function: JavaObject) -> dict[str, Any]:
    """What a function is told beside its columns. Raises ``InvalidInputError`` for what is not there on a stream."""
    kind = kind_of(function)
    if kind == "HyperLogLogPlusPlus":
        return {"rsd": function.relativeSD()}
    if kind in ("First", "Last", "AnyValue"):
        return {"ignore_nulls": function.ignoreNulls()}
    if kind == "Median":
        return {"percentage": 0.5}
    if kind == "ApproximatePercentile":
        accuracy = int(function.accuracyExpression().eval(None))
        return {"percentage": _shares(function.percentageExpression()), "accuracy": accuracy}
    if kind in ("Percentile", "PercentileCont", "PercentileDisc"):
        shares = seq_items(function.children())[1]
        return {"percentage": _shares(shares), **({"descending": True} if _descends(kind, function) else {})}
    if kind == "Mode" and function.reverseOpt().isDefined() and not function.reverseOpt().get():
        return {"descending": True}
    return {"k": int(function.children().apply(2).eval(None))} if kind == "MaxMinByK" else {}


def _descends(kind: str, function: JavaObject) -> bool:
    if kind == "PercentileDisc" and function.legacyCalculation():
        raise InvalidInputError(
            "percentile_disc is computed as without spark.sql.legacy.percentileDiscCalculation on a checkpointed "
            "stream: unset it, or ask for percentile"
        )
    return bool(function.reverse())


def _is_one(frequency: JavaObject) -> bool:
    return kind_of(frequency) == "Literal" and frequency.value() is not None and int(frequency.value()) == 1


def _order(name: str, order: JavaObject) -> Order:
    return Order(name, order.direction().sql() == "ASC", order.nullOrdering().sql() == "NULLS FIRST")


def _shares(expression: JavaObject) -> float | list[float]:
    value = expression.eval(None)
    if not hasattr(value, "numElements"):
        return float(value)
    return [float(value.getDouble(i)) for i in range(value.numElements())]
