"""What PySpark's grouped data has no method for: ``topN``, ``applyInArrowWithState`` and ``aggregate``. Driver; classic
Spark.

Each makes a node of Spark's, ``FlatMapGroupsInArrow``, over the columns and keys that the operator reads. The function
in that node says what is meant, so it goes where the node goes: into views, SQL and copies. In a query of Spark's own
it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, GroupedData
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    analysed,
    attribute_id,
    column_of,
    kind_of,
    named_as,
    output_of,
    project,
    relation,
    resolved,
    with_names,
)
from spark_ckpt.plan.analysed._python_functions import function_of
from spark_ckpt.plan.analysed._row_by_row import step
from spark_ckpt.plan.analysed._tags import OWN, tag
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed._updates import are_updates
from spark_ckpt.plan.analysed.uids import given_uid
from spark_ckpt.plan.chain import Chain
from spark_ckpt.plan.columns import refuse_repeated
from spark_ckpt.plan.java_classes import frame_of
from spark_ckpt.plan.key_columns import Keys, stored_name
from spark_ckpt.plan.key_types import check_key
from spark_ckpt.plan.keyed_operator import Upstream, keyed_rows
from spark_ckpt.plan.lineage import Lineage
from spark_ckpt.plan.udf_plan import items_of, seq_items
from spark_ckpt.runtime.stateless import spark_schema
from spark_ckpt.state.functions.base import StateFunction
from spark_ckpt.state.topn.function import TopN
from spark_ckpt.state.topn.updates import TopNOfUpdates

SparkDF = Any
JavaObject = Any

ALL_ROWS = "all_rows"
"""The one key of groups without keys."""


@dataclass(frozen=True)
class OwnOperator:
    """``function`` reads ``columns``, of rows whose columns are called ``names`` in their order; ``keys`` are those of
    ``groupBy`` as the operator has them."""

    method: str
    function: StateFunction
    names: list[str]
    columns: list[str]
    keys: list[str]
    plain: frozenset[str]
    output_mode: str | None = None
    takes_updates: bool = False


@dataclass(frozen=True)
class Groups:
    """``groupBy(...)`` of a DataFrame, as a method of ours sees it."""

    df: SparkDF
    by: list[Column]

    @classmethod
    def of(cls, grouped: GroupedData) -> Groups:
        df = grouped._df
        refuse_repeated(df.columns, df.sparkSession)
        return cls(df, [column_of(e) for e in items_of(grouped._jgd.groupingExprs())])

    @property
    def keys(self) -> Keys:
        """Under the names that Spark gives them."""
        expressions = seq_items(analysed(self.df.select(*self.by)).projectList()) if self.by else []
        fields = self.df.select(*self.by).schema.fields if self.by else [T.StructField(ALL_ROWS, T.IntegerType())]
        for f in fields:
            check_key(f)
        own = {attribute_id(a): str(a.name()) for a in output_of(analysed(self.df))}
        plain = {own[attribute_id(e)] for e in expressions if kind_of(e) == "AttributeReference"}
        columns = self.by or [F.lit(0)]
        named = {f.name: c for f, c in zip(fields, columns, strict=True)}
        return Keys(named, T.StructType([T.StructField(f.name, f.dataType, True) for f in fields]), frozenset(plain))

    def operator(self, method: str, function: StateFunction, keys: Keys, columns: Sequence[str], **how: Any) -> SparkDF:
        """The DataFrame that the operator puts out."""
        asked = OwnOperator(
            method, function, list(self.df.columns), list(columns), list(keys.expressions), keys.columns, **how
        )
        made = self.df.groupBy(*self.by).applyInArrow(_standing_for(asked), spark_schema(function.output_schema))
        tag(analysed(made), OWN, method)
        return made


def _standing_for(asked: OwnOperator) -> Callable[..., Any]:
    def called(_rows: pa.Table) -> pa.Table:
        raise InvalidInputError(
            f"{asked.method} keeps state, which spark_ckpt has and Spark has not: write the DataFrame by "
            "ckpt.writeStream(df)"
        )

    called.__annotations__ = {}  # hints that are texts here would be a warning of Spark's
    called.asked = asked  # type: ignore[attr-defined]
    return called


def own_operator(of: Translation, node: JavaObject) -> Rows:
    """A ``FlatMapGroupsInArrow`` with the tag of a method of ours."""
    asked: OwnOperator = function_of(node).asked
    grouped = node.child()
    listed = seq_items(grouped.projectList())
    count = len(seq_items(node.groupingAttributes()))
    rows = _with_keys(of, of.rows(grouped.child()), asked, listed[:count], listed[count:])
    _check_updates(asked, rows.lineage)
    keys = Keys.of_columns([rows.schema[name] for name in asked.keys])

    def in_spark(ctx: Any) -> Chain:
        chain = ctx.chain(rows.recipe)
        return Chain(ctx.for_spark(chain), chain.schema)

    upstream = Upstream(rows.recipe, rows.lineage, rows.schema, in_spark)
    uid = given_uid(of, node)
    made = keyed_rows(
        upstream, uid, asked.function, asked.columns, keys, asked.output_mode, takes_updates=asked.takes_updates
    )
    return Rows(made.recipe, made.lineage, output_of(node), made.schema)


def _check_updates(asked: OwnOperator, lineage: Lineage) -> None:
    if isinstance(asked.function, TopN) and not isinstance(asked.function, TopNOfUpdates) and are_updates(lineage):
        raise InvalidInputError(
            f"topN: the rows of operator {lineage.operators[-1].shown!r} are updates, new values of rows that came "
            "before; say by which columns, beside the keys, a newer row takes the place of an older one: "
            "mergeKeys=['product']"
        )


def _with_keys(
    of: Translation, rows: Rows, asked: OwnOperator, keys: list[JavaObject], columns: list[JavaObject]
) -> Rows:
    """The columns as the method saw them, and behind them the keys that are computed."""
    values = [k.child() if kind_of(k) == "Alias" else k for k in keys]
    values = values or resolved(frame_of(relation([]), of.spark), [F.lit(0)])
    pairs = zip(values, asked.keys, strict=True)
    computed = [named_as(value, name) for value, name in pairs if name not in asked.plain]
    made = step(of, project([*columns, *computed], relation(rows.attributes)), rows)
    return with_names(made, [*asked.names, *(name for name in asked.keys if name not in asked.plain)])


def stored(struct: T.StructType) -> T.StructType:
    """The columns of a function's state, under names that a table can have."""
    return T.StructType([T.StructField(stored_name(f.name), f.dataType, f.nullable) for f in struct.fields])
