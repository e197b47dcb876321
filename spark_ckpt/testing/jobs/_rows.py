"""Sources and a sink in memory, for jobs under test."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.sinks.base import SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.spark_versions.read_limits import ReadLimit, SupportsTriggerAvailableNow
from spark_ckpt.types import CheckpointId, CommitPermit, Committable

Row = dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """What a source of a job under test has: ``rows`` in order, as tuples or dicts of the columns of ``schema``.

    ``partitions``: as of a topic in Kafka. Row ``i`` is in partition ``i % partitions``; only rows of one partition
    keep their order. ``schema`` is a ``StructType`` or a text such as ``"merchant string, cents long"``.
    """

    schema: StructType | str
    rows: Sequence[Sequence[Any] | Row] = ()
    partitions: int = 1

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise InvalidInputError(f"Rows: expected at least one partition, found {self.partitions}")

    @property
    def struct(self) -> StructType:
        return parse_ddl(self.schema) if isinstance(self.schema, str) else self.schema

    def tables(self) -> list[pa.Table]:
        """The rows of each partition."""
        schema, dicts = arrow_schema(self.struct), [self._as_dict(row) for row in self.rows]
        return [pa.Table.from_pylist(dicts[i :: self.partitions], schema=schema) for i in range(self.partitions)]

    def _as_dict(self, row: Sequence[Any] | Row) -> Row:
        names = self.struct.names
        if isinstance(row, Mapping):
            unknown = sorted(set(row) - set(names))
            if unknown:
                raise InvalidInputError(f"Rows: expected the columns {names}, found {unknown} in a row")
            return dict(row)
        if len(row) != len(names):
            raise InvalidInputError(f"Rows: expected {len(names)} values in each row, {names}, found {len(row)}")
        return dict(zip(names, row, strict=True))


@dataclass
class Feed:
    """The rows that a source has by now, by partition, and how far it reads in one batch."""

    schema: StructType
    tables: list[pa.Table]
    step: int

    @classmethod
    def of(cls, rows: Rows) -> Feed:
        """Some four batches read all."""
        tables = rows.tables()
        return cls(rows.struct, tables, max(1, -(-max(t.num_rows for t in tables) // 4)))

    def add(self, rows: Sequence[Any]) -> None:
        given = Rows(self.schema, rows, len(self.tables)).tables()
        self.tables = [pa.concat_tables(both) for both in zip(self.tables, given, strict=True)]

    @property
    def ends(self) -> list[int]:
        return [table.num_rows for table in self.tables]


@dataclass
class _Split(InputPartition):
    number: int
    begin: int
    end: int

    def __post_init__(self) -> None:
        super().__init__(None)


class MemorySource(DataSource):
    """Reads the ``feed`` of a class that :func:`source_of` makes."""

    feed: ClassVar[Feed]
    steps: ClassVar[Any]
    """Draws how far the next batch reads, of the most that it may."""

    @classmethod
    def name(cls) -> str:
        return "memory"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Reader(self.feed, self.steps)


def source_of(name: str, feed: Feed, steps: Any) -> type[MemorySource]:
    """A source class of its own, as sources are told apart by their classes' names."""
    return type(name, (MemorySource,), {"feed": feed, "steps": staticmethod(steps)})


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, feed: Feed, steps: Any) -> None:
        self._feed, self._steps = feed, steps

    def initialOffset(self) -> dict[str, Any]:
        return {"at": [0 for _ in self._feed.tables]}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        at, ends = start["at"], self._feed.ends
        ahead = [min(end, p + self._steps(self._feed.step)) for p, end in zip(at, ends, strict=True)]
        short = [i for i, end in enumerate(ends) if at[i] < end]
        if short and all(ahead[i] == at[i] for i in short):
            ahead[short[0]] += 1  # a source that has rows gives some
        return {"at": ahead}

    def prepareForTriggerAvailableNow(self) -> None:
        """Its rows are all there."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ranges = enumerate(zip(start["at"], end["at"], strict=True))
        return [_Split(i, a, b) for i, (a, b) in ranges if a < b]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Split)
        rows = self._feed.tables[partition.number].slice(partition.begin, partition.end - partition.begin)
        yield from rows.combine_chunks().to_batches()


# --- the sink ------------------------------------------------------------------------------------------------------


@dataclass
class Target:
    """What a :class:`CollectSink` wrote: rows that readers see, rows that wait, and which checkpoints are shown."""

    shown: list[Row] = field(default_factory=list)
    staged: dict[bytes, list[Row]] = field(default_factory=dict)
    done: dict[tuple[str, str, int], set[bytes]] = field(default_factory=dict)


TARGETS: dict[str, Target] = {}


class CollectSink(TwoPhaseSink):
    """A sink in this process's memory, which survives the crashes of a job under test. Option: ``target``, a name."""

    OPTIONS: ClassVar[tuple[str, ...]] = ("target",)

    @property
    def _target(self) -> Target:
        return TARGETS.setdefault(self.options["target"], Target())

    def writer(self, ctx: WriterContext) -> SinkWriter:
        return _Writer(self._target, ctx)

    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        target, data = self._target, [c.data for c in committables]
        key = (str(permit.job), committables[0].sink, int(permit.checkpoint))
        if key in target.done:
            if target.done[key] != set(data):
                raise InvalidInputError(f"checkpoint {permit.checkpoint} is here with other contents")
            return
        missing = [d for d in data if d not in target.staged]
        if missing:
            raise CorruptStorageError(f"{len(missing)} staged parts are missing; nothing was committed")
        for d in data:
            target.shown += target.staged.pop(d)
        target.done[key] = set(data)

    def newest_checkpoint(self, job: str, sink: str) -> int | None:
        return max((k for j, s, k in self._target.done if (j, s) == (job, sink)), default=0)

    def abort(self, committables: Sequence[Committable]) -> None:
        for c in committables:
            self._target.staged.pop(c.data, None)

    def gc(self, job: str, keep: Sequence[Committable]) -> list[str]:
        kept = {c.data for c in keep}
        lost = [d for d in self._target.staged if d not in kept and d.startswith(job.encode())]
        for d in lost:
            del self._target.staged[d]
        return [d.decode() for d in lost]

    def forget(self, job: str, oldest: CheckpointId) -> list[str]:
        return []


class _Writer(SinkWriter):
    def __init__(self, target: Target, ctx: WriterContext) -> None:
        self._target, self._ctx, self._rows = target, ctx, list[Row]()

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.to_pylist()

    def prepare_commit(self) -> Sequence[bytes]:
        ctx = self._ctx
        data = f"{ctx.job}|{ctx.epoch}|{ctx.batch}|{ctx.partition}|{ctx.attempt}".encode()
        self._target.staged[data] = self._rows
        return [data] if self._rows else []

    def close(self) -> None: ...


class Pickled:
    """A value that each task gets a copy of, as Spark pickles it once and gives it to tasks in other processes.

    What cannot change is not copied: it is half of what there is to read.
    """

    def __init__(self, value: Any) -> None:
        self._shared: list[Any] = []
        out = io.BytesIO()
        _Pickler(out, self._shared).dump(value)
        self._data = out.getvalue()

    def copy(self) -> Any:
        reader = pickle.Unpickler(io.BytesIO(self._data))  # noqa: S301 - what this process made
        reader.persistent_load = self._shared.__getitem__  # type: ignore[method-assign]
        return reader.load()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, out: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(out)
        self._shared = shared

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, _NEVER_CHANGE):
            return None
        self._shared.append(value)
        return len(self._shared) - 1


_NEVER_CHANGE = (RunSpec, pa.Schema)
