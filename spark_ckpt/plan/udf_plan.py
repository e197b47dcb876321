"""Replaces the Python functions in an operation's plan by such as never see control rows. Driver; classic Spark.

Spark's analysed plan has every Python function resolved, however it was named: as an object, in a SQL text, registered.
Each is replaced by a copy that gets ``__ckpt_ctl is not null`` as its first argument
(:mod:`spark_ckpt.runtime.udf_rows`). Expressions and plans are rebuilt by Spark's own copying; names stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import types as T

from spark_ckpt.runtime.udf_rows import CHAINED_KINDS, KINDS, PANDAS_KINDS, DataRowsOnly
from spark_ckpt.types import CTL

SparkDF = Any
JavaObject = Any

_CATALYST = "org.apache.spark.sql.catalyst"
_NULL_CHANGES_TYPE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.BooleanType, T.StructType)


def for_data_rows(after: SparkDF, before: SparkDF) -> SparkDF:
    """``after``, which an operation made of ``before``, with its Python functions called for data rows only."""
    if not type(after).__module__.startswith("pyspark.sql.classic"):
        from spark_ckpt.plan._udf_connect import for_data_rows as connect

        return connect(after, before)
    plan = after._jdf.queryExecution().analyzed()
    rewriter = _Rewriter(after.sparkSession, before._jdf.queryExecution().analyzed())
    new = rewriter.plan(plan)
    return after if new is plan else rewriter.frame(new)


class PlanRewriter:
    """Rewrites the nodes of a plan with a ``pattern`` of Spark's.

    ``stop`` is the plan of what the operation began with: below it, everything is as it should be.
    """

    def __init__(self, spark: Any, stop: JavaObject, pattern: str) -> None:
        self._spark, self._stop = spark, stop
        self._gateway = spark.sparkContext._gateway
        self._jvm = spark.sparkContext._jvm
        self._catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._pattern = getattr(self._catalyst.trees.TreePattern, pattern)()

    def node(self, node: JavaObject, flag: JavaObject) -> JavaObject:
        """The node as it should be; ``flag`` is true for control rows."""
        raise NotImplementedError

    def frame(self, plan: JavaObject) -> SparkDF:
        from pyspark.sql.classic.dataframe import DataFrame

        made = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._spark._jsparkSession, plan)
        return DataFrame(made, self._spark)

    def plan(self, node: JavaObject) -> JavaObject:
        if not node.containsPattern(self._pattern) or node.fastEquals(self._stop):
            return node
        children = items_of(node.children())
        done = [self.plan(child) for child in children]
        if any(new is not old for new, old in zip(done, children, strict=True)):
            node = node.withNewChildren(self.seq(done))
        flags = [a for child in done for a in items_of(child.output()) if a.name() == CTL]
        return node if len(flags) != 1 else self.node(node, self._catalyst.expressions.IsNotNull(flags[0]))

    def seq(self, items: Iterable[Any]) -> JavaObject:
        return self._jvm.PythonUtils.toSeq(list(items))


class _Rewriter(PlanRewriter):
    _beside: JavaObject = None
    """What the other side of a join puts out, where no control rows come from."""

    def __init__(self, spark: Any, stop: JavaObject) -> None:
        super().__init__(spark, stop, "PYTHON_UDF")

    def node(self, node: JavaObject, flag: JavaObject) -> JavaObject:
        self._beside = items_of(node.children())[1].outputSet() if node.nodeName() == "Join" else None
        args = items_of(node.productIterator())
        done = [self._arg(arg, flag) for arg in args]
        if all(new is old for new, old in zip(done, args, strict=True)):
            return node
        made = self._gateway.new_array(self._jvm.Object, len(done))
        for i, arg in enumerate(done):
            made[i] = arg
        return node.makeCopy(made)

    def _arg(self, arg: Any, flag: JavaObject) -> Any:
        """An argument of a plan node: an expression, or several."""
        if self._is(arg, f"{_CATALYST}.expressions.Expression"):
            return self._expression(arg, flag)
        if not self._is(arg, "scala.collection.immutable.Seq"):
            return arg
        items = items_of(arg)
        done = [self._arg(item, flag) for item in items]
        return arg if all(new is old for new, old in zip(done, items, strict=True)) else self.seq(done)

    def _expression(self, e: JavaObject, flag: JavaObject) -> JavaObject:
        if not e.containsPattern(self._pattern):
            return e
        if self._is(e, f"{_CATALYST}.expressions.PythonUDF"):
            only_beside = self._beside is not None and e.references().subsetOf(self._beside)
            return e if only_beside else self._function(e, flag)
        return self._with_children(e, flag)

    def _with_children(self, e: JavaObject, flag: JavaObject) -> JavaObject:
        children = items_of(e.children())
        done = [self._expression(child, flag) for child in children]
        same = all(new is old for new, old in zip(done, children, strict=True))
        return e if same else e.withNewChildren(self.seq(done))

    def _function(self, udf: JavaObject, flag: JavaObject) -> JavaObject:
        """``udf`` with one argument more. One that Spark would chain to the function that feeds it still is."""
        kind = udf.evalType()
        if kind not in KINDS:
            return self._with_children(udf, flag)
        inner = udf
        commands = [self._command(udf)]
        while kind in CHAINED_KINDS and (fed_by := self._only_function(inner)) and fed_by.evalType() == kind:
            inner = fed_by
            commands.insert(0, self._command(inner))
        args = [self._expression(child, flag) for child in items_of(inner.children())]
        if kind in PANDAS_KINDS:
            args = [self._not_null(arg, flag) for arg in args]
        func = self._python_function(tuple(commands), udf, [inner.func(), udf.func()])
        return udf.copy(
            udf.name(),
            func,
            udf.dataType(),
            self.seq([flag, *args]),
            kind,
            udf.udfDeterministic(),
            udf.resultId(),
        )

    def _only_function(self, udf: JavaObject) -> JavaObject | None:
        children = items_of(udf.children())
        only = children[0] if len(children) == 1 else None
        return only if self._is(only, f"{_CATALYST}.expressions.PythonUDF") else None

    def _not_null(self, arg: JavaObject, flag: JavaObject) -> JavaObject:
        """pandas has no null among integers: one in a control row would make floats of the data rows."""
        if not isinstance(_data_type(arg), _NULL_CHANGES_TYPE):
            return arg
        if self._is(arg, f"{_CATALYST}.expressions.NamedArgumentExpression"):
            return arg.withNewChildren(self.seq([self._not_null(items_of(arg.children())[0], flag)]))
        default = self._catalyst.expressions.Literal.default(arg.dataType())
        return self._catalyst.expressions.If(flag, default, arg)

    def _python_function(self, commands: tuple[bytes, ...], udf: JavaObject, parts: list[JavaObject]) -> JavaObject:
        return_type = _data_type(udf)
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

    def _is(self, value: Any, java_class: str) -> bool:
        return hasattr(value, "_target_id") and is_instance_of(self._gateway, value, java_class)


def items_of(found: JavaObject) -> list[Any]:
    """The elements of a Scala collection or iterator."""
    iterator, items = found.iterator(), []
    while iterator.hasNext():
        items.append(iterator.next())
    return items


def _data_type(expression: JavaObject) -> T.DataType:
    return T._parse_datatype_json_string(expression.dataType().json())
