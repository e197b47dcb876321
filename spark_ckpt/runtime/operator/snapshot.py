"""The unpack and snapshot stage, right behind the operator in the same task. Executor.

It sees the whole partition: turns envelopes into record batches for what follows, and replaces what its subtasks say
(state files, dead rows, barriers) by one word of this partition: one barrier, one acknowledgement.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from spark_ckpt.jobs.hooks import call_hook
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.reports import Reports
from spark_ckpt.protocol.weights import Arrivals
from spark_ckpt.runtime.operator._subtask_call import DATA
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.runtime.stateless import arrow_schema, spark_schema, with_control
from spark_ckpt.state.ipc import nullable_schema
from spark_ckpt.state.narrow import from_narrow
from spark_ckpt.storage.deletion_vectors import decode_rows, encode_rows
from spark_ckpt.types import make_tag


class SnapshotStage:
    """One instance is pickled to every task; called once with the task's envelopes."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec = spec
        self.schema = arrow_schema(with_control(spark_schema(spec.function.output_schema)))
        self.data_schema = nullable_schema(spec.function.output_schema)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = _Partition(self.spec)
        for batch in batches:
            kinds, epochs, bodies = (batch.column(n) for n in ("kind", "epoch", "body"))
            for i, kind in enumerate(kinds.to_pylist()):
                body = bodies[i].as_buffer()
                if kind == DATA:
                    yield self._data(epochs[i].as_py(), from_narrow(body, self.data_schema))
                else:
                    found.add(ev.decode(body.to_pybytes()))
        events = found.events()
        if events:
            yield self._control(events)

    def _data(self, epoch: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        n = rows.num_rows
        control = [pa.repeat(pa.scalar(make_tag(epoch), pa.int64()), n), pa.nulls(n, pa.binary())]
        return pa.RecordBatch.from_arrays([*rows.columns, *control], schema=self.schema)

    def _control(self, events: list[ev.Event]) -> pa.RecordBatch:
        n = len(events)
        nulls = [pa.nulls(n, f.type) for f in list(self.schema)[:-2]]
        payload = pa.array([ev.encode(e) for e in events], pa.binary())
        return pa.RecordBatch.from_arrays([*nulls, pa.nulls(n, pa.int64()), payload], schema=self.schema)


_SUMS = ("held_bytes", "rows", "size_bytes", "flush_ms", "write_ms")


class _Partition:
    """Everything of one partition that is not data."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec = spec
        task = TaskContext.get()
        self.partition = task.partitionId() if task is not None else 0
        self._tables = frozenset(spec.family_tables.values())
        self._files: dict[tuple[int, str], list[ev.StateFile]] = {}
        self._dead: dict[tuple[int, str], dict[str, bytes]] = {}
        self._acks: dict[tuple[int, str], list[ev.OperatorAck]] = {}
        self._arrived = Arrivals()
        self._declines: dict[int, ev.Decline] = {}
        self._watermarks: dict[tuple[int, str], int] = {}
        self._completed: int | None = None
        self._reports = Reports()
        self._others: list[ev.Event] = []

    def add(self, event: ev.Event) -> None:
        if self._arrived.add(event) or self._reports.add(event):
            return
        if isinstance(event, ev.OperatorAck) and event.uid in self._tables:
            self._acks.setdefault((event.checkpoint, event.uid), []).append(event)
        elif isinstance(event, ev.Decline) and event.uid == self.spec.uid:
            self._declines.setdefault(event.checkpoint, event)
        elif isinstance(event, ev.Watermark):
            key = (event.epoch, event.stream)
            self._watermarks[key] = max(self._watermarks.get(key, event.micros), event.micros)
        elif isinstance(event, ev.Completed):
            self._completed = max(self._completed or 0, event.checkpoint)
        elif isinstance(event, ev.Flushed) and event.uid in self._tables:
            self._files.setdefault((event.epoch, event.uid), []).extend(event.files)
            self._bury(event)
        else:
            self._others.append(event)

    def _bury(self, event: ev.Flushed) -> None:
        """Unite the subtasks' dead rows: a file's rows may belong to several of them."""
        dead = self._dead.setdefault((event.epoch, event.uid), {})
        for file, bitmap in event.dead.items():
            old = dead.get(file)
            dead[file] = bitmap if old is None else encode_rows(decode_rows(old) | decode_rows(bitmap))

    def events(self) -> list[ev.Event]:
        """What the partition says."""
        events: list[ev.Event] = []
        for (epoch, table), files in sorted(self._files.items()):
            events.append(ev.Flushed(table, epoch, tuple(files), self._dead[epoch, table]))
        events += [ev.Watermark(s, us, epoch) for (epoch, s), us in sorted(self._watermarks.items())]
        for (checkpoint, table), subtasks in sorted(self._acks.items()):
            events.append(self._acknowledge(checkpoint, table, subtasks))
        events += self._arrived.events()
        events += [] if self._completed is None else [ev.Completed(self._completed)]
        return [*events, *self._declines.values(), *self._reports.events(), *self._others]

    def _acknowledge(self, checkpoint: int, table: str, subtasks: list[ev.OperatorAck]) -> ev.OperatorAck:
        """One word of the partition, for each table. Its subtasks run one after the other: what they spend adds up."""
        manifests = {g: m for a in subtasks for g, m in a.groups.items()}
        together = {name: sum(a.stats[name] for a in subtasks) for name in _SUMS}
        waited = {name: max(a.stats[name] for a in subtasks) for name in ("start_delay_ms", "alignment_ms")}
        stats = {**waited, **together, "keys": sum(m.keys for m in manifests.values())}
        run, info = self.spec.run, {"uid": table, "partition": self.partition, **stats}
        call_hook(run.config, run.job, "on_snapshot", checkpoint, info)
        return ev.OperatorAck(table, checkpoint, self.partition, manifests, stats)
