"""The right side of a lateral join: a generator, ``spark.tvf.explode(...)``, or a static DataFrame. Driver; classic and
Connect.

A generator is one in a projection, which control rows come through. A static side is joined from the left: as its
filter says that it is not for them, a control row finds nothing and comes out once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import control_last, quoted
from spark_ckpt.plan.java_classes import EXPRESSION_UTILS, java_class, to_seq
from spark_ckpt.plan.sql_given import Given, in_spark, place
from spark_ckpt.plan.udf_plan import items_of
from spark_ckpt.types import CTL

SparkDF = Any
JavaObject = Any

_MATCH = "__ckpt_match"
_TABLES = ("range", "collations", "sql_keywords", "python_worker_logs")
"""Functions of tables that are none of a row."""
_OF_A_ROW = re.compile(r"'?Generate .*\n.*OneRowRelation")
"""How Spark shows the call of a Python table function."""
_KINDS = {"inner": "inner", "cross": "inner", "left": "left", "leftouter": "left"}
_CALL, _NAMED, _ALIAS = "UnresolvedTableValuedFunction", "UnresolvedSubqueryColumnAliases", "SubqueryAlias"


def lateral_kind(how: str | None) -> str:
    """``inner`` or ``left``. Raises Spark's ``AnalysisException`` for others."""
    kind = _KINDS.get("inner" if how is None else str(how).lower().replace("_", ""))
    if kind is None:
        raise AnalysisException(
            f"[UNSUPPORTED_JOIN_TYPE] Unsupported join type '{how}'. Supported join types include: 'inner', "
            "'leftouter', 'left', 'left_outer', 'cross'. SQLSTATE: 0A000"
        )
    return kind


def lateral(left: SparkDF, right: SparkDF, on: Column | None, kind: str) -> SparkDF:
    """``left``, which has control rows, with the rows of ``right`` that each of its data rows finds."""
    found = right.withColumn(_MATCH, F.lit(True)).where(F.col(CTL).outer().isNull())
    if kind == "left":
        joined = left.lateralJoin(found, how="left") if on is None else left.lateralJoin(found, on, "left")
        return control_last(joined.drop(_MATCH))
    matched = F.col(_MATCH).isNotNull() if on is None else F.col(_MATCH).isNotNull() & on
    joined = left.lateralJoin(found, how="left")
    return control_last(joined.where(F.col(CTL).isNotNull() | matched).drop(_MATCH))


@dataclass(frozen=True)
class LateralText:
    """The sub-query ``text`` of SQL, which reads ``given`` and names columns of the left side as those of ``rows``.

    ``columns``: what its own are called; ``on`` is over those and the left side's.
    """

    text: str
    given: Given
    rows: str
    columns: tuple[str, ...]
    on: str | None
    how: str

    def reading_nothing(self) -> LateralText:
        return replace(self, given={name: df.where(F.lit(False)) for name, df in self.given.items()})

    def __call__(self, left: SparkDF) -> SparkDF:
        """Of a stream, which has control rows."""
        rows, on = quoted(self.rows), f" ON {self.on}" if self.on and self.how == "left" else ""
        query = f"SELECT *, TRUE FROM ({self.text}) WHERE {rows}.{CTL} IS NULL"
        joined = self._joined(left, f"LEFT JOIN LATERAL ({query})", (*self.columns, _MATCH), on)
        if self.how != "left":
            matched = F.col(_MATCH).isNotNull()
            matched = matched & F.expr(self.on) if self.on else matched
            joined = joined.where(F.col(CTL).isNotNull() | matched)
        return control_last(joined.drop(_MATCH))

    def of_table(self, left: SparkDF) -> SparkDF:
        """Of a static DataFrame."""
        on = f" ON {self.on}" if self.on else ""
        return self._joined(left, f"{self.how.upper()} JOIN LATERAL ({self.text})", self.columns, on)

    def _joined(self, left: SparkDF, join: str, columns: tuple[str, ...], on: str) -> SparkDF:
        names = ", ".join(map(quoted, columns))
        text = f"SELECT * FROM {place('rows')} AS {quoted(self.rows)} {join} AS found({names}){on}"
        return in_spark(left.sparkSession, text, {**self.given, "rows": left})


def refuse_table_function(right: SparkDF) -> None:
    """Raises ``InvalidInputError`` for the call of a Python table function (classic Spark)."""
    if hasattr(right, "_jdf") and _OF_A_ROW.match(right._jdf.queryExecution().logical().toString()):
        raise _no_table_function("lateralJoin")


@contextmanager
def no_table_functions(what: str) -> Iterator[None]:
    """Inside, Spark takes the call for that of a generator. Raises ``InvalidInputError`` if it is none."""
    try:
        yield
    except AnalysisException as error:
        if error.getCondition() != "NOT_A_SCALAR_FUNCTION":
            raise
        raise _no_table_function(what) from error


def _no_table_function(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"{what}: a Python table function would get control rows, too, so none can be joined with a stream. Let a "
        "function give an array of structs, and spread that: "
        'stream.select("*", F.inline(F.udf(words, "array<struct<word string, n int>>")("text")))'
    )


def generator_of(right: SparkDF) -> Column | None:
    """The generator that all of ``right`` is, over columns of the left side; None if it is a DataFrame."""
    classic = type(right).__module__.startswith("pyspark.sql.classic")
    found = _of_classic(right) if classic else _of_connect(right)
    if isinstance(found, str):
        raise InvalidInputError(
            f"lateralJoin: {found} is worked on before it is joined, where Spark could drop control rows. Join it "
            "as it is, or with toDF, and work on the result: stream.lateralJoin(spark.tvf.explode(...)).where(...)"
        )
    if found is None:
        return None
    name, args, names = found
    function = getattr(F, name, None)
    column = F.call_function(name, *args) if function is None or name == "json_tuple" else function(*args)
    return column.alias(*names) if names else column


_Call = tuple[str, list[Column], list[str]]


def _of_classic(right: SparkDF) -> _Call | str | None:
    from pyspark.sql.classic.column import Column as ClassicColumn

    node, names = right._jdf.queryExecution().logical(), list[str]()
    if f"{_CALL} [" not in node.toString():
        return None
    while node.nodeName() in (_NAMED, _ALIAS):
        if node.nodeName() == _NAMED:
            names = names or [str(name) for name in items_of(node.outputColumnNames())]
        node = node.child()
    name = str(items_of(node.name())[0]) if node.nodeName() == _CALL else None
    if name in _TABLES:
        return None
    if name is None:
        return "a table function" if not any(f"{_CALL} [{t}]" in node.toString() for t in _TABLES) else None
    convert = java_class(EXPRESSION_UTILS)
    args = [ClassicColumn(convert.column(_of_left(e))) for e in items_of(node.functionArgs())]
    return name, args, names


def _of_left(e: JavaObject) -> JavaObject:
    """``e`` where ``column.outer()`` is the column."""
    if e.nodeName() == "LazyExpression":
        return _of_left(items_of(e.children())[0])
    children = items_of(e.children())
    done = [_of_left(child) for child in children]
    same = all(new is old for new, old in zip(done, children, strict=True))
    return e if same else e.withNewChildren(to_seq(done))


def _of_connect(right: SparkDF) -> _Call | str | None:
    node, names = right._plan, list[str]()
    if not _has_call(node):
        return None
    while type(node).__name__ in ("ToDF", "SubqueryAlias"):
        names = names or list(getattr(node, "_cols", []))
        node = node._child
    if type(node).__name__ != _CALL:
        return "a table function"
    return None if node._name in _TABLES else (node._name, list(node._args), names)


def _has_call(node: Any) -> bool:
    if type(node).__name__ == _CALL:
        return node._name not in _TABLES
    child = getattr(node, "_child", None)
    return child is not None and _has_call(child)
