"""The one rule for control rows, on Spark Connect: how a relation lets them through. Driver.

As in :mod:`spark_ckpt.plan.analysed._control_rows`: expressions are computed for data rows only, filters let control
rows pass, what multiplies rows multiplies data rows only, and the control columns come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from operator import add, and_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.columns import everything, quoted
from spark_ckpt.operators.aggregate_kinds import BY_ORDER, KINDS, refuse_by_order
from spark_ckpt.plan.relations._columns import (
    bare,
    column,
    identifier_of,
    is_control,
    is_data,
    is_generator,
    is_star,
    is_whole,
)
from spark_ckpt.plan.relations._translation import Rows, Translation
from spark_ckpt.plan.relations._tree import kind_of, over, parts_of, rewritten
from spark_ckpt.runtime.stateless import with_control
from spark_ckpt.types import CONTROL_COLUMNS

Relation = Any
Expression = Any


def guarded(of: Translation, node: Relation, rows: Rows) -> Relation:
    """``node``, whose expressions are computed for data rows only."""
    return _GUARDED[kind_of(node)](of, node, rows) if kind_of(node) in _GUARDED else node


def carried(of: Translation, node: Relation, rows: Rows, child: Relation) -> Relation:
    """``node`` over ``child``, which has the columns of ``rows`` and the control columns behind them."""
    made = _WAYS.get(kind_of(node), _as_it_is)(of, node, rows, child)
    return control_last(made) if kind_of(node) in _APPENDS else made


def control_last(node: Relation) -> Relation:
    return P.Project(node, [everything(), *_control()])


def _control() -> list[Any]:
    return [F.col(name) for name in CONTROL_COLUMNS]


def _as_it_is(_of: Translation, node: Relation, _rows: Rows, child: Relation) -> Relation:
    return over(node, child)


def _filter(_of: Translation, node: Relation, _rows: Rows, child: Relation) -> Relation:
    return over(node, child, filter=is_control() | node.filter)


def _project(_of: Translation, node: Relation, _rows: Rows, child: Relation) -> Relation:
    """A star stands for the user's columns."""
    own = [everything() if is_whole(c._expr) else c for c in node._columns]
    return over(node, child, _columns=[*own, *_control()])


def _guarded_columns(_of: Translation, node: Relation, _rows: Rows) -> Relation:
    made = [c if _is_plain(c._expr) else F.when(is_data(), column(bare(c._expr))) for c in node._columns]
    return over(node, node._child, _columns=made)


def _guarded_list(of: Translation, node: Relation, rows: Rows) -> Relation:
    """Each under the name that it has without the rule. Columns stay as they are."""
    columns = node._columns
    unnamed = [c for c in columns if not (_is_plain(c._expr) or isinstance(c._expr, E.ColumnAlias))]
    names = iter(of.frame(P.Project(rows.plan, unnamed)).columns if unnamed else [])
    made = [c if _is_plain(c._expr) else _computed(c, names) for c in columns]
    return over(node, node._child, _columns=made)


def _computed(c: Any, names: Iterator[str]) -> Column:
    e = c._expr
    value = F.when(is_data(), column(bare(e)))
    if not isinstance(e, E.ColumnAlias):
        return value.alias(next(names))
    return column(E.ColumnAlias(value._expr, e._alias, e._metadata))


def _is_plain(e: Expression) -> bool:
    """A column, several columns, or what makes several rows, which has a rule of its own."""
    inner = bare(e)
    return is_generator(inner) or is_star(inner) or identifier_of(inner) is not None


def _to_df(_of: Translation, node: Relation, _rows: Rows, child: Relation) -> Relation:
    return over(node, child, _cols=[*node._cols, *CONTROL_COLUMNS])


def _to_schema(_of: Translation, node: Relation, _rows: Rows, child: Relation) -> Relation:
    return over(node, child, _schema=with_control(node._schema))


def _of_users_columns(_of: Translation, node: Relation, rows: Rows, child: Relation) -> Relation:
    """``fillna`` and ``replace``: of all columns, the control columns are none."""
    return over(node, child, cols=node.cols or [quoted(name) for name in rows.shown])


def _drop_nulls(of: Translation, node: Relation, rows: Rows, child: Relation) -> Relation:
    """``dropna`` as a filter: a value that is no number is none, as for Spark."""
    schema = T.StructType([T.StructField(n, f.dataType) for n, f in zip(rows.shown, rows.schema.fields, strict=True)])
    asked = of.schema(P.Project(rows.plan, [F.col(c) for c in node.cols])) if node.cols else schema
    there = [_is_there(f) for f in asked.fields]
    least = node.min_non_nulls
    enough = reduce(and_, there) if least is None else reduce(add, [c.cast("int") for c in there]) >= least
    made = P.Filter(child, is_control() | enough)
    made._root_plan_id = node._root_plan_id
    return made


def _is_there(field: T.StructField) -> Column:
    c = F.col(quoted(field.name))
    is_float = isinstance(field.dataType, T.FloatType | T.DoubleType)
    return c.isNotNull() & ~F.isnan(c) if is_float else c.isNotNull()


def _aliased(_of: Translation, node: Relation, _rows: Rows, child: Relation) -> Relation:
    return aliased(node, child)


def aliased(node: Relation, child: Relation) -> Relation:
    """``alias.*`` does not stand for the control columns."""
    return P.Project(over(node, child), [everything(), *[F.col(name).alias(name) for name in CONTROL_COLUMNS]])


def _measured(of: Translation, node: Relation, rows: Rows, child: Relation) -> Relation:
    """``observe``: what aggregates read is null in control rows, and they pass over nulls."""
    return over(node, child, _exprs=of_data_rows(of.frame(rows.plan), tuple(node._exprs)))


def _unpivot(of: Translation, node: Relation, rows: Rows, child: Relation) -> Relation:
    """A control row comes out once: with the first of the values."""
    ids = of.schema(P.Project(rows.plan, node.ids)).names if node.ids else []
    others = [F.col(quoted(name)) for name in rows.shown if not any(of.same_name(name, i) for i in ids)]
    values = others if node.values is None else node.values
    made = over(node, child, ids=[*node.ids, *_control()], values=values)
    first = of.schema(P.Project(rows.plan, values[:1])).names[0]
    return P.Filter(made, is_data() | (F.col(quoted(node.variable_column_name)) == first))


_WAYS: dict[str, Callable[[Translation, Relation, Rows, Relation], Relation]] = {
    "CollectMetrics": _measured,
    "Filter": _filter,
    "NADrop": _drop_nulls,
    "NAFill": _of_users_columns,
    "NAReplace": _of_users_columns,
    "Project": _project,
    "SubqueryAlias": _aliased,
    "ToDF": _to_df,
    "ToSchema": _to_schema,
    "Unpivot": _unpivot,
}
"""Others need nothing."""
_GUARDED = {"Project": _guarded_list, "WithColumns": _guarded_columns}
_APPENDS = ("ToSchema", "Unpivot", "WithColumns")
"""Whose new columns come behind the control columns."""


SparkDF = Any


def of_data_rows(df: SparkDF, exprs: tuple[Column, ...]) -> list[Column]:
    """``exprs`` of the data rows of ``df``, by Spark's names. Raises as ``plan.observed`` does."""
    names = df.agg(*exprs).columns  # raises as Spark does
    made = [column(rewritten(bare(e._expr), _of_data_rows)) for e in exprs]
    return [c.alias(name) for c, name in zip(made, names, strict=True)]


def _of_data_rows(e: Expression) -> Expression | None:
    if isinstance(e, E.SQLExpression | E.ColumnReference):
        raise InvalidInputError(
            f"observe: on Spark Connect {e} cannot be seen to leave control rows out; write each metric with "
            f"functions of pyspark.sql.functions, of {', '.join(sorted(set(KINDS) - set(BY_ORDER)))}"
        )
    if not isinstance(e, E.UnresolvedFunction) or e._name.lower() not in KINDS:
        return None
    refuse_by_order(e._name.lower())
    # What comes behind the value, such as a percentage, has to stay constant.
    args = [a if i and _constant(a) else _null_in_control_rows(a) for i, a in enumerate(e._args)]
    return E.UnresolvedFunction(e._name, args, e._is_distinct)


def _null_in_control_rows(e: Expression) -> Expression:
    value = F.lit(1) if isinstance(e, E.UnresolvedStar) else column(e)
    return F.when(is_data(), value)._expr


def _constant(e: Expression) -> bool:
    return not any(isinstance(part, E.SQLExpression | E.ColumnReference) for part in parts_of(e))
