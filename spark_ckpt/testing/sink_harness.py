"""What the sink conformance suite stages, commits and crashes with; of use for tests of one sink, too."""

from __future__ import annotations

import datetime as dt
import os
import pickle
import subprocess
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from spark_ckpt.protocol.permit import permit_for
from spark_ckpt.protocol.records import CHECKPOINT, CompletionRecord, Topology
from spark_ckpt.sinks.base import TwoPhaseSink, WriterContext
from spark_ckpt.sinks.registry import create_sink
from spark_ckpt.types import CheckpointId, CommitPermit, Committable, Epoch

JOB, SINK = "a job/1", "totals"
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
CHANGES = pa.schema([pa.field("op", pa.string()), *SCHEMA])
"""Change rows: ``op`` says what is done to the row."""
Rows = Sequence[tuple[int, Any]]
KILLED = 9


class SimulatedCrash(BaseException):
    """The process stops here; not an ``Exception``, so that no handler of the sink can swallow it."""


class SinkTarget(ABC):
    """One empty target: a sink (name or class) with the options that lead to it, and how to look at it."""

    secrets: tuple[str, ...] = ()
    """Texts among the options that must not show anywhere."""

    replacing = False
    """Whether the sink is one of output mode complete."""

    is_ordered = True
    """Whether :meth:`read` gives appended rows back in the order they were committed."""

    def __init__(self, sink: str | type[TwoPhaseSink], options: Mapping[str, str]) -> None:
        self.sink = sink
        self.options = dict(options)

    @abstractmethod
    def read(self, schema: pa.Schema) -> pa.Table:
        """What any reader sees now, as ``schema``."""

    @abstractmethod
    def leftovers(self) -> list[str]:
        """Everything staged that is neither visible nor removed."""

    def remembered(self) -> int | None:
        """How many checkpoints the target remembers, of all jobs; None if it is not to forget any."""
        return None

    def make(self) -> TwoPhaseSink:
        """A new sink object, as another process would make it."""
        return create_sink(self.sink, self.options, self.replacing)

    def validated(self, schema: pa.Schema = SCHEMA) -> TwoPhaseSink:
        sink = self.make()
        sink.validate(schema)
        return sink

    def rows(self) -> list[tuple[Any, Any]]:
        table = self.read(SCHEMA)
        found = list(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))
        return found if self.is_ordered else sorted(found)


def context(
    epoch: int, batch: int, partition: int = 0, *, job: str = JOB, sink: str = SINK, schema: pa.Schema = SCHEMA
) -> WriterContext:
    return WriterContext(job, sink, 1, Epoch(epoch), batch, partition, f"{batch}-{partition}-{uuid.uuid4()}", schema)


def stage_table(sink: TwoPhaseSink, ctx: WriterContext, *tables: pa.Table) -> list[Committable]:
    """What one task does with one epoch's rows."""
    writer = sink.writer(replace(ctx, replacing=sink.replacing))
    try:
        for table in tables:
            for batch in table.to_batches():
                writer.write(batch)
        return [Committable(ctx.sink, ctx.epoch, data) for data in writer.prepare_commit()]
    finally:
        writer.close()


def stage(sink: TwoPhaseSink, rows: Rows, epoch: int = 1, batch: int = 1, partition: int = 0) -> list[Committable]:
    return stage_table(sink, context(epoch, batch, partition), table_of(rows))


def stage_changes(
    sink: TwoPhaseSink, rows: Sequence[tuple[str | None, int, Any]], epoch: int = 1, batch: int = 1
) -> list[Committable]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return stage_table(sink, context(epoch, batch, schema=CHANGES), pa.table(columns, schema=CHANGES))


def table_of(rows: Rows) -> pa.Table:
    return pa.table([[k for k, _ in rows], [v for _, v in rows]], schema=SCHEMA)


def permit(checkpoint: int, job: str = JOB, oldest: int | None = None) -> CommitPermit:
    """What the protocol would commit ``checkpoint`` with."""
    topology = Topology(1, 1, (), {}, (SINK,))
    record = CompletionRecord(checkpoint, CHECKPOINT, 1, 1, 0, 0, {}, {}, (), topology, 0, 0)
    return permit_for(record, job, None if oldest is None else CheckpointId(oldest))


def crash_in_commit(target: SinkTarget, allowed: CommitPermit, staged: Sequence[Committable], at: int) -> bool:
    """Commit and crash at the ``at``-th step (from 1); False if the commit has fewer steps."""
    sink, left = target.make(), [at]

    def stop(_: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise SimulatedCrash

    sink.on_step = stop
    try:
        sink.commit(allowed, staged)
    except SimulatedCrash:
        return True
    return False


def commit_elsewhere(
    target: SinkTarget, allowed: CommitPermit, staged: Sequence[Committable], stop_at: int | None = None
) -> int:
    """Commit in a new process, which may kill itself at a step (from 0); its exit code."""
    made = target.sink, target.options, target.replacing
    work = pickle.dumps((made, allowed, list(staged), stop_at))
    code = f"from {__name__} import _commit_here; _commit_here()"
    done = subprocess.run([sys.executable, "-c", code], input=work, capture_output=True, timeout=120, check=False)
    if done.returncode not in (0, KILLED):
        raise AssertionError(f"the other process failed:\n{done.stderr.decode()}")
    return done.returncode


def _commit_here() -> None:
    made, allowed, staged, stop_at = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
    sink = create_sink(*made)
    count = iter(range(1_000_000))

    def stop(_: str) -> None:
        if next(count) == stop_at:
            os._exit(KILLED)

    sink.on_step = stop
    sink.commit(allowed, staged)


_UTC = dt.timezone.utc
_TYPED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), [-128, 127]),
    "short": (pa.int16(), [-(2**15), 2**15 - 1]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [1.5, -0.25]),
    "double": (pa.float64(), [1e300, -1.2345678901234567]),
    "decimal": (pa.decimal128(10, 2), [Decimal("12345678.90"), Decimal("-0.01")]),
    "big decimal": (pa.decimal128(38, 18), [Decimal("12345678901234567890.123456789012345678"), Decimal("-1E-18")]),
    "text": (pa.string(), ['quotes " and \\ and , and \n and \t', "Zürich 漢字 🦆"]),
    "empty": (pa.string(), ["", "null"]),
    "large text": (pa.large_string(), ["x", "y" * 1000]),
    "bytes": (pa.binary(), [b"\x00\xff\\", b""]),
    "date": (pa.date32(), [dt.date(1900, 1, 1), dt.date(2999, 12, 31)]),
    "instant": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, _UTC), dt.datetime(2100, 2, 28, tzinfo=_UTC)],
    ),
    "local time": (pa.timestamp("us"), [dt.datetime(1960, 1, 1, 0, 0, 0, 1), dt.datetime(2024, 2, 29, 12)]),
}
_NESTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "list": (pa.list_(pa.int32()), [[1, None], []]),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
        [{"a": 1, "b": ["x"]}, {"a": None, "b": None}],
    ),
    "map": (pa.map_(pa.string(), pa.float64()), [[("x", 1.5), ("y", None)], []]),
}


def typed_rows(*, nested: bool = True, without: Sequence[str] = ()) -> pa.Table:
    """Two rows of extremes and one of nulls, a column of each type, with an ``id``."""
    columns = {k: v for k, v in {**_TYPED, **(_NESTED if nested else {})}.items() if k not in without}
    arrays = {name: pa.array([*values, None], kind) for name, (kind, values) in columns.items()}
    return pa.table({"id": pa.array([0, 1, 2], pa.int64()), **arrays})
