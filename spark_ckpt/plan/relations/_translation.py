"""What the handlers of relations get: the walk that they are part of, and what it asks the server. Driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import plan as P
from pyspark.sql.connect.dataframe import DataFrame

from spark_ckpt.execution.chain import StreamRows
from spark_ckpt.execution.columns import is_case_sensitive, quoted
from spark_ckpt.execution.spark_errors import unlogged
from spark_ckpt.operators.walks import Walked
from spark_ckpt.plan.relations._names import TEXTS
from spark_ckpt.plan.relations._tree import children_of, cut_off, empty, kind_of
from spark_ckpt.plan.relations.leaves import stream_of

Relation = Any


@dataclass(frozen=True)
class Part:
    """Of the rows of a join, the columns that ``plan`` had, by their place: what that calls them. ``same``: its other
    columns whose values are those of another part's, in that place."""

    plan: Relation
    columns: Mapping[int, str]
    same: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Rows(StreamRows):
    """The rows that a relation puts out, and the relation as the client has it.

    ``shown`` are the names that the relation's columns have: an operator has others where a name comes twice.
    ``parts``: whose columns they are, behind a join of streams.
    """

    plan: Relation
    shown: tuple[str, ...]
    parts: tuple[Part, ...] = ()


class Translation(Walked[Rows]):
    """One walk over one tree."""

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self._schemas: dict[int, tuple[Relation, T.StructType]] = {}
        self._streams: dict[int, tuple[Relation, bool]] = {}

    def child(self, node: Relation) -> Relation:
        return node._child

    def kind(self, node: Relation) -> str:
        return kind_of(node)

    def put_out(self, node: Relation, made: StreamRows) -> Rows:
        return rows_of(made, node)

    def handed_on(self, node: Relation, rows: Rows, made: StreamRows) -> Rows:
        return replace(rows, recipe=made.recipe, lineage=made.lineage, schema=made.schema, plan=node)

    def of_operator(self, made: StreamRows) -> Rows:
        return rows_of(made, empty(made.schema))

    def column(self, rows: Rows, name: str) -> Column:
        return F.col(quoted(rows.shown[rows.schema.names.index(name)]))

    def renamed_frame(self, frame: DataFrame, names: Sequence[str]) -> DataFrame:
        return DataFrame(cut_off(P.ToDF(frame._plan, list(names))), frame.sparkSession)

    def frame(self, node: Relation) -> DataFrame:
        return DataFrame(node, self.spark)

    def schema(self, node: Relation) -> T.StructType:
        """As the server analyses it."""
        if id(node) not in self._schemas:
            self._schemas[id(node)] = node, self.frame(node).schema
        return self._schemas[id(node)][1]

    def resolves(self, node: Relation, c: Column) -> bool:
        """Whether Spark finds all that ``c`` names among the columns of ``node``."""
        try:
            with unlogged():
                return bool(self.schema(P.Project(node, [c])))
        except PySparkException:
            return False

    def reads_stream(self, node: Relation) -> bool:
        """Of tables and texts by name the server is asked."""
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


def rows_of(made: StreamRows, plan: Relation) -> Rows:
    """``made``, as what ``plan`` puts out."""
    return Rows(made.recipe, made.lineage, made.schema, plan, tuple(made.schema.names))
