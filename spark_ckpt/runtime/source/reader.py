"""The stream reader around any inner source: lanes, barriers, epochs, restore rows.

One reader lives in a Python process beside the driver for as long as the query runs. What it decides travels in the
offset that Spark writes to its offset log before the batch runs (:mod:`spark_ckpt.protocol.source_offset`), so a
replayed batch carries the same barriers. The decisions are those of :mod:`spark_ckpt.protocol.source`; here facts are
read and decisions executed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_ckpt import clock
from spark_ckpt.jobs.heartbeat import Heart
from spark_ckpt.jobs.log_lines import log_as
from spark_ckpt.jobs.records import JobRecords, left_for_later
from spark_ckpt.jobs.spec import RunSpec, SourceSpec
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.source_events import announcements, manifests_to_send
from spark_ckpt.protocol.source_offset import SourceOffset, with_inner
from spark_ckpt.protocol.source_steps import InnerRead
from spark_ckpt.runtime.operations import Operation, Operations
from spark_ckpt.runtime.source._ending import end_in_order, stopping
from spark_ckpt.runtime.source._lost_barriers import BarrierWatch
from spark_ckpt.runtime.source._restore_rows import restore_events
from spark_ckpt.runtime.source.trigger_coordinator import TriggerCoordinator
from spark_ckpt.runtime.stateless import arrow_schema, with_control
from spark_ckpt.sources.base import InnerReader, open_source
from spark_ckpt.sources.lanes import lanes
from spark_ckpt.spark_versions.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from spark_ckpt.storage import tally
from spark_ckpt.types import make_tag

Offset = dict[str, Any]


@dataclass
class LanePartition(InputPartition):
    """What one task reads: the lane's splits in order, then its control events."""

    splits: Sequence[InputPartition]
    epoch: int
    events: Sequence[bytes] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        super().__init__(None)


class CkptStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Called by Spark on the driver (offsets, partitions, commit) and, pickled, on executors (read)."""

    def __init__(self, run: RunSpec, source: SourceSpec, operations: tuple[Operation, ...] = ()) -> None:
        self.run = run
        self.source = source
        self.operations = operations
        opened = open_source(
            source.inner, source.options, source.schema, run.paths.source(source.id), run.config.storage_options()
        )
        schema = source.schema or opened.schema()
        self.schema = arrow_schema(with_control(schema))
        self.inner: InnerReader = opened.reader(schema)
        end = run.ends.get(source.id)
        if end is not None:
            self.inner.end_at(end)
        self._triggers: TriggerCoordinator | None = None
        self._watch = BarrierWatch()
        self._heart: Heart | None = None
        self._replaying = True
        self._available_now = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_triggers": None, "_heart": None}

    # -- offsets (driver) --------------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        """Stable for one Spark location: asked again whenever its first batch is replayed."""
        offset = self._coordinator().initial()
        return with_inner(offset, self.inner.initial() if offset.inner is None else None).to_json()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Asked before every batch, and every 10 ms while idle. The only place that injects barriers."""
        self._replaying = False
        everything = isinstance(limit, ReadAllAvailable)

        def ask_inner(behind: Any) -> InnerRead:
            inner = self.inner.latest(behind, everything)
            finished = inner == behind and self.inner.finished(inner)
            return InnerRead(inner, finished, self.inner.injected() if self.source.last else 0)

        before = SourceOffset.from_json(start)
        self._watch.check(self._coordinator(), before, clock.now_ms())
        end = self._coordinator().next(before, ask_inner, self._available_now, clock.now_ms())
        if end != before:
            return end.to_json()
        self._tell(self._coordinator().newly_completed_offset())
        return start  # the very same JSON, whatever release wrote it: Spark compares text

    def prepareForTriggerAvailableNow(self) -> None:
        self._available_now = True
        self.inner.prepare_available_now()

    def getDefaultReadLimit(self) -> ReadLimit:
        # Not ReadAllAvailable: Spark passes that one when a trigger wants everything at once (Trigger.Once). Any
        # other limit means "as the inner source's own options say".
        return ReadMaxRows(2**31 - 1)

    def commit(self, end: Offset) -> None:
        """Before every batch but the first. Upstream hears of an offset only when a completed checkpoint has recorded
        it: here, while nothing comes, or at the end of the query."""
        self.inner.batch_ended()
        self._tell(self._coordinator().newly_completed_offset())

    def stop(self) -> None:
        """The query has ended; what its last batch completed is told, as Spark does not ask any more. It may be on its
        way into the sinks yet: if it does not get there, the next start commits it."""
        stopping()
        try:
            self._tell(None if self._triggers is None else self._triggers.newly_completed_offset(ended=True))
        except Exception as error:  # noqa: BLE001 - nothing depends on it, and the next start tells of more
            left_for_later("telling the source what was completed", error)
        finally:
            if self._heart is not None:
                self._heart.stop()
            self.inner.stop()

    def _tell(self, completed: Any | None) -> None:
        if completed is not None:
            self.inner.commit(completed)

    def _coordinator(self) -> TriggerCoordinator:
        if self._triggers is None:
            end_in_order()
            log_as(self.run.config, self.run.job, generation=self.run.generation)
            tally.working_for(self.run.url, self.run.generation)
            self._triggers = TriggerCoordinator(self.run, self.source, clock.now_ms())
            self._say_that_it_lives(self._triggers.records)
        return self._triggers

    def _say_that_it_lives(self, records: JobRecords) -> None:
        if self.source.leader and self._heart is None:
            self._heart = Heart(records, self.run.generation).start()

    # -- partitions (driver) -----------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if start == end:
            return []
        before, behind = SourceOffset.from_json(start), SourceOffset.from_json(end)
        self._watch.sent(behind)
        splits = self.inner.splits(before.inner, behind.inner) if before.inner != behind.inner else []
        full = [lane for lane in lanes(splits, self.source.lanes) if lane]
        said = announcements(
            self.source.id, before, self._recorded(behind), self.run.key_groups, len(full), self.source.event_time
        )
        parts = [LanePartition(lane, before.epoch) for lane in full or [[] for _ in said]]
        for part, events in zip(parts, said, strict=True):
            part.events = _encoded(events)
        if parts:
            parts[0].events = (*parts[0].events, *self._figures(behind))
        manifests = self._manifests(before)
        if manifests:
            # Of its own partition, so that reading data does not wait for it.
            parts.append(LanePartition([], before.epoch, _encoded(manifests)))
        return parts

    def _figures(self, end: SourceOffset) -> Sequence[bytes]:
        """For metrics. Decided here, so that all attempts at a task say the same."""
        left, asked = self.inner.behind(end.inner), tally.taken()
        told: list[ev.Event] = [] if left is None else [ev.RowsRead(self.source.id, 0, left)]
        return _encoded([*told, ev.Asked(asked)] if asked else told)

    def _recorded(self, end: SourceOffset) -> SourceOffset:
        """``end`` as the checkpoint remembers it whose barrier stands there."""
        return end if end.barrier is None else replace(end, inner=self.inner.recorded(end.inner))

    def _manifests(self, start: SourceOffset) -> list[ev.Event]:
        source = self.source
        wanted = manifests_to_send(start, source.restores, source.reaches, self.run.adopt, self._replaying)
        records, operators = self._coordinator().records, self.run.topology.operators
        return [e for m in wanted for e in restore_events(records, m.checkpoint, m.uids, m.adopt, operators)]

    # -- reading (executor) ------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LanePartition)
        tally.working_for(self.run.url, self.run.generation)
        return Operations(self.operations)(self._tagged(partition))

    def _tagged(self, partition: LanePartition) -> Iterator[pa.RecordBatch]:
        tag, rows = make_tag(partition.epoch), 0
        for split in partition.splits:
            for batch in self.inner.read(split):
                rows += batch.num_rows
                yield self._with_tag(batch, tag)
        counted = [ev.encode(ev.RowsRead(self.source.id, rows))] if rows else []
        if partition.events or counted:
            yield self._control([*partition.events, *counted], tag)

    def _with_tag(self, batch: pa.RecordBatch, tag: int) -> pa.RecordBatch:
        n = batch.num_rows
        control = [pa.repeat(pa.scalar(tag, pa.int64()), n), pa.nulls(n, pa.binary())]
        return pa.RecordBatch.from_arrays([*batch.columns, *control], schema=self.schema)

    def _control(self, payloads: list[bytes], tag: int) -> pa.RecordBatch:
        n = len(payloads)
        data = [pa.nulls(n, f.type) for f in list(self.schema)[:-2]]
        tags = pa.repeat(pa.scalar(tag, pa.int64()), n)
        return pa.RecordBatch.from_arrays([*data, tags, pa.array(payloads, pa.binary())], schema=self.schema)


def _encoded(events: Iterable[ev.Event]) -> tuple[bytes, ...]:
    return tuple(ev.encode(e) for e in events)
