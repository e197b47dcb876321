"""Replaces the Python functions in an operation's plan by such as never see control rows. Driver; Spark Connect.

A plan of the client is a tree of Python objects with the user's functions in it. What the server knows by a name only
(SQL texts, ``call_udf``) is not in there; :mod:`spark_ckpt.plan.relations._text_check` tries that.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.plan.spark_errors import unlogged
from spark_ckpt.runtime.udf_rows import KINDS, PANDAS_KINDS, DataRowsOnly
from spark_ckpt.types import CTL

SparkDF = Any


def for_data_rows(after: SparkDF, before: SparkDF) -> SparkDF:
    """As :func:`spark_ckpt.plan.analysed._udf_plan.for_data_rows`."""
    from pyspark.sql.connect.dataframe import DataFrame

    plan = _Rewriter(after.sparkSession, before._plan).plan(after._plan)
    return after if plan is after._plan else DataFrame(plan, after.sparkSession)


class PlanRewriter:
    """Rewrites expressions. ``stop`` is the plan of what the operation began with: only what stands above it has
    control rows.
    """

    def __init__(self, session: Any, stop: Any) -> None:
        from pyspark.sql.connect import expressions, plan
        from pyspark.sql.connect.column import Column

        self._session, self._stop = session, stop
        self._plan_class, self._project = plan.LogicalPlan, plan.Project
        self._expression_class, self._column = expressions.Expression, Column
        self._alias = expressions.ColumnAlias
        self._beside: Any = None

    def expression(self, e: Any, child: Any) -> Any:
        """What is to stand for ``e``, of the rows of the plan ``child``: the very same, or another one."""
        raise NotImplementedError

    def plan(self, node: Any) -> Any:
        if node is self._stop or not self._stands_above(node):
            return node
        self._beside = getattr(node, "right", None) if type(node).__name__ == "Join" else None
        made = self._rebuilt(node, lambda e: self.expression(e, node._child))
        is_project = isinstance(node, self._project) and made is not node and made._columns is not node._columns
        return self._with_old_names(made, node) if is_project else made

    def _stands_above(self, node: Any) -> bool:
        plans = [v for v in vars(node).values() if isinstance(v, self._plan_class)]
        return any(p is self._stop or self._stands_above(p) for p in plans)

    def _value(self, value: Any, expression: Callable[[Any], Any]) -> Any:
        """A plan, a column, an expression, or several: rewritten, or the very same."""
        if isinstance(value, self._plan_class):
            return self.plan(value)
        if isinstance(value, self._expression_class):
            return expression(value)
        if isinstance(value, self._column):
            new = expression(value._expr)
            return value if new is value._expr else self._column(new)
        if isinstance(value, list | tuple):
            done = [self._value(item, expression) for item in value]
            return value if all(n is o for n, o in zip(done, value, strict=True)) else type(value)(done)
        return value

    def _with_old_names(self, made: Any, old: Any) -> Any:
        """A column without a name of its own is called by its text, which changed."""
        from pyspark.sql.connect.dataframe import DataFrame

        names = DataFrame(old, self._session).columns
        if len(names) != len(made._columns):
            return made  # a star among them: the others have names
        columns = [
            new if new is before or isinstance(new._expr, self._alias) else new.alias(name)
            for new, before, name in zip(made._columns, old._columns, names, strict=True)
        ]
        made._columns = columns
        return made

    def _rebuilt(self, node: Any, expression: Callable[[Any], Any]) -> Any:
        """A copy of a plan or an expression with rewritten parts, or the very same if none is."""
        parts = {n: (v, self._value(v, expression)) for n, v in vars(node).items() if n != "_references"}
        found = {name: new for name, (old, new) in parts.items() if new is not old}
        if not found:
            return node
        made = copy.copy(node)
        vars(made).update(found)
        return made

    def _type(self, expression: Any, child: Any) -> T.DataType:
        """What ``expression`` makes of the rows of ``child``."""
        from pyspark.sql.connect.dataframe import DataFrame

        made = DataFrame(self._project(child, [self._column(expression)]), self._session)
        return made.schema.fields[0].dataType


class _Rewriter(PlanRewriter):
    def __init__(self, session: Any, stop: Any) -> None:
        from pyspark.sql.connect import expressions

        super().__init__(session, stop)
        self._function_class = expressions.CommonInlineUserDefinedFunction
        self._python_class, self._named_class = expressions.PythonUDF, expressions.NamedArgumentExpression

    def expression(self, e: Any, child: Any) -> Any:
        if isinstance(e, self._function_class) and isinstance(e._function, self._python_class):
            return self._function(e, child)
        return self._rebuilt(e, lambda inner: self.expression(inner, child))

    def _is_beside(self, e: Any) -> bool:
        """Whether a function in a join's condition gets values of the other side only, where no control rows are."""
        if self._beside is None:
            return False
        try:
            with unlogged():
                return all(self._type(arg, self._beside) is not None for arg in e._arguments)
        except PySparkException:
            return False

    def _function(self, e: Any, child: Any) -> Any:
        if self._is_beside(e):
            return e
        udf, args = e._function, [self.expression(arg, child) for arg in e._arguments]
        if udf._eval_type not in KINDS:
            return e
        flag, args = F.col(CTL).isNotNull()._expr, [self._for_data_rows(arg) for arg in args]
        if udf._eval_type in PANDAS_KINDS:
            args = [self._not_null(arg, child) for arg in args]
        kind = udf._output_type
        return_type = kind if type(kind).__name__ != "UnparsedDataType" else T.DataType.fromDDL(kind.data_type_string)
        command = CloudPickleSerializer().dumps((udf._func, return_type))
        rows_only = DataRowsOnly((command,), udf._eval_type, return_type)
        python = self._python_class(return_type, udf._eval_type, rows_only, udf._python_ver)
        return self._function_class(e._function_name, python, e._deterministic, [flag, *args])

    def _for_data_rows(self, arg: Any) -> Any:
        """Spark computes it for every row, whatever stands around the function: it may fail on nulls."""
        if isinstance(arg, self._named_class):
            return self._named_class(arg._key, self._for_data_rows(arg._value))
        if isinstance(arg, self._function_class) or not may_fail(self._column(arg)):
            return arg
        return F.when(F.col(CTL).isNull(), self._column(arg))._expr

    def _not_null(self, arg: Any, child: Any) -> Any:
        """pandas has no null among integers: one in a control row would make floats of the data rows."""
        if isinstance(arg, self._named_class):
            return self._named_class(arg._key, self._not_null(arg._value, child))
        default = _default(self._type(arg, child))
        if default is None:
            return arg
        return F.when(F.col(CTL).isNull(), self._column(arg)).otherwise(default)._expr


def _default(kind: T.DataType) -> Any:
    """What stands for nothing where a null would change a column's type; None where it does not."""
    if isinstance(kind, T.ByteType | T.ShortType | T.IntegerType | T.LongType | T.BooleanType):
        return F.lit(0).cast(kind)
    if isinstance(kind, T.StructType):
        fields = [(_default(f.dataType), f) for f in kind.fields]
        values = [F.lit(None).cast(f.dataType) if value is None else value for value, f in fields]
        return F.struct(*[v.alias(f.name) for v, f in zip(values, kind.fields, strict=True)])
    return None


_MAY_FAIL = re.compile(
    r"\b(?:(?:create_)?map|map_from_arrays|map_from_entries|map_concat|transform_keys|raise_error|assert_true)\s*\("
    # Or they make a value of null, on which something else may fail.
    r"|\b(?:coalesce|nvl2?|ifnull|if|isnull|isnotnull|concat_ws|format_string|printf)\s*\(|\bCASE\b|\bIS\s|<=>",
    re.IGNORECASE,
)


def may_fail(column: Column) -> bool:
    """By its text: whether it may fail on a row whose columns are all null, as control rows are: ``map(k, v)``, whose
    keys may not be null, or ``raise_error`` where a value is none of those expected."""
    return _MAY_FAIL.search(str(column)) is not None
