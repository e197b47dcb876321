"""The pack stage, before the shuffle: rows of one task become one envelope for each subtask. Executor.

The shuffle then carries a few binary rows instead of data rows. Aggregates are combined here first, per epoch and key.
Barriers, cancels, finished lanes and watermarks go into every subtask's envelope; restore rows are split by subtask;
what concerns other stages rides along with one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.reports import Reports
from spark_ckpt.protocol.source_time import windows_stream
from spark_ckpt.protocol.weights import Arrivals
from spark_ckpt.runtime.lazy_batch import Read
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.runtime.stateless import latest_micros, runs_of_tag, split_control
from spark_ckpt.state.envelope import Controls, pack, route
from spark_ckpt.state.functions.base import StateFunction
from spark_ckpt.state.keys.spark_hash import hashes_of
from spark_ckpt.types import CONTROL_COLUMNS, CTL, EVENT_TIME, KEY_HASH, epoch_of_tag

_COMBINE_BYTES = 16 << 20
"""Rows combined at once: few enough to stay in the processor's cache, and to bound what is kept."""
_FLUSH_BYTES = 256 << 20
"""Combined rows kept before they are packed; a task with more sends several envelopes for a subtask."""

PACKED = pa.schema([("route", pa.int32()), ("head", pa.binary()), ("body", pa.binary())])


class PackStage:
    """One instance is pickled to every task; called once with the task's batches.

    ``hashes``: the rows come without ``KEY_HASH``, because no JVM stage prepared them.
    """

    def __init__(self, spec: OperatorSpec, hashes: bool = False) -> None:
        self.spec = spec
        self.hashes = hashes
        self._packed_schema = spec.packed_schema

    def reads(self, _behind: Read | None) -> Read:
        spec = self.spec
        times = [spec.event_time or CTL, *(watermark.column for watermark in spec.open_watermarks)]
        return frozenset((*spec.rows_schema.names, *times, *CONTROL_COLUMNS))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows, controls, portion = _Rows(self.spec.function), _Controls(self.spec), 0
        for batch in batches:
            data, control = split_control(batch)
            if control.num_rows:
                controls.add(control)
            for tag, piece in runs_of_tag(data):
                controls.note_event_times(tag, piece)
                rows.add(epoch_of_tag(tag), self.needed(piece))
            if rows.combined_bytes > _FLUSH_BYTES:
                taken = rows.take()
                self._note_windows(taken, controls)
                yield from self._pack(taken, Controls(), portion)
                portion += 1
        taken = rows.take()
        self._note_windows(taken, controls)
        yield from self._pack(taken, controls.resolved(), portion)

    def _note_windows(self, combined: list[tuple[int, pa.Table]], controls: _Controls) -> None:
        """Every task of the operator hears of the last window, so that all of them may close their windows there."""
        function = self.spec.function
        for epoch, rows in combined if function.late_by_key else ():
            largest = pc.max(function.event_times(rows)).as_py()
            if largest is not None:
                controls.note(epoch, windows_stream(self.spec.uid), largest)

    def needed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Drop control columns, add the rows' event time, give every column its canonical type."""
        names = self.spec.function.key_schema.names
        columns = {
            f.name: rows.column(f.name).cast(f.type) for f in self.spec.rows_schema if f.name in rows.schema.names
        }
        if self.hashes:
            columns[KEY_HASH] = pa.array(hashes_of(columns[name] for name in names))
        if EVENT_TIME in self.spec.rows_schema.names:
            columns[EVENT_TIME] = _event_micros(rows, self.spec.event_time)
        ordered = [columns[name] for name in self.spec.rows_schema.names]
        return pa.RecordBatch.from_arrays(ordered, schema=self.spec.rows_schema)

    def _pack(self, combined: list[tuple[int, pa.Table]], controls: Controls, portion: int) -> Iterator[pa.RecordBatch]:
        subtasks, task = self.spec.run.subtasks, TaskContext.get()
        place = (task.partitionId() if task is not None else 0, portion << 32)
        again = self.spec.hashed_again
        packed = list(pack(combined, subtasks, controls, self._packed_schema, place=place, hashed_again=again))
        if packed:
            found, heads, bodies = zip(*packed, strict=True)
            routes = pa.array([subtasks.routes[subtask] for subtask in found], pa.int32())
            yield pa.RecordBatch.from_arrays(
                [routes, pa.array(heads, pa.binary()), pa.array(bodies, pa.binary())], schema=PACKED
            )


class LatestTimes:
    """In place of packing: a row for each stream, the watermark behind all rows of the task; of no stream, the event
    time of the latest row. For rows in batch."""

    SCHEMA = "stream string, micros bigint"

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec = spec

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        controls = _Controls(self.spec)
        for batch in batches:
            data, control = split_control(batch)
            controls.add(control)
            for tag, piece in runs_of_tag(data):
                controls.note_event_times(tag, piece)
                controls.note_latest(tag, piece)
        yield from controls.latest_times()


class _Rows:
    """The rows of one task by epoch, combined a portion at a time."""

    def __init__(self, function: StateFunction) -> None:
        self.combined_bytes = 0
        self._function = function
        self._portion: dict[int, list[pa.RecordBatch]] = {}
        self._portion_bytes = 0
        self._combined: dict[int, list[pa.Table]] = {}

    def add(self, epoch: int, rows: pa.RecordBatch) -> None:
        self._portion.setdefault(epoch, []).append(rows)
        self._portion_bytes += rows.nbytes
        if self._portion_bytes > _COMBINE_BYTES:
            self._combine()

    def take(self) -> list[tuple[int, pa.Table]]:
        """One table an epoch, of all that was added since the last time."""
        self._combine()
        taken = [(epoch, self._function.recombine(parts)) for epoch, parts in sorted(self._combined.items())]
        self._combined, self.combined_bytes = {}, 0
        return taken

    def _combine(self) -> None:
        for epoch, batches in self._portion.items():
            made = self._function.combine(pa.Table.from_batches(batches))
            self._combined.setdefault(epoch, []).append(made)
            self.combined_bytes += made.nbytes
        self._portion, self._portion_bytes = {}, 0


class _Controls:
    """The control events of one task: merged where they add up, routed where they concern one subtask."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec = spec
        self._arrived = Arrivals()
        self._watermarks: dict[tuple[int, str], int] = {}
        self._completed: int | None = None
        self._reports = Reports()
        self._others: list[ev.Event] = []

    def add(self, control: pa.RecordBatch) -> None:
        for payload in control.column(control.schema.get_field_index(CTL)).to_pylist():
            self._add(ev.decode(payload))

    def _add(self, event: ev.Event) -> None:
        if self._arrived.add(event) or self._reports.add(event):
            return
        if isinstance(event, ev.Watermark):
            self.note(event.epoch, event.stream, event.micros)
        elif isinstance(event, ev.Completed):
            self._completed = max(self._completed or 0, event.checkpoint)
        elif isinstance(event, ev.OperatorAck):
            # How long it took differs from attempt to attempt, and what is shuffled must not.
            stats = {name: value for name, value in event.stats.items() if name not in ev.MEASURED}
            self._others.append(replace(event, stats=stats))
        else:
            self._others.append(event)

    def note_event_times(self, tag: int, rows: pa.RecordBatch) -> None:
        spec = self.spec.watermark_of(tag)
        largest = None if spec is None else latest_micros(rows.column(spec.column))
        if spec is not None and largest is not None:
            self.note(epoch_of_tag(tag), spec.name, largest - spec.delay_us)

    def note_latest(self, tag: int, rows: pa.RecordBatch) -> None:
        latest = pc.max(_event_micros(rows, self.spec.event_time)).as_py()
        if latest is not None:
            self.note(epoch_of_tag(tag), ev.NO_STREAM, latest)

    def note(self, epoch: int, stream: str, micros: int) -> None:
        key = (epoch, stream)
        self._watermarks[key] = max(self._watermarks.get(key, micros), micros)

    def latest_times(self) -> Iterator[pa.RecordBatch]:
        for (_, stream), micros in self._watermarks.items():
            yield pa.RecordBatch.from_pydict({"stream": [stream], "micros": pa.array([micros], pa.int64())})

    def resolved(self) -> Controls:
        broadcast = self._arrived.events()
        broadcast += [ev.Watermark(s, us, epoch) for (epoch, s), us in sorted(self._watermarks.items())]
        broadcast += [] if self._completed is None else [ev.Completed(self._completed)]
        events = [*broadcast, *self._others, *self._reports.events()]
        return route(events, self.spec.family_tables.values(), self.spec.run.subtasks)


def _event_micros(rows: pa.RecordBatch, column: str | None) -> pa.Array:
    if column is None:
        return pa.nulls(rows.num_rows, pa.int64())
    times = rows.column(column)
    if pa.types.is_struct(times.type):  # a window
        times = pc.struct_field(times, "end")
    return times.cast(pa.timestamp("us", "UTC")).view(pa.int64())
