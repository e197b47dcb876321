"""``LateralJoin``: each row with what a generator makes of it, or with the rows of a table that it finds. Driver; Spark
Connect.

A generator is one in a projection, which control rows come through. A table is joined from the left: as its filter says
that it is not for them, a control row finds nothing and comes out once.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P
from pyspark.sql.connect import proto

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.lineage import Leaves, Stays
from spark_ckpt.execution.spark_errors import unsupported
from spark_ckpt.operators.handlers import lateral_join_refused
from spark_ckpt.plan.relations._columns import column, is_control, is_data
from spark_ckpt.plan.relations._control_rows import control_last
from spark_ckpt.plan.relations._translation import Rows, Translation
from spark_ckpt.plan.relations._tree import kind_of, walk

Relation = Any

_MATCH = "__ckpt_match"
_TABLES = ("range", "collations", "sql_keywords", "python_worker_logs")
"""Functions of tables that are none of a row."""
_CALL = "UnresolvedTableValuedFunction"
_UDTF = "CommonInlineUserDefinedTableFunction"


def lateral_join(of: Translation, node: Relation) -> Rows:
    outer = node.how == proto.Join.JoinType.JOIN_TYPE_LEFT_OUTER
    if of.reads_stream(node.right):
        raise unsupported("LateralJoin: the right side reads a stream, and expected are rows of a table: join the two")
    generator = _generator_of(node.right)
    if generator is not None:
        return _projected(of, node, generator, outer)
    stays = Stays(Leaves.TABLE, "a sub-query over a table")
    made = of.carried_step(node, of.rows(node.left), partial(_joined, node, outer), stays)
    return made if outer else replace(made, lineage=made.lineage.with_watermarks_told())


def _projected(of: Translation, node: Relation, generator: Column, outer: bool) -> Rows:
    if outer and node.on is not None:
        raise lateral_join_refused()
    made = P.Project(node.left, [column(E.UnresolvedStar(None)), generator])
    rows = of.rows(made if node.on is None else P.Filter(made, node.on))
    schema = of.schema(node)
    return replace(rows, plan=node, schema=schema, shown=tuple(schema.names))


def _joined(node: Relation, outer: bool, stream: Relation) -> Relation:
    """``stream``, which has control rows, with the rows that each of its data rows finds."""
    marked = P.Project(node.right, [column(E.UnresolvedStar(None)), F.lit(True).alias(_MATCH)])
    found = P.Filter(marked, is_data())
    made = P.LateralJoin(stream, found, node.on if outer else None, "left")
    if not outer:
        matched = F.col(_MATCH).isNotNull()
        made = P.Filter(made, is_control() | (matched if node.on is None else matched & node.on))
    return control_last(P.Drop(made, [_MATCH]))


def _generator_of(right: Relation) -> Column | None:
    """The generator that all of ``right`` is, over columns of the left side; None if it is a table."""
    names, below = list[str](), right
    while kind_of(below) in ("ToDF", "SubqueryAlias"):
        names = names or list(getattr(below, "_cols", []))
        below = below._child
    if kind_of(below) == _CALL and below._name not in _TABLES:
        made = column(E.UnresolvedFunction(below._name, [c._expr for c in below._args]))
        return made.alias(*names) if names else made
    for each in walk(right):
        if kind_of(each) == _UDTF:
            raise InvalidInputError(
                "lateralJoin: a Python table function would get control rows, too, so none can be joined with a "
                "stream. Let a function give an array of structs, and spread that: "
                'stream.select("*", F.inline(F.udf(words, "array<struct<word string, n int>>")("text")))'
            )
        if kind_of(each) == _CALL and each._name not in _TABLES:
            raise InvalidInputError(
                "lateralJoin: a table function is worked on before it is joined, where Spark could drop control rows. "
                "Join it as it is, or with toDF, and work on the result: "
                "stream.lateralJoin(spark.tvf.explode(...)).where(...)"
            )
    return None
