"""Replaces the Python functions in an operation's plan by such as never see control rows. Driver; Spark Connect.

A plan of the client is a tree of Python objects with the user's functions in it. What the server knows by a name only
(SQL texts, ``call_udf``) is not in there; :mod:`spark_ckpt.plan.relations._text_check` tries that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.errors import PySparkException
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P
from pyspark.sql.connect.dataframe import DataFrame

from spark_ckpt.execution.spark_errors import unlogged
from spark_ckpt.plan.relations._columns import column, is_control, is_data
from spark_ckpt.plan.relations._tree import children_of, kind_of, rewritten, walk, with_children, with_expressions
from spark_ckpt.runtime.udf_rows import KINDS, PANDAS_KINDS, DataRowsOnly

Relation = Any
Expression = Any
Put = Callable[[Any, Relation, Expression], "Expression | None"]
"""From the session, a relation and an expression in it to what is to stand for that, or it itself; None: its parts are
looked at."""


def for_data_rows(after: DataFrame, before: DataFrame) -> DataFrame:
    """As :func:`spark_ckpt.plan.analysed._udf_plan.for_data_rows`."""
    return rewritten_between(after, before, _called)


def rewritten_between(after: DataFrame, before: DataFrame, put: Put) -> DataFrame:
    """``after``, which an operation made of ``before``: only what stands above that has control rows."""
    plan = _between(after.sparkSession, after._plan, before._plan, put)
    return after if plan is after._plan else DataFrame(plan, after.sparkSession)


def type_of(session: Any, e: Expression, rows: Relation) -> T.DataType:
    """What ``e`` makes of ``rows``. Raises as Spark does."""
    return DataFrame(P.Project(rows, [column(e)]), session).schema.fields[0].dataType


def _between(session: Any, node: Relation, stop: Relation, put: Put) -> Relation:
    if node is stop or all(each is not stop for each in walk(node)):
        return node
    below = with_children(node, [_between(session, child, stop, put) for child in children_of(node)])
    made = with_expressions(below, partial(put, session, node))
    if made is not below and kind_of(node) == "Project":
        made._columns = _with_old_names(made._columns, node, session)
    return made


def _with_old_names(columns: list[Column], old: Relation, session: Any) -> list[Column]:
    """A column without a name of its own is called by its text, which changed."""
    names = DataFrame(old, session).columns
    if len(names) != len(columns):
        return columns  # a star among them: the others have names
    return [
        new if new is before or isinstance(new._expr, E.ColumnAlias) else new.alias(name)
        for new, before, name in zip(columns, old._columns, names, strict=True)
    ]


def _called(session: Any, node: Relation, e: Expression) -> Expression | None:
    if not isinstance(e, E.CommonInlineUserDefinedFunction) or not isinstance(e._function, E.PythonUDF):
        return None
    udf = e._function
    if udf._eval_type not in KINDS or _is_beside(session, node, e):
        return e
    args = [_for_data_rows(rewritten(arg, partial(_called, session, node))) for arg in e._arguments]
    if udf._eval_type in PANDAS_KINDS:
        args = [_not_null(session, node._child, arg) for arg in args]
    kind = udf._output_type
    return_type = kind if type(kind).__name__ != "UnparsedDataType" else T.DataType.fromDDL(kind.data_type_string)
    command = CloudPickleSerializer().dumps((udf._func, return_type))
    rows_only = DataRowsOnly((command,), udf._eval_type, return_type)
    python = E.PythonUDF(return_type, udf._eval_type, rows_only, udf._python_ver)
    flag = is_control()._expr
    return E.CommonInlineUserDefinedFunction(e._function_name, python, e._deterministic, [flag, *args])


def _is_beside(session: Any, node: Relation, e: Expression) -> bool:
    """Whether a function in a join's condition gets values of the other side only, where no control rows are."""
    if kind_of(node) != "Join":
        return False
    try:
        with unlogged():
            return all(type_of(session, arg, node.right) is not None for arg in e._arguments)
    except PySparkException:
        return False


def _for_data_rows(arg: Expression) -> Expression:
    """Spark computes it for every row, whatever stands around the function: it may fail on nulls."""
    if isinstance(arg, E.NamedArgumentExpression):
        return E.NamedArgumentExpression(arg._key, _for_data_rows(arg._value))
    if isinstance(arg, E.CommonInlineUserDefinedFunction | E.ColumnReference | E.LiteralExpression):
        return arg
    return F.when(is_data(), column(arg))._expr


def _not_null(session: Any, rows: Relation, arg: Expression) -> Expression:
    """pandas has no null among integers: one in a control row would make floats of the data rows."""
    if isinstance(arg, E.NamedArgumentExpression):
        return E.NamedArgumentExpression(arg._key, _not_null(session, rows, arg._value))
    default = _default(type_of(session, arg, rows))
    return arg if default is None else F.when(is_data(), column(arg)).otherwise(default)._expr


def _default(kind: T.DataType) -> Any:
    """What stands for nothing where a null would change a column's type; None where it does not."""
    if isinstance(kind, T.ByteType | T.ShortType | T.IntegerType | T.LongType | T.BooleanType):
        return F.lit(0).cast(kind)
    if isinstance(kind, T.StructType):
        fields = [(_default(f.dataType), f) for f in kind.fields]
        values = [F.lit(None).cast(f.dataType) if value is None else value for value, f in fields]
        return F.struct(*[v.alias(f.name) for v, f in zip(values, kind.fields, strict=True)])
    return None
