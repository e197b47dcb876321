"""Operator chaining: Python steps that follow each other run in one Python worker, without the JVM between them.

A recipe of a DataFrame makes a :class:`Chain`: a source or a Spark DataFrame, and the Python steps behind it that have
no stage of their own yet. Whoever comes next takes the steps along if it runs in Python too (the pack stage, the sink
writer), or has them placed: into the source's own tasks, or into one ``mapInArrow``. So rows of a source that is
grouped by its own columns never become JVM rows. The idea and the name are Flink's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_ckpt.spark.lineage import SourceNode
from spark_ckpt.spark.worker_gc import settle
from spark_ckpt.state.envelope import MAX_BODY_BYTES
from spark_ckpt.state.ipc import from_bytes, messages

Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""From a task's record batches to those of the next step. Pickled to every task; called once a task."""

ENCLOSED = pa.schema([("body", pa.binary())])
"""Of what :class:`Enclose` makes."""

_PLAIN = re.compile(r"[^.`*]+", re.DOTALL)
"""Names that ``df[name]`` takes for what they are."""


@dataclass(frozen=True)
class Chain:
    """``head`` is a Spark DataFrame or a source; ``schema`` is that of the rows behind ``steps``. Driver."""

    head: Any
    schema: StructType
    steps: tuple[Step, ...] = ()

    @property
    def open(self) -> bool:
        """Whether a Python step would run in a Python worker that is there anyhow."""
        return bool(self.steps) or isinstance(self.head, SourceNode)

    def then(self, step: Step, schema: StructType) -> Chain:
        return replace(self, schema=schema, steps=(*self.steps, step))

    def either(self, step: Step, in_spark: Callable[[Any], Any], schema: StructType) -> Chain:
        """What both can do, where the rows are: it is no reason to leave Python, nor to go there."""
        return self.then(step, schema) if self.open else Chain(in_spark(self.head), schema)


@dataclass(frozen=True, eq=False)
class Recipe:
    """How to build a stream, when job, generation and restore point are known. ``make`` gets the build context."""

    make: Callable[[Any], Chain]
    parents: tuple[Recipe, ...] = field(default=())

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


class Steps:
    """Several steps as one function: what a Python stage does with its task's batches."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for step in self.steps:
            batches = step(batches)
        return batches


class Renamed:
    """Give the columns names, by position."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (batch.rename_columns(self.names) for batch in batches)


def in_python(df: Any, steps: tuple[Step, ...], schema: StructType) -> Any:
    """``steps`` over the rows of ``df``, in one ``mapInArrow``. Driver.

    PySpark's looks up each column by its name as ``df[name]``, which a dot or a backtick makes something else. So such
    names do not go there: Python gets them back in front of the first step.
    """
    names = list(df.columns)
    if not all(_PLAIN.fullmatch(name) for name in names):
        df, steps = df.toDF(*[f"c{i}" for i in range(len(names))]), (Renamed(names), *steps)
    return df.mapInArrow(Steps(steps), schema)


class Enclose:
    """Whole record batches as binary rows: between two Python stages the JVM need not turn them into rows and back."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for message in messages(batch, MAX_BODY_BYTES):
                body = pa.array([message.to_pybytes()], pa.binary())
                yield pa.RecordBatch.from_arrays([body], schema=ENCLOSED)


class Disclose:
    """The inverse of :class:`Enclose`."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for body in batch.column("body"):
                yield from_bytes(body.as_buffer(), self.schema)
