"""Nodes and attributes of a plan in the JVM, as the translation sees them. Driver; classic Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import types as T

from spark_ckpt.execution.chain import StreamRows
from spark_ckpt.execution.java_classes import (
    CATALYST,
    EXPRESSION_UTILS,
    OPTION,
    attribute_id,
    class_name,
    java_class,
    seq_items,
    to_seq,
    tree_node_tag,
)
from spark_ckpt.spark_versions import spark_version
from spark_ckpt.types import CTL, TAG

SparkDF = Any
JavaObject = Any

_EXPRESSIONS = f"{CATALYST}.expressions"
_LOGICAL = f"{CATALYST}.plans.logical"
_TO_ATTRIBUTES = f"{CATALYST}.types.DataTypeUtils"
_DATA_TYPE = "org.apache.spark.sql.types.DataType"


@dataclass(frozen=True)
class Rows(StreamRows):
    """The rows that a node puts out. ``attributes``: Spark's of the columns, in their order."""

    attributes: tuple[JavaObject, ...]

    @cached_property
    def ids(self) -> list[int]:
        """Spark's expression ids, one a column."""
        return [attribute_id(a) for a in self.attributes]

    def place(self, attribute: JavaObject) -> int:
        """Which column ``attribute`` refers to."""
        return self.ids.index(attribute_id(attribute))


def rows_of(made: StreamRows, attributes: Iterable[JavaObject]) -> Rows:
    """``made``, whose columns have these ``attributes``."""
    return Rows(made.recipe, made.lineage, made.schema, tuple(attributes))


def analysed(df: SparkDF) -> JavaObject:
    return df._jdf.queryExecution().analyzed()


def kind_of(node: JavaObject) -> str:
    """The name of its class, without its package: what the ledger knows it by."""
    return class_name(node)


def place_in_sql(node: JavaObject) -> str | None:
    """Line and text of ``node`` where it comes from SQL; None where it comes from methods."""
    origin = node.origin()
    if not (origin.sqlText().isDefined() and origin.startIndex().isDefined() and origin.stopIndex().isDefined()):
        return None
    written = str(origin.sqlText().get())[origin.startIndex().get() : origin.stopIndex().get() + 1]
    line = origin.line().get() if origin.line().isDefined() else 1
    return f"in line {line}: {' '.join(written.split())[:200]}"


def output_of(node: JavaObject) -> tuple[JavaObject, ...]:
    return tuple(seq_items(node.output()))


def schema_of(node: JavaObject) -> T.StructType:
    """The names, types and metadata of its output."""
    found = T._parse_datatype_json_string(node.schema().json())
    assert isinstance(found, T.StructType)
    return found


def fields_of(attributes: Iterable[JavaObject]) -> list[T.StructField]:
    """The names, types and metadata of ``attributes``."""
    return list(schema_of(relation(attributes)).fields)


def parts_of(condition: JavaObject) -> list[JavaObject]:
    """What it says all of."""
    if kind_of(condition) != "And":
        return [condition]
    return [part for child in seq_items(condition.children()) for part in parts_of(child)]


def has_sub_query(tree: JavaObject, pattern: str = "PLAN_EXPRESSION") -> bool:
    """Whether an expression is or has one, of this kind, or a node has such expressions."""
    return bool(tree.containsPattern(getattr(java_class(f"{CATALYST}.trees.TreePattern"), pattern)()))


def all_of(conditions: Iterable[JavaObject]) -> JavaObject:
    return reduce(expression_class("And"), conditions)


def walk(node: JavaObject) -> Iterator[JavaObject]:
    """``node`` and all nodes below it; not those of sub-queries."""
    yield node
    for child in seq_items(node.children()):
        yield from walk(child)


def is_stream_join(node: JavaObject) -> bool:
    """Whether it joins two streams."""
    return kind_of(node) == "Join" and bool(node.left().isStreaming() and node.right().isStreaming())


def java_type(kind: T.DataType) -> JavaObject:
    return java_class(_DATA_TYPE).fromJson(kind.json())


def new_attributes(schema: T.StructType) -> tuple[JavaObject, ...]:
    """Attributes of new ids."""
    return tuple(seq_items(java_class(_TO_ATTRIBUTES).toAttributes(java_type(schema))))


def control_attributes() -> tuple[JavaObject, JavaObject]:
    """Of the two control columns. A translation has one pair, wherever the columns are."""
    tag, control = new_attributes(T.StructType().add(TAG, T.LongType()).add(CTL, T.BinaryType()))
    return tag, control


def relation(attributes: Iterable[JavaObject]) -> JavaObject:
    """A leaf without rows that has these attributes: a node is analysed over it."""
    return plan_class("LocalRelation")(to_seq(attributes), to_seq(()), True, java_class(OPTION).empty())


def project(expressions: Iterable[JavaObject], child: JavaObject) -> JavaObject:
    return plan_class("Project")(to_seq(expressions), child)


def filtered(condition: JavaObject, child: JavaObject) -> JavaObject:
    return plan_class("Filter")(condition, child)


def with_ids(plan: JavaObject, attributes: Sequence[JavaObject]) -> JavaObject:
    """The columns of ``plan``, by their places, under the ids of ``attributes``."""
    found = output_of(plan)
    if [attribute_id(a) for a in found] == [attribute_id(a) for a in attributes]:
        return plan
    return project([under_id(new, old) for new, old in zip(found, attributes, strict=True)], plan)


def under_id(value: JavaObject, attribute: JavaObject) -> JavaObject:
    """``value`` as the column that ``attribute`` refers to."""
    identity = attribute.name(), attribute.exprId(), attribute.qualifier()
    return expression_class("Alias")(value, *identity, java_class(OPTION).empty(), to_seq(()))


def named_as(value: JavaObject, name: str) -> JavaObject:
    """``value`` as a new column of that name."""
    new_id = java_class(f"{_EXPRESSIONS}.NamedExpression").newExprId()
    return expression_class("Alias")(value, name, new_id, to_seq(()), java_class(OPTION).empty(), to_seq(()))


def resolved(df: SparkDF, columns: Sequence[Column]) -> list[JavaObject]:
    """``columns`` of ``df`` as Spark's analyser resolves them, without names."""
    if not columns:
        return []
    named = [column.alias(f"c{place}") for place, column in enumerate(columns)]
    return [e.child() for e in seq_items(analysed(df.select(*named)).projectList())]


def expression_class(name: str) -> Any:
    return java_class(f"{_EXPRESSIONS}.{name}")


def text_of(expression: JavaObject) -> str:
    """As Spark calls a result without a name: columns without the relations that they are of."""
    util = getattr(java_class(f"{CATALYST}.util.package$"), "MODULE$")
    plain_casts = (False,) if spark_version() >= (4, 1) else ()
    return str(util.toPrettySQL(expression, *plain_casts))


def type_of(expression: JavaObject) -> T.DataType:
    return T._parse_datatype_json_string(expression.dataType().json())


def column_of(expression: JavaObject) -> Column:
    """``expression`` for PySpark's functions."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(java_class(EXPRESSION_UTILS).column(expression))


def expression_of(column: Column) -> JavaObject:
    """What ``column`` was made of."""
    return java_class(EXPRESSION_UTILS).expression(column._jc)


def null_of(expression: JavaObject) -> JavaObject:
    return expression_class("Literal").create(None, expression.dataType())


def plan_class(name: str) -> Any:
    return java_class(f"{_LOGICAL}.{name}")


OWN = "spark_ckpt.method"
"""The tag of a node that stands for a method of ours."""


def tag(node: JavaObject, name: str, value: str) -> JavaObject:
    """``node``, marked: the node itself is changed."""
    node.setTagValue(tree_node_tag(name), value)
    return node


def tag_of(node: JavaObject, name: str) -> str | None:
    found = node.getTagValue(tree_node_tag(name))
    return str(found.get()) if found.isDefined() else None
