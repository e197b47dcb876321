"""Replaces the Python functions in an operation's plan by such as never see control rows. Driver; classic Spark.

Spark's analysed plan has every Python function resolved, however it was named: as an object, in a SQL text, registered.
Each is replaced by a copy that gets ``__ckpt_ctl is not null`` as its first argument
(:mod:`spark_ckpt.runtime.udf_rows`). Expressions and plans are rebuilt by Spark's own copying; names stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import types as T

from spark_ckpt.execution.java_classes import (
    CATALYST,
    OPTION,
    frame_of,
    is_a,
    items_of,
    java_class,
    java_package,
    to_seq,
)
from spark_ckpt.plan.analysed._nodes import analysed, type_of
from spark_ckpt.runtime.udf_rows import CHAINED_KINDS, KINDS, PANDAS_KINDS, DataRowsOnly
from spark_ckpt.types import CTL

SparkDF = Any
JavaObject = Any

EXPRESSION = f"{CATALYST}.expressions.Expression"
_NULL_CHANGES_TYPE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.BooleanType, T.StructType)


def for_data_rows(after: SparkDF, before: SparkDF) -> SparkDF:
    """``after``, which an operation made of ``before``, with its Python functions called for data rows only."""
    return _Rewriter(before).frame(after)


class NodeCopies:
    """Copies of the nodes of Spark's trees with other parts."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._gateway = spark.sparkContext._gateway
        self._jvm = spark.sparkContext._jvm

    def with_children(self, node: JavaObject, change: Callable[[JavaObject], JavaObject]) -> JavaObject:
        """``node``, each of whose children is ``change`` of it."""
        children = items_of(node.children())
        done = [change(child) for child in children]
        return node if _same(done, children) else node.withNewChildren(to_seq(done))

    def with_expressions(self, node: JavaObject, change: Callable[[JavaObject], JavaObject]) -> JavaObject:
        """A node of a plan, each of whose expressions is ``change`` of it."""
        args = items_of(node.productIterator())
        done = [self._argument(arg, change) for arg in args]
        if _same(done, args):
            return node
        made = self._gateway.new_array(self._jvm.Object, len(done))
        for i, arg in enumerate(done):
            made[i] = arg
        return node.makeCopy(made)

    def _argument(self, arg: Any, change: Callable[[JavaObject], JavaObject]) -> Any:
        """An expression, or several."""
        if is_a(arg, EXPRESSION):
            return change(arg)
        if is_a(arg, "scala.Some"):  # the condition of a join
            inner = arg.get()
            new = self._argument(inner, change)
            return arg if new is inner else java_class(OPTION).apply(new)
        if not is_a(arg, "scala.collection.immutable.Seq"):
            return arg
        items = items_of(arg)
        done = [self._argument(item, change) for item in items]
        return arg if _same(done, items) else to_seq(done)


class PlanRewriter(NodeCopies):
    """Rewrites the nodes of a plan with a ``pattern`` of Spark's.

    ``before`` is what the operation began with: below its plan, everything is as it should be.
    """

    def __init__(self, before: SparkDF, pattern: str) -> None:
        super().__init__(before.sparkSession)
        self._stop = analysed(before)
        self._catalyst = java_package(CATALYST)
        self._pattern = getattr(self._catalyst.trees.TreePattern, pattern)()

    def node(self, node: JavaObject, flag: JavaObject) -> JavaObject:
        """The node as it should be; ``flag`` is true for control rows."""
        raise NotImplementedError

    def frame(self, after: SparkDF) -> SparkDF:
        """What the operation made, as it should be."""
        plan = analysed(after)
        new = self.plan(plan)
        return after if new is plan else frame_of(new, self._spark)

    def plan(self, node: JavaObject) -> JavaObject:
        if not node.containsPattern(self._pattern) or node.fastEquals(self._stop):
            return node
        node = self.with_children(node, self.plan)
        flags = [a for child in items_of(node.children()) for a in items_of(child.output()) if a.name() == CTL]
        return node if len(flags) != 1 else self.node(node, self._catalyst.expressions.IsNotNull(flags[0]))


class _Rewriter(PlanRewriter):
    _beside: JavaObject = None
    """What the other side of a join puts out, where no control rows come from."""

    def __init__(self, before: SparkDF) -> None:
        super().__init__(before, "PYTHON_UDF")

    def node(self, node: JavaObject, flag: JavaObject) -> JavaObject:
        self._beside = items_of(node.children())[1].outputSet() if node.nodeName() == "Join" else None
        return self.with_expressions(node, lambda e: self._expression(e, flag))

    def _expression(self, e: JavaObject, flag: JavaObject) -> JavaObject:
        if not e.containsPattern(self._pattern):
            return e
        if is_a(e, f"{CATALYST}.expressions.PythonUDF"):
            only_beside = self._beside is not None and e.references().subsetOf(self._beside)
            return e if only_beside else self._function(e, flag)
        return self.with_children(e, lambda child: self._expression(child, flag))

    def _function(self, udf: JavaObject, flag: JavaObject) -> JavaObject:
        """``udf`` with one argument more. One that Spark would chain to the function that feeds it still is."""
        kind = udf.evalType()
        if kind not in KINDS:
            return self.with_children(udf, lambda child: self._expression(child, flag))
        inner = udf
        commands = [self._command(udf)]
        while kind in CHAINED_KINDS and (fed_by := self._only_function(inner)) and fed_by.evalType() == kind:
            inner = fed_by
            commands.insert(0, self._command(inner))
        args = [self._expression(child, flag) for child in items_of(inner.children())]
        args = [self._for_data_rows(arg, flag) for arg in args]
        if kind in PANDAS_KINDS:
            args = [self._not_null(arg, flag) for arg in args]
        func = self._python_function(tuple(commands), udf, [inner.func(), udf.func()])
        return udf.copy(
            udf.name(),
            func,
            udf.dataType(),
            to_seq([flag, *args]),
            kind,
            udf.udfDeterministic(),
            udf.resultId(),
        )

    def _only_function(self, udf: JavaObject) -> JavaObject | None:
        children = items_of(udf.children())
        only = children[0] if len(children) == 1 else None
        return only if is_a(only, f"{CATALYST}.expressions.PythonUDF") else None

    def _for_data_rows(self, arg: JavaObject, flag: JavaObject) -> JavaObject:
        """Spark computes it for every row, whatever stands around the function: it may fail on nulls."""
        if not items_of(arg.children()) or is_a(arg, f"{CATALYST}.expressions.PythonUDF"):
            return arg
        if is_a(arg, f"{CATALYST}.expressions.NamedArgumentExpression"):
            return arg.withNewChildren(to_seq([self._for_data_rows(items_of(arg.children())[0], flag)]))
        null = self._catalyst.expressions.Literal.create(None, arg.dataType())
        return self._catalyst.expressions.If(flag, null, arg)

    def _not_null(self, arg: JavaObject, flag: JavaObject) -> JavaObject:
        """pandas has no null among integers: one in a control row would make floats of the data rows."""
        if not isinstance(type_of(arg), _NULL_CHANGES_TYPE):
            return arg
        if is_a(arg, f"{CATALYST}.expressions.NamedArgumentExpression"):
            return arg.withNewChildren(to_seq([self._not_null(items_of(arg.children())[0], flag)]))
        default = self._catalyst.expressions.Literal.default(arg.dataType())
        return self._catalyst.expressions.If(flag, default, arg)

    def _python_function(self, commands: tuple[bytes, ...], udf: JavaObject, parts: list[JavaObject]) -> JavaObject:
        return_type = type_of(udf)
        wrapped = DataRowsOnly(commands, udf.evalType(), return_type)
        command = CloudPickleSerializer().dumps((wrapped, return_type))
        func, broadcasts = udf.func(), self._jvm.java.util.ArrayList()
        for part in parts if len(commands) > 1 else parts[:1]:
            broadcasts.addAll(part.broadcastVars())
        return self._jvm.SimplePythonFunction(
            bytearray(command),
            func.envVars(),
            func.pythonIncludes(),
            func.pythonExec(),
            func.pythonVer(),
            broadcasts,
            func.accumulator(),
        )

    def _command(self, udf: JavaObject) -> bytes:
        return bytes(udf.func().command().toArray(self._jvm.scala.reflect.ClassTag.Byte()))


def _same(done: list[Any], before: list[Any]) -> bool:
    return all(new is old for new, old in zip(done, before, strict=True))
