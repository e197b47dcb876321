"""What both translations have in common: a walk over what a user wrote, which makes rows of each node. Driver.

A node is Spark's of the JVM in :mod:`spark_ckpt.plan.analysed`, and a relation of the client's in
:mod:`spark_ckpt.plan.relations`. What has to be done with it is the same, so handlers are written once, over this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from pyspark.sql import Column
from pyspark.sql import types as T

from spark_ckpt.execution.chain import Chain, Recipe, StreamRows
from spark_ckpt.execution.job_graph import Step
from spark_ckpt.execution.lineage import Stays, place_of_rows
from spark_ckpt.execution.refused_types import refuse_without_arrow
from spark_ckpt.names import free
from spark_ckpt.runtime.operations import Operation, Renamed
from spark_ckpt.runtime.stateless import with_control

Node = Any
R = TypeVar("R", bound=StreamRows)
Over = Callable[[Node], Node]
"""From a node with the control columns to what becomes of it."""


class Walked(ABC, Generic[R]):
    """One walk over one plan."""

    def __init__(self, session: Any) -> None:
        self.session, self.spark = session, session.spark
        self.uses_of_uids: Counter[tuple[str, Any]] = Counter()
        self.steps: list[Step] = []
        """Of the nodes that were walked, those that no other has as its input."""

    def rows(self, node: Node) -> R:
        """What ``node`` puts out."""
        beside, self.steps = self.steps, []
        made = self.made(node)
        self.steps = [*beside, Step(self.kind(node), partial(self.said, node), self.steps, made.lineage)]
        return made

    # -- what a node says --------------------------------------------------------------------------------------

    @abstractmethod
    def made(self, node: Node) -> R:
        """See :meth:`rows`."""

    def said(self, node: Node) -> str:
        """One line of ``node``, for people."""
        return self.kind(node)

    @abstractmethod
    def child(self, node: Node) -> Node:
        """What ``node`` reads, if that is one."""

    @abstractmethod
    def kind(self, node: Node) -> str:
        """What the ledger, or the table of relations, knows ``node`` by."""

    @abstractmethod
    def schema(self, node: Node) -> T.StructType:
        """The names, types and metadata of what ``node`` puts out. Raises as Spark does."""

    @abstractmethod
    def reads_stream(self, node: Node) -> bool:
        """Whether a stream is among what ``node`` reads."""

    @abstractmethod
    def uid(self, node: Node) -> str | None:
        """The uid of an operator's node; None: a start derives one."""

    # -- rows that become of it ----------------------------------------------------------------------------------

    @abstractmethod
    def put_out(self, node: Node, made: StreamRows) -> R:
        """``made``, with the columns that ``node`` puts out."""

    @abstractmethod
    def handed_on(self, node: Node, rows: R, made: StreamRows) -> R:
        """``made``, with the columns of ``rows``, which ``node`` hands on as they are."""

    @abstractmethod
    def of_operator(self, made: StreamRows) -> R:
        """``made``, with columns of its own that are no node's."""

    @abstractmethod
    def column(self, rows: R, name: str) -> Column:
        """One of the columns, by its name in ``rows.schema``."""

    @abstractmethod
    def computed(self, rows: R, columns: Mapping[str, Column]) -> R:
        """These columns over ``rows``, in the place of all others, under these names."""

    @abstractmethod
    def wider(self, rows: R, columns: Mapping[str, Column]) -> R:
        """``rows`` with these columns behind the others, under these names."""

    @abstractmethod
    def over_frame(self, node: Node, rows: R, frame: Any, over: Over) -> Any:
        """What ``over`` makes of ``frame``, which has the columns of ``rows`` and the control columns behind them."""

    @abstractmethod
    def renamed_frame(self, frame: Any, names: Sequence[str]) -> Any:
        """``frame``, whose columns are called ``names``, by their places."""

    def with_names(self, rows: R, names: Sequence[str]) -> R:
        """``rows``, whose columns are called so in operators."""
        if list(names) == rows.schema.names:
            return rows
        schema = renamed(rows.schema, names)
        full = with_control(schema)

        def make(ctx: Any) -> Chain:
            chain = ctx.chain(rows.recipe)
            return chain.either(Renamed(full.names), lambda frame: self.renamed_frame(frame, full.names), full)

        return replace(rows, recipe=Recipe(make, (rows.recipe,)), schema=schema)

    def with_own_names(self, rows: R) -> R:
        """``rows``, a second column of a name under a name of its own: operators and their state go by names."""
        return self.with_names(rows, own_names(rows.schema.names))

    def carried_step(self, node: Node, rows: R, over: Over, stays: Stays) -> R:
        """What ``node`` makes of ``rows`` in Spark, where ``over`` gives it over a child with control columns."""
        schema, parent = self.schema(node), rows.recipe
        full = with_control(schema)

        def make(ctx: Any) -> Chain:
            return Chain(self.over_frame(node, rows, ctx.frame(parent), over), full)

        places = (*rows.lineage.places, place_of_rows(self.kind(node), stays))
        return self.put_out(node, StreamRows(Recipe(make, (parent,)), replace(rows.lineage, places=places), schema))


def python_step(rows: StreamRows, operation: Operation, schema: T.StructType) -> StreamRows:
    """``operation`` of ours over ``rows``, in Python wherever they are. Raises ``InvalidInputError`` for a column of a
    type that Arrow has not."""
    refuse_without_arrow(rows.schema)
    full, parent = with_control(schema), rows.recipe
    return StreamRows(Recipe(lambda ctx: ctx.chain(parent).then(operation, full), (parent,)), rows.lineage, schema)


def own_names(names: Iterable[str]) -> list[str]:
    """``names``, a second one of a name with a number."""
    found: list[str] = []
    for name in names:
        found.append(free(name, found))
    return found


def renamed(schema: T.StructType, names: Iterable[str]) -> T.StructType:
    """``schema``, whose columns are called ``names``."""
    fields = zip(names, schema.fields, strict=True)
    return T.StructType([T.StructField(n, f.dataType, True, f.metadata) for n, f in fields])
