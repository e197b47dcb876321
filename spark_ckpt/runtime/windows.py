"""Rows to their time windows and sessions, and those to what users see of them, in Arrow. Executor.

Windows begin where Spark's ``TimeWindow`` lets them: ``start`` microseconds past 1970, and every ``slide`` from there,
before it too. A row is in each window that holds its time, its end excluded; one without a time is in none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.expressions.columns import at_places
from spark_ckpt.runtime.lazy_batch import LazyBatch, RowOperation
from spark_ckpt.types import CTL

TIME = pa.timestamp("us", "UTC")
LOCAL_TIME = pa.timestamp("us")
"""Of a clock without a zone (``timestamp_ntz``): its windows are those of the same readings in UTC."""


@dataclass(frozen=True)
class WindowSize:
    """In microseconds."""

    size: int
    slide: int
    start: int = 0

    @property
    def most(self) -> int:
        """Windows that a row can be in."""
        return -(-self.size // self.slide)

    @property
    def text(self) -> str:
        size, slide, start = (timedelta(microseconds=us) for us in (self.size, self.slide, self.start % self.slide))
        return f"windows of {size} every {slide} from {start}"


def struct_of(start: pa.Array, size: int, time: pa.DataType = TIME) -> pa.Array:
    """``start`` (long, microseconds) and the end behind it as Spark's ``window`` of ``time``; null where it is."""
    return window_of(start.view(time), pc.add(start, size).view(time))


def window_of(start: pa.Array, end: pa.Array) -> pa.Array:
    """Spark's ``window``; null where ``start`` is."""
    missing = start.is_null() if start.null_count else None
    fields = [pa.field("start", start.type, True), pa.field("end", end.type, True)]
    return pa.StructArray.from_arrays([start, end], fields=fields, mask=missing)


class AssignWindows(RowOperation):
    """Each row once for each of its windows, with columns ``shown`` (a window) and ``key`` (its start) behind the rest.

    ``newest``: only in the newest of them, as the operator puts what it adds up into the others. ``local``: its times
    have no zone.

    Control rows pass as they are, once.
    """

    def __init__(
        self, time: str, shown: str, key: str, window: WindowSize, newest: bool = False, local: bool = False
    ) -> None:
        self.time, self.shown, self.key, self.window = time, shown, key, window
        self.kind = LOCAL_TIME if local else TIME
        self.once = newest or (window.most == 1 and window.size == window.slide)

    def lazily(self, batches: Iterator[LazyBatch]) -> Iterator[LazyBatch]:
        for batch in batches:
            rows, starts = self._assigned(batch)
            kept = batch if rows is None else batch.only(at_places(rows))
            windows = struct_of(starts, self.window.size, self.kind)
            yield kept.with_columns(((self.shown, windows), (self.key, starts.view(TIME))))

    def _assigned(self, batch: LazyBatch) -> tuple[np.ndarray | None, pa.Array]:
        """The row behind each output row (None: all as they are), and the start of its window."""
        w, micros = self.window, batch.column(self.time).cast(TIME).view(pa.int64())
        times = pc.fill_null(micros, 0).to_numpy()
        last = self._newest(times)
        control = batch.column(CTL).is_valid().to_numpy(zero_copy_only=False)
        timed = micros.is_valid().to_numpy(zero_copy_only=False) & ~control  # what was computed, control rows have too
        if self.once:
            kept = None if (timed | control).all() else np.flatnonzero(timed | control)
            starts = pa.array(last, mask=~timed)
            return kept, starts if kept is None else starts.take(pa.array(kept))
        back = np.arange(w.most) * w.slide
        starts = last[:, None] - back
        inside = timed[:, None] & (starts + w.size > times[:, None])
        inside[:, 0] |= control
        rows, _ = np.nonzero(inside)  # row by row: their order stays
        return rows, pa.array(starts[inside], mask=~timed[rows])

    def _newest(self, times: np.ndarray) -> np.ndarray:
        """The start of the newest window that holds each time. Rows that lie together are mostly in the same."""
        ends = np.array([times.min(), times.max()] if len(times) else [], np.int64)
        least, most = (ends - np.mod(ends - self.window.start, self.window.slide)).tolist() or (0, 0)
        if least == most:
            return np.full(len(times), least)
        return times - np.mod(times - self.window.start, self.window.slide)


class TakeStarts(RowOperation):
    """Column ``key`` behind the rest: the start of the window that is in column ``shown``, null for a row without."""

    def __init__(self, shown: str, key: str) -> None:
        self.shown, self.key = shown, key

    def lazily(self, batches: Iterator[LazyBatch]) -> Iterator[LazyBatch]:
        for batch in batches:
            starts = pc.struct_field(batch.column(self.shown), "start").cast(TIME)
            yield batch.with_columns(((self.key, starts),))


class ShowWindows:
    """Column ``key``, the start of a window, becomes the window, as ``shown``; ``local``: its times have no zone."""

    def __init__(self, key: str, shown: str, size: int, local: bool = False) -> None:
        self.key, self.shown, self.size = key, shown, size
        self.kind = LOCAL_TIME if local else TIME

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            at = batch.schema.get_field_index(self.key)
            window = struct_of(batch.column(at).cast(TIME).view(pa.int64()), self.size, self.kind)
            yield batch.set_column(at, pa.field(self.shown, window.type), window)


class AssignSessions(RowOperation):
    """Columns ``start`` and ``end`` behind the rest: the session that each row makes by itself.

    It ends ``gap_us`` after the row's time, or if that is None where column ``end`` says, which is there already. Rows
    without a time, or whose session would end where it begins or before, are in none and left out, as in Spark.
    """

    def __init__(self, time: str, start: str, end: str, gap_us: int | None) -> None:
        self.time, self.start, self.end, self.gap_us = time, start, end, gap_us

    def lazily(self, batches: Iterator[LazyBatch]) -> Iterator[LazyBatch]:
        for batch in batches:
            start = batch.column(self.time).cast(TIME)
            if self.gap_us is None:
                end = batch.column(self.end).cast(TIME)
                batch = batch.without(self.end)
            else:
                end = pc.add(start.view(pa.int64()), self.gap_us).view(TIME)
            made = batch.with_columns(((self.start, start), (self.end, end)))
            lasting = pc.fill_null(pc.greater(end, start), False)
            yield made.where(pc.or_(lasting, batch.column(CTL).is_valid()))


class TakeSessions(RowOperation):
    """Columns ``start`` and ``end`` behind the rest: those of the session that is in column ``shown``."""

    def __init__(self, shown: str, start: str, end: str) -> None:
        self.shown, self.start, self.end = shown, start, end

    def lazily(self, batches: Iterator[LazyBatch]) -> Iterator[LazyBatch]:
        for batch in batches:
            start, end = (pc.struct_field(batch.column(self.shown), name).cast(TIME) for name in ("start", "end"))
            if pc.any(pc.and_(start.is_null(), batch.column(CTL).is_null())).as_py():
                raise InvalidInputError(
                    f"a row is in no session, column {self.shown!r} of it is null, and Spark fails of such; leave it "
                    f"out in front of groupBy, where({self.shown!r} IS NOT NULL)"
                )
            yield batch.with_columns(((self.start, start), (self.end, end)))


class ShowSessions:
    """Columns ``start`` and ``end`` become the session, as ``shown``, in column ``place``; ``local``: its times have no
    zone."""

    def __init__(self, start: str, end: str, shown: str, place: int, local: bool = False) -> None:
        self.start, self.end, self.shown, self.place = start, end, shown, place
        self.kind = LOCAL_TIME if local else TIME

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            start, end = (batch.column(name).cast(TIME).view(pa.int64()) for name in (self.start, self.end))
            session = window_of(start.view(self.kind), end.view(self.kind))
            rest = batch.drop_columns([self.start, self.end])
            yield rest.add_column(self.place, pa.field(self.shown, session.type), session)
