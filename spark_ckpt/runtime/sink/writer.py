"""The stream writer: stages rows by epoch on executors, hands the batch to the commit protocol on the driver."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from spark_ckpt.arrow_types import exact_cast
from spark_ckpt.errors import BadRowError, ControlColumnsError, InvalidInputError
from spark_ckpt.faults import reach
from spark_ckpt.jobs.spec import RunSpec, SinkSpec, asked_for, sink_place
from spark_ckpt.protocol import events as ev
from spark_ckpt.runtime._worker_gc import freeze
from spark_ckpt.runtime.operations import Operation, Operations
from spark_ckpt.runtime.stateless import runs_of_tag, split_control
from spark_ckpt.sinks.base import SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.sinks.rejects import rejected
from spark_ckpt.sinks.side_by_side import Call, side_by_side
from spark_ckpt.spark_versions.stream_writer import DataSourceStreamArrowWriter
from spark_ckpt.storage import tally
from spark_ckpt.types import CONTROL_COLUMNS, CTL, Committable, Epoch, epoch_of_tag


@dataclass
class StagedMessage(WriterCommitMessage):
    """What one task tells the driver: what it staged, and the control events that reached it."""

    staged: tuple[Committable, ...]
    events: tuple[bytes, ...]
    rows: int = field(default=0, kw_only=True)
    """How many each sink was given."""


def require_control_columns(schema: StructType) -> None:
    """Raise ``ControlColumnsError`` unless both control columns are there. Called before the query starts."""
    missing = [c for c in CONTROL_COLUMNS if c not in schema.fieldNames()]
    if missing:
        raise ControlColumnsError(
            f"the DataFrame written has no column(s) {missing}: a plain DataFrame operation lost the barriers. "
            f"Expected both of {list(CONTROL_COLUMNS)}, found {schema.fieldNames()}. Keep them in every select, and "
            f"let no filter drop rows whose {CTL} is not null; or use spark_ckpt.enable(spark).readStream, which does "
            "so by itself."
        )
    names = schema.fieldNames()
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise InvalidInputError(f"column names occur more than once: {twice} among {names}; give each its own")


def sink_rows(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """``rows`` of any layout as a sink gets them: the columns of ``schema``, of its types and in its order."""
    return pa.RecordBatch.from_arrays([exact_cast(rows.column(f.name), f.type) for f in schema], schema=schema)


class CkptStreamWriter(DataSourceStreamArrowWriter):
    """Made anew for each batch, on the driver; pickled to executors for ``write``."""

    def __init__(
        self, run: RunSpec, sinks: tuple[SinkSpec, ...], data_schema: pa.Schema, operations: tuple[Operation, ...] = ()
    ) -> None:
        self.run = run
        self.sinks = sinks
        self.data_schema = data_schema
        self.operations = operations

    # -- executor ----------------------------------------------------------------------------------------------

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        tally.working_for(self.run.url, self.run.generation)
        task = _TaskWriters(self)
        try:
            events: list[bytes] = []
            for batch in Operations(self.operations)(iterator):
                data, control = split_control(batch)
                if control.num_rows:
                    said = control.column(control.schema.get_field_index(CTL)).to_pylist()
                    events.extend(said)
                    task.note(said)
                for tag, rows in runs_of_tag(data):
                    task.write(epoch_of_tag(tag), rows)
            staged = task.prepare_commit()
            return StagedMessage(staged, (*events, *map(ev.encode, _asked())), rows=task.rows)
        finally:
            task.close()

    # -- driver ------------------------------------------------------------------------------------------------

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Once for each batch, again with the same number after a crash. See :mod:`spark_ckpt.protocol.commit`."""
        from spark_ckpt.jobs.committer import committer_for

        freeze()
        tally.working_for(self.run.url, self.run.generation)
        staged, events = _gather(messages)
        events += _asked()
        written = sum(m.rows for m in messages if isinstance(m, StagedMessage))
        committer_for(self.run, self.sinks).commit(batchId, staged, events, written)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """After a failed task or a failed ``commit``. Only what no batch record names is removed here."""
        from spark_ckpt.jobs.committer import committer_for

        staged, _ = _gather(messages)
        committer_for(self.run, self.sinks).abort(batchId, staged)


class _TaskWriters:
    """The sink writers of one task, one for each sink and epoch."""

    def __init__(self, writer: CkptStreamWriter) -> None:
        self._writer = writer
        place = sink_place(writer.run.config, writer.run.job)
        self._sinks: dict[str, TwoPhaseSink] = {s.id: s.make(place) for s in writer.sinks}
        self._open: dict[tuple[str, int], SinkWriter] = {}
        self._attempt = uuid.uuid4().hex[:12]
        self._asked = asked_for(writer.sinks)
        self._rejects = {s.refused_by: s for s in writer.sinks if s.refused_by is not None}
        self._rejecting = Lock()
        self.rows = 0

    def write(self, epoch: Epoch, rows: pa.RecordBatch) -> None:
        plain = sink_rows(rows, self._writer.data_schema)
        self.rows += plain.num_rows
        for spec in self._asked:
            self._for(spec, epoch).write(plain)

    def _refuse(self, spec: SinkSpec, epoch: Epoch, rows: pa.Table, error: BadRowError) -> None:
        """A row that the sink ``spec`` does not take; sinks that prepare side by side may call it at the same time."""
        with self._rejecting:
            self._for(self._rejects[spec.id], epoch).write(rejected(rows, [error], spec.id, epoch))

    def note(self, events: list[bytes]) -> None:
        """A sink whose rows are replaced has a writer for each checkpoint: that there are no rows is news to it."""
        replaced = [spec for spec in self._writer.sinks if self._sinks[spec.id].replacing]
        for event in map(ev.decode, events if replaced else ()):
            if isinstance(event, ev.Barrier):
                for spec in replaced:
                    self._for(spec, Epoch(event.checkpoint))

    def _for(self, spec: SinkSpec, epoch: Epoch) -> SinkWriter:
        key = (spec.id, epoch)
        if key not in self._open:
            self._open[key] = self._sinks[spec.id].writer(self._context(spec, epoch))
        return self._open[key]

    def _context(self, spec: SinkSpec, epoch: Epoch) -> WriterContext:
        task = TaskContext.get()
        assert task is not None
        run = self._writer.run
        refused = partial(self._refuse, spec, epoch) if spec.id in self._rejects else None
        return WriterContext(
            job=run.identity,
            sink=spec.id,
            generation=run.generation,
            epoch=epoch,
            batch=int(task.getLocalProperty("streaming.sql.batchId") or 0),
            partition=task.partitionId(),
            attempt=self._attempt,
            schema=spec.rows(self._writer.data_schema),
            replacing=self._sinks[spec.id].replacing,
            refused=refused,
        )

    def prepare_commit(self) -> tuple[Committable, ...]:
        """Those that get what others refuse come last: preparing may be when a row is refused."""
        ids = {s.id for s in self._asked}
        asked = self._prepared([w for w in sorted(self._open.items()) if w[0][0] in ids])
        return asked + self._prepared([w for w in sorted(self._open.items()) if w[0][0] not in ids])

    def _prepared(self, writers: Sequence[tuple[tuple[str, int], SinkWriter]]) -> tuple[Committable, ...]:
        prepared = side_by_side([Call(partial(_prepare, w), type(self._sinks[sink])) for (sink, _), w in writers])
        staged: list[Committable] = []
        for ((sink, epoch), _), outcome in zip(writers, prepared, strict=True):
            if outcome.error is not None:
                raise outcome.error
            staged.extend(Committable(sink, Epoch(epoch), data) for data in outcome.value or ())
        return tuple(staged)

    def close(self) -> None:
        for writer in self._open.values():
            writer.close()


def _asked() -> list[ev.Event]:
    """What this process has asked of storage, in tasks before this one, too."""
    asked = tally.taken()
    return [ev.Asked(asked)] if asked else []


def _prepare(writer: SinkWriter) -> Sequence[bytes]:
    data = writer.prepare_commit()
    reach("after PrepareCommit")
    return data


def _gather(messages: list[WriterCommitMessage | None]) -> tuple[list[Committable], list[ev.Event]]:
    staged: list[Committable] = []
    events: list[ev.Event] = []
    for message in messages:
        if isinstance(message, StagedMessage):
            staged.extend(message.staged)
            events.extend(ev.decode(e) for e in message.events)
    return staged, events
