"""What the handlers of relations get: the walk that they are part of, and what it asks the server. Driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pyspark.sql import types as T
from pyspark.sql.connect import plan as P
from pyspark.sql.connect.dataframe import DataFrame

from spark_ckpt.plan._keyed_operator import Upstream
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.columns import free, is_case_sensitive
from spark_ckpt.plan.lineage import Lineage
from spark_ckpt.plan.relations._names import TEXTS
from spark_ckpt.plan.relations._tree import children_of, cut_off, kind_of
from spark_ckpt.plan.relations.leaves import stream_of
from spark_ckpt.runtime.operations import Renamed
from spark_ckpt.runtime.stateless import with_control

Relation = Any


@dataclass(frozen=True)
class Part:
    """Of the rows of a join, the columns that ``plan`` had, by their place: what that calls them. ``same``: its other
    columns whose values are those of another part's, in that place."""

    plan: Relation
    columns: Mapping[int, str]
    same: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Rows:
    """The rows that a relation puts out: how they are made, and the relation as the client has it.

    ``schema`` is that of the rows, control columns aside. ``shown`` are the names that the relation's columns have: an
    operator has others where a name comes twice. ``parts``: whose columns they are, behind a join of streams.
    """

    recipe: Recipe
    lineage: Lineage
    plan: Relation
    schema: T.StructType
    shown: tuple[str, ...]
    parts: tuple[Part, ...] = ()

    def upstream(self) -> Upstream:
        return Upstream(self.recipe, self.lineage, self.schema, lambda ctx: ctx.chain(self.recipe))


class Translation(ABC):
    """One walk over one tree."""

    def __init__(self, session: Any) -> None:
        self.session, self.spark = session, session.spark
        self.uses_of_uids: Counter[tuple[str, int]] = Counter()
        self._schemas: dict[int, tuple[Relation, T.StructType]] = {}
        self._streams: dict[int, tuple[Relation, bool]] = {}

    @abstractmethod
    def rows(self, node: Relation) -> Rows:
        """What ``node`` puts out."""

    def frame(self, node: Relation) -> DataFrame:
        return DataFrame(node, self.spark)

    def schema(self, node: Relation) -> T.StructType:
        """As the server analyses it, with what is noted of the columns. Raises as Spark does."""
        if id(node) not in self._schemas:
            self._schemas[id(node)] = node, self.frame(node).schema
        return self._schemas[id(node)][1]

    def reads_stream(self, node: Relation) -> bool:
        """Whether a stream is among what ``node`` reads. Of tables and texts by name the server is asked."""
        if id(node) not in self._streams:
            self._streams[id(node)] = node, self._reads_stream(node)
        return self._streams[id(node)][1]

    def _reads_stream(self, node: Relation) -> bool:
        if stream_of(node) is not None or getattr(node, "_is_streaming", False):
            return True
        if kind_of(node) in (*TEXTS, "Read"):
            return bool(self.frame(node).isStreaming)
        return any(map(self.reads_stream, children_of(node)))

    @cached_property
    def case_sensitive(self) -> bool:
        return is_case_sensitive(self.spark)

    def same_name(self, one: str, other: str) -> bool:
        return one == other if self.case_sensitive else one.lower() == other.lower()


def rows_of(recipe: Recipe, lineage: Lineage, plan: Relation, schema: T.StructType) -> Rows:
    return Rows(recipe, lineage, plan, schema, tuple(schema.names))


def own_names(names: Sequence[str]) -> list[str]:
    """``names``, a second one of a name with a number."""
    found: list[str] = []
    for name in names:
        found.append(free(name, found))
    return found


def with_own_names(rows: Rows) -> Rows:
    """``rows``, a second column of a name under a name of its own: operators and their state go by names."""
    return with_names(rows, own_names(rows.schema.names))


def with_names(rows: Rows, names: list[str]) -> Rows:
    """``rows``, whose columns are called so in operators."""
    if names == rows.schema.names:
        return rows
    schema = renamed(rows.schema, names)
    full = with_control(schema)

    def make(ctx: Any) -> Chain:
        def in_spark(frame: DataFrame) -> DataFrame:
            return DataFrame(cut_off(P.ToDF(frame._plan, full.names)), frame.sparkSession)

        return ctx.chain(rows.recipe).either(Renamed(full.names), in_spark, full)

    return replace(rows, recipe=Recipe(make, (rows.recipe,)), schema=schema)


def renamed(schema: T.StructType, names: Sequence[str]) -> T.StructType:
    fields = zip(names, schema.fields, strict=True)
    return T.StructType([T.StructField(n, f.dataType, True, f.metadata) for n, f in fields])
