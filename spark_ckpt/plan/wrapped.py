"""A plain stream inside a user's plan: found, and replaced by another DataFrame with the same columns. Driver.

``ckpt.wrap(df)`` is such a plan as an operation: over a preview it is tried, over the real source it runs. Classic
Spark analyses a plan with the ids of its columns, so what replaces the stream takes over its ids; on Connect the
client's tree has names, and ids of plans.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._java_classes import CATALYST, OPTION, frame_of, java_class, java_package, to_seq
from spark_ckpt.plan.udf_plan import items_of

SparkDF = Any
FORMAT = "ckpt"
_STREAMS = ("StreamingRelationV2", "StreamingRelation", "StreamingExecutionRelation")


@dataclass(frozen=True)
class PlainStream:
    """The one ckpt reader in a plan. ``graft(df)``: the plan with ``df`` in its place; ``bare``: nothing above it."""

    options: dict[str, str]
    schema: StructType
    bare: bool
    graft: Callable[[SparkDF], SparkDF]


def plain_stream(df: SparkDF) -> PlainStream:
    """Raises ``InvalidInputError`` if the plan of ``df`` does not begin with one stream of ``format("ckpt")``."""
    classic = type(df).__module__.startswith("pyspark.sql.classic")
    return _classic(df) if classic else _connect(df)


def _only(found: list[Any], others: bool) -> Any:
    if len(found) != 1 or others:
        raise InvalidInputError(
            "wrap needs a DataFrame that begins with one spark.readStream.format('ckpt')...load(), found "
            f"{len(found)}{' and other streams' if others else ''}. Wrap each stream, and union or join what wrap "
            "gives. On Spark Connect the plan behind a view is not to be seen: wrap the DataFrame, not the view"
        )
    return found[0]


def _refuse_watermark(nodes: Iterator[str]) -> None:
    """A batch has none, so trying the plan would not tell."""
    if {"EventTimeWatermark", "WithWatermark"} & set(nodes):
        raise InvalidInputError(
            "wrap got a stream withWatermark of Spark's, which the operators behind would not hear of: call "
            "withWatermark of the wrapped stream"
        )


def _classic(df: SparkDF) -> PlainStream:
    plan = df._jdf.queryExecution().analyzed()
    _refuse_watermark(node.nodeName() for node in _nodes(plan))
    leaves = [leaf for leaf in _nodes(plan) if leaf.nodeName() in _STREAMS]
    ours = [leaf for leaf in leaves if leaf.nodeName() == _STREAMS[0] and leaf.table().name().lower() == FORMAT]
    leaf = _only(ours, len(leaves) > len(ours))
    schema = StructType.fromJson(json.loads(leaf.schema().json()))

    def graft(new: SparkDF) -> SparkDF:
        return _Grafting(new.sparkSession).frame(plan, leaf, new)

    options = leaf.extraOptions()
    return PlainStream({k: options.get(k) for k in options.keySet()}, schema, plan.fastEquals(leaf), graft)


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in items_of(node.children()):
        yield from _nodes(child)


class _Grafting:
    """Rebuilds a plan of the JVM around another leaf."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._catalyst = java_package(CATALYST)

    def frame(self, plan: Any, leaf: Any, new: SparkDF) -> SparkDF:
        replacement = self._with_ids(new._jdf.queryExecution().analyzed(), leaf)
        return frame_of(self._replaced(plan, leaf, replacement), self._spark)

    def _with_ids(self, plan: Any, leaf: Any) -> Any:
        """The columns of ``plan`` under the ids of those of ``leaf``, by position."""
        none, empty = java_class(OPTION).empty(), to_seq([])
        pairs = zip(items_of(plan.output()), items_of(leaf.output()), strict=True)
        named = [
            self._catalyst.expressions.Alias(new, old.name(), old.exprId(), empty, none, empty) for new, old in pairs
        ]
        return self._catalyst.plans.logical.Project(to_seq(named), plan)

    def _replaced(self, node: Any, leaf: Any, new: Any) -> Any:
        if node.fastEquals(leaf):
            return new
        children = items_of(node.children())
        done = [self._replaced(child, leaf, new) for child in children]
        same = all(d is c for d, c in zip(done, children, strict=True))
        return node if same else node.withNewChildren(to_seq(done))


def _connect(df: SparkDF) -> PlainStream:
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.plan import DataSource, Project

    _refuse_watermark(type(node).__name__ for node in _connect_nodes(df._plan))
    found = list({id(n): n for n in _connect_nodes(df._plan) if isinstance(n, DataSource) and n._is_streaming}.values())
    ours = [n for n in found if (n._format or "").lower() == FORMAT]
    leaf = _only(ours, len(found) > len(ours))

    def graft(new: SparkDF) -> SparkDF:
        from pyspark.sql.connect.functions import col

        stands_for = Project(new._plan, [col("*")])
        stands_for._root_plan_id = leaf._root_plan_id  # what a column of the reader's DataFrame refers to
        return DataFrame(_connect_replaced(df._plan, leaf, stands_for), new.sparkSession)

    options = {**(leaf._options or {}), **({"path": leaf._paths[0]} if leaf._paths else {})}
    schema = DataFrame(leaf, df.sparkSession).schema
    return PlainStream(options, schema, df._plan is leaf, graft)


def _parts(node: Any) -> Iterator[tuple[str, Any]]:
    """The plans among a node's attributes, alone or in lists."""
    from pyspark.sql.connect.plan import LogicalPlan

    for name, value in vars(node).items():
        if isinstance(value, LogicalPlan) or (
            isinstance(value, list | tuple) and value and all(isinstance(v, LogicalPlan) for v in value)
        ):
            yield name, value


def _connect_nodes(node: Any) -> Iterator[Any]:
    yield node
    for _, value in _parts(node):
        for child in value if isinstance(value, list | tuple) else [value]:
            yield from _connect_nodes(child)


def _connect_replaced(node: Any, leaf: Any, new: Any) -> Any:
    if node is leaf:
        return new
    made = copy.copy(node)
    for name, value in list(_parts(node)):
        several = isinstance(value, list | tuple)
        done = [_connect_replaced(child, leaf, new) for child in (value if several else [value])]
        setattr(made, name, type(value)(done) if several else done[0])
    return made
