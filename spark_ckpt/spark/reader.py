"""The stream reader around any inner source: lanes, barriers, epochs, restore rows.

One reader lives in a Python process beside the driver for as long as the query runs. What it decides travels in the
offset that Spark writes to its offset log before the batch runs, so a replayed batch carries the same barriers:

    {"origin": o, "inner": <inner offset>, "epoch": E, "barrier": K | null, "triggered_ms": t, "pending": [[K, t], ...],
     "cancel": [K, ...], "ended": bool, "restore": K | absent, "terminal": generation | absent, "rows": true | absent}

Rows between ``start`` and ``end`` belong to epoch ``start.epoch``; the barrier, if ``end`` has one, comes behind them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from spark_ckpt.protocol import events as ev
from spark_ckpt.sources.base import InnerReader, lanes, open_source
from spark_ckpt.spark.chain import Step, Steps
from spark_ckpt.spark.restore_rows import restore_events
from spark_ckpt.spark.spec import RunSpec, SourceSpec
from spark_ckpt.spark.stateless import arrow_schema, with_control
from spark_ckpt.spark.triggers import Injection, TriggerDesk
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

    def __init__(self, run: RunSpec, source: SourceSpec, steps: tuple[Step, ...] = ()) -> None:
        self.run = run
        self.source = source
        self.steps = steps
        opened = open_source(
            source.inner, source.options, source.schema, f"{run.url}/sources/{source.id}", run.config.storage_options()
        )
        schema = source.schema or opened.schema()
        self.schema = arrow_schema(with_control(schema))
        self.inner: InnerReader = opened.reader(schema)
        self._desk: TriggerDesk | None = None
        self._adopted = False
        self._available_now = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_desk": None}

    # -- offsets (driver) --------------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        """Stable for one Spark location: asked again whenever its first batch is replayed."""
        desk = self._desk_()
        offset: Offset = {"inner": None, "epoch": self.run.start_epoch, "barrier": None, "triggered_ms": 0}
        offset["origin"] = self.run.origin
        offset.update(pending=[], cancel=[], ended=False)
        restored = self.run.restored_from
        if restored is not None:
            offset.update(desk.restored_offset(restored, self.source.id))
            offset["restore"] = restored
        if offset["inner"] is None:
            offset["inner"] = self.inner.initial()
        return offset

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Asked before every batch, and every 10 ms while idle. The only place that injects barriers."""
        desk = self._desk_()
        if desk.frozen(start):
            return start
        inner = self._inner_latest(start, limit)
        advanced = inner != start["inner"]
        ended = start["ended"] or (not advanced and self.inner.finished(inner))
        drained = self._available_now and not advanced
        decision = desk.decide(start, now_ms(), drained=drained)
        if not (advanced or decision.injects or ended != start["ended"] or "restore" in start or "rows" in start):
            return start
        offset = _next_offset(start, inner, ended, decision, self.run.generation)
        if advanced and self.source.event_time and self.source.no_data_batches:
            # As Spark: where rows may have moved the watermark, a batch follows that lets time-outs see it.
            offset["rows"] = True
        return offset

    def _inner_latest(self, start: Offset, limit: ReadLimit) -> Any:
        if start["ended"]:
            return start["inner"]
        return self.inner.latest(start["inner"], isinstance(limit, ReadAllAvailable))

    def prepareForTriggerAvailableNow(self) -> None:
        self._available_now = True
        self.inner.prepare_available_now()

    def getDefaultReadLimit(self) -> ReadLimit:
        # Not ReadAllAvailable: Spark passes that one when a trigger wants everything at once (Trigger.Once). Any
        # other limit means "as the inner source's own options say".
        return ReadMaxRows(2**31 - 1)

    def commit(self, end: Offset) -> None:
        """After every batch. Upstream hears of an offset only when a completed checkpoint has recorded it."""
        offset = self._desk_().newly_completed_offset(self.source.id)
        if offset is not None:
            self.inner.commit(offset)

    def stop(self) -> None:
        self.inner.stop()

    def _desk_(self) -> TriggerDesk:
        if self._desk is None:
            self._desk = TriggerDesk(self.run, self.source, now_ms())
        return self._desk

    # -- partitions (driver) -----------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if start == end:
            return []
        splits = self.inner.splits(start["inner"], end["inner"]) if start["inner"] != end["inner"] else []
        full = [lane for lane in lanes(splits, self.source.lanes) if lane]
        parts = [LanePartition(lane, start["epoch"]) for lane in full]
        once = self._once_events(start, end)
        if once or _in_band(start, end) or self.source.event_time:
            parts = parts or [LanePartition([], start["epoch"])]
        self._add_barriers(parts, start, end)
        if once:
            # Of its own partition, so that reading data does not wait for it.
            parts.append(LanePartition([], start["epoch"], tuple(ev.encode(e) for e in once)))
        return parts

    def _once_events(self, start: Offset, end: Offset) -> list[ev.Event]:
        """Manifests for operators: in the first batch of a restored location, or in the replay of a completed one."""
        desk = self._desk_()
        if "restore" in start and self.source.restores:
            return restore_events(desk.records, start["restore"], self.source.restores, adopt=False)
        if not self._adopted and self.run.adopt is not None:
            self._adopted = True
            # An operator that takes the snapshot in the replay gets its barrier from a source that moves in it. That
            # need not be the source that restores it, so every source that moves brings the manifests.
            return restore_events(desk.records, self.run.adopt, self.source.reaches, adopt=True)
        return []

    def _add_barriers(self, parts: list[LanePartition], start: Offset, end: Offset) -> None:
        """Split the source's weight between the lanes; one lane also speaks for the source."""
        total = self.run.key_groups
        for i, part in enumerate(parts):
            weight = total // len(parts) + (1 if i < total % len(parts) else 0)
            found: list[ev.Event] = []
            if i == 0:
                found += [ev.Cancel(k) for k in end["cancel"]]
            if end["ended"] and (not start["ended"] or "restore" in start) and i == 0:
                found.append(ev.Finished(total - 1, start["epoch"]))
            if end["barrier"] is not None and (not end["ended"] or i == 0):
                # An ended source keeps one share alive: operators learn of a checkpoint from a barrier.
                found.append(ev.Barrier(end["barrier"], 1 if end["ended"] else weight, end["triggered_ms"]))
            if self.source.event_time and i == 0:
                found.append(ev.Watermark(ev.NO_STREAM, 0, start["epoch"]))
            if end["barrier"] is not None and i == 0:
                found.append(ev.SourceAck(self.source.id, end["barrier"], _resumable(end)))
            part.events = tuple(ev.encode(e) for e in found)

    # -- reading (executor) ------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LanePartition)
        return Steps(self.steps)(self._tagged(partition))

    def _tagged(self, partition: LanePartition) -> Iterator[pa.RecordBatch]:
        tag = make_tag(partition.epoch)
        for split in partition.splits:
            for batch in self.inner.read(split):
                yield self._with_tag(batch, tag)
        if partition.events:
            yield self._control(list(partition.events), tag)

    def _with_tag(self, batch: pa.RecordBatch, tag: int) -> pa.RecordBatch:
        n = batch.num_rows
        control = [pa.repeat(pa.scalar(tag, pa.int64()), n), pa.nulls(n, pa.binary())]
        return pa.RecordBatch.from_arrays([*batch.columns, *control], schema=self.schema)

    def _control(self, payloads: list[bytes], tag: int) -> pa.RecordBatch:
        n = len(payloads)
        data = [pa.nulls(n, f.type) for f in list(self.schema)[:-2]]
        tags = pa.repeat(pa.scalar(tag, pa.int64()), n)
        return pa.RecordBatch.from_arrays([*data, tags, pa.array(payloads, pa.binary())], schema=self.schema)


def now_ms() -> int:
    return int(time.time() * 1000)


def _in_band(start: Offset, end: Offset) -> bool:
    return end["barrier"] is not None or bool(end["cancel"]) or end["ended"] != start["ended"]


def _resumable(end: Offset) -> dict[str, Any]:
    """What a checkpoint remembers of an offset: enough for ``initialOffset`` of a later run."""
    return {"inner": end["inner"], "ended": end["ended"]}


def _next_offset(start: Offset, inner: Any, ended: bool, decision: Injection, generation: int) -> Offset:
    barrier = decision.barrier
    terminal = {"terminal": generation} if decision.terminal else {}
    return {
        "origin": start["origin"],
        "inner": inner,
        "epoch": start["epoch"] if barrier is None else barrier + 1,
        "barrier": barrier,
        "triggered_ms": decision.triggered_ms,
        "pending": [list(p) for p in decision.pending],
        "cancel": list(decision.cancel),
        "ended": ended,
        **terminal,
    }
