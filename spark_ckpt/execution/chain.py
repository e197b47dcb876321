"""Operator chaining: Python operations that follow each other run in one Python worker, without the JVM between them.

A recipe of a DataFrame makes a :class:`Chain`: a source or a Spark DataFrame, and the Python operations behind it that
have no stage of their own yet. Whoever comes next takes them along if it runs in Python too (the pack stage, the sink
writer), or has them placed: into the source's own tasks, or into one ``mapInArrow``. So rows of a source that is
grouped by its own columns never become JVM rows. The idea and the name are Flink's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql.types import StructField, StructType

from spark_ckpt.execution.lineage import Lineage, OperatorNode, SourceNode
from spark_ckpt.runtime.lazy_batch import RowOperation
from spark_ckpt.runtime.operations import Operation, Operations, Renamed, row_by_row
from spark_ckpt.runtime.stateless import nullable

InSpark = Callable[[Any], Any]
"""An operation, on a Spark DataFrame."""
_PLAIN = re.compile(r"[^.`*]+", re.DOTALL)
"""Names that ``df[name]`` takes for what they are."""


@dataclass(frozen=True)
class Chain:
    """``head`` is a Spark DataFrame or a source; ``schema`` is that of the rows behind ``operations``. Driver."""

    head: Any
    schema: StructType
    operations: tuple[Operation, ...] = ()
    before: Chain | None = None
    """In front of the last operation."""
    in_spark: InSpark | None = None
    """The last operation as Spark does it, if it can."""

    @property
    def open(self) -> bool:
        """Whether a Python operation would run in a Python worker that is there anyhow."""
        return bool(self.operations) or isinstance(self.head, SourceNode)

    def then(self, operation: Operation, schema: StructType) -> Chain:
        operations = (*self.operations, operation)
        schema = nullable(schema)
        return replace(self, schema=schema, operations=operations, before=self, in_spark=None)

    def either(self, operation: Operation, in_spark: InSpark, schema: StructType) -> Chain:
        """What both can do, where the rows are: it is no reason to leave Python, nor to go there."""
        if not self.open:
            return Chain(in_spark(self.head), schema)
        return replace(self.then(operation, schema), in_spark=in_spark)

    def left_to_spark(self) -> tuple[Chain, list[InSpark]]:
        """For who goes on in Spark: the chain without the last operations that Spark can do as well, and those, from
        the first that may fail. There it fails only for rows and columns that are asked for behind it."""
        chain, steps = self._in_front(lambda step: step.in_spark is not None)
        return chain, [step.in_spark for step in steps if step.in_spark is not None]

    def left_to_python(self) -> tuple[Chain, list[RowOperation]]:
        """The same for the next stage in Python."""
        chain, steps = self._in_front(lambda step: bool(row_by_row(step.operations[-1])))
        return chain, [one for step in steps for one in row_by_row(step.operations[-1])]

    def _in_front(self, movable: Callable[[Chain], bool]) -> tuple[Chain, list[Chain]]:
        """What is in front of the first operation that may fail, of the last that are ``movable``, and the chain with
        each of those as its last."""
        found: tuple[Chain, list[Chain]] = self, []
        step, steps = self, list[Chain]()
        while step.before is not None and movable(step):
            steps.insert(0, step)
            if getattr(step.operations[-1], "fails", False):
                found = step.before, list(steps)
            step = step.before
        return found


@dataclass(frozen=True, eq=False)
class Recipe:
    """How to build a stream, when job, generation and restore point are known. ``make`` gets the build context.

    ``operators`` are the keyed operators that it adds to its parents.
    """

    make: Callable[[Any], Chain]
    parents: tuple[Recipe, ...] = field(default=())
    operators: tuple[OperatorNode, ...] = ()

    def consumers(self) -> dict[Recipe, int]:
        """How many times each recipe that this one needs is used."""
        found: dict[Recipe, int] = {}
        todo = [self]
        while todo:
            for parent in todo.pop().parents:
                if parent not in found:
                    todo.append(parent)
                found[parent] = found.get(parent, 0) + 1
        return found


@dataclass(frozen=True)
class StreamRows:
    """Rows of a stream: how they are made, what flows into them, and their columns without the control columns."""

    recipe: Recipe
    lineage: Lineage
    schema: StructType


def in_python(
    df: Any, operations: tuple[Operation, ...], schema: StructType, barrier: bool = False, profile: Any = None
) -> Any:
    """``operations`` over the rows of ``df``, in one ``mapInArrow``; ``barrier`` and ``profile`` are its own. Driver.

    PySpark's looks up each column by its name as ``df[name]``, which a dot or a backtick makes something else, and a
    second column of the name ambiguous. So such names do not go there: Python gets them back in front of the first
    operation.
    """
    names = list(df.columns)
    if not all(_PLAIN.fullmatch(name) for name in names) or _repeated(names):
        df, operations = df.toDF(*[f"c{i}" for i in range(len(names))]), (Renamed(names), *operations)
    return df.mapInArrow(Operations(operations), schema, barrier, profile)


def with_names_of_their_own(chain: Chain) -> Chain:
    """Behind a join two columns may have one name, which Spark does not take from Python."""
    names = chain.schema.fieldNames()
    if not _repeated(names):
        return chain
    apart = [f"c{i}" for i in range(len(names))]
    pairs = zip(apart, chain.schema.fields, strict=True)
    fields = [StructField(name, f.dataType, True, f.metadata) for name, f in pairs]
    return chain.then(Renamed(apart), StructType(fields))


def _repeated(names: list[str]) -> bool:
    return len({name.lower() for name in names}) < len(names)
