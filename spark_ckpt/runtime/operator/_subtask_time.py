"""What time it is in a subtask: its watermarks, which rows are late, and when time is at its end. Executor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.source_time import all_at_end, is_idle, is_time, windows_stream
from spark_ckpt.runtime.operator._subtask_meta import SubtaskMeta
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.types import EVENT_TIME

END_OF_TIME_MS = 253_402_300_799_999
"""The event time behind a drain: the last millisecond that a timestamp of Spark's or Python's can say. Later time-outs
mean never; and whatever is set behind it, as Spark has it later than the watermark, does not fire in the same drain."""


class SubtaskTime:
    """Spark's two watermarks, for one call: time-outs and functions see that of all batches before (``now_us``), late
    rows are told by the one before that (``late_us`` of the meta). What a batch's rows bring counts from the next on.
    """

    def __init__(self, spec: OperatorSpec, meta: SubtaskMeta) -> None:
        self.spec, self.meta = spec, meta
        self.now_us: int | None = None
        """None where there is no stream with a watermark."""
        self._begun_us: int | None = None
        self._late = 0

    def begin_batch(self) -> None:
        self.now_us = self._begun_us = self._watermark_us()
        if not self.spec.time.late_a_batch_behind:
            self.meta.late_us = self.now_us or 0

    def end_batch(self) -> None:
        self.meta.late_us = self.now_us or 0

    def adopt(self, manifests: Mapping[int, ev.GroupManifest]) -> None:
        """Go on where a checkpoint was. Its key groups have seen different times only if several subtasks took it."""
        seen = [m.watermarks_us for m in manifests.values()]
        shared = set(seen[0]).intersection(*seen[1:])
        self.meta.watermarks = {stream: min(w[stream] for w in seen) for stream in sorted(shared)}
        self.meta.late_us = self.meta.watermarks.pop(ev.NO_STREAM, 0)

    def seen(self) -> dict[str, int]:
        """What a checkpoint remembers of the time."""
        seen = dict(self.meta.watermarks)
        spec = self.spec
        asked = spec.filters_late or spec.function.output_time is not None
        if asked or spec.run.config.idle_timeout_ms is not None:
            seen[ev.NO_STREAM] = self.now_us or 0
        return seen

    def _watermark_us(self) -> int | None:
        """That of all streams together, as Spark takes it: whole milliseconds, 0 as long as a stream has none."""
        if not self.spec.watermarks:
            return None
        counted = self._counted()
        # Flink: where all are idle, none will bring its watermark on, and the latest of them counts.
        choose = max if self.spec.time.policy == "max" or not counted else min
        found = choose(self.meta.watermarks.get(name, 0) for name in counted or self.spec.watermarks)
        # It never goes back, whoever comes back or is new.
        return max(0, found // 1000 * 1000, self.meta.late_us)

    def _counted(self) -> Sequence[str]:
        """The streams with a watermark but those all of whose sources are idle."""
        spec, seen = self.spec, self.meta.watermarks
        if spec.run.config.idle_timeout_ms is None:
            return spec.watermarks
        streams = zip(spec.watermarks, spec.watermark_sources, strict=True)
        return [name for name, sources in streams if not is_idle(seen, sources)]

    def without_late(self, rows: pa.Table) -> pa.Table:
        function = self.spec.function
        times = function.event_times(rows) if function.late_by_key else rows.column(EVENT_TIME)
        earliest = pc.min(times).as_py()
        if earliest is None or earliest > self.meta.late_us:
            return rows  # as they are: a filter would copy every column
        late = pc.less_equal(times, self.meta.late_us)
        kept = rows.filter(pc.invert(pc.fill_null(late, False)))
        self._late += rows.num_rows - kept.num_rows
        return kept

    def told(self) -> Iterator[ev.TimeSeen]:
        """For the batch's progress."""
        if self.spec.watermarks:
            yield ev.TimeSeen(self.spec.uid, None if self.spec.behind_others else self._begun_us, self._late)

    def take(self, up_to: int | None) -> Iterator[ev.Watermark]:
        """Watermarks take effect behind the rows of their epoch. Yields what the next operator is told of them."""
        for label in sorted(self.meta.later_watermarks):
            if up_to is not None and label > up_to:
                continue
            for stream, micros in self.meta.later_watermarks.pop(label).items():
                if stream == ev.NO_STREAM:
                    yield ev.Watermark(stream, 0, label)
                    continue
                self.meta.watermarks[stream] = max(self.meta.watermarks.get(stream, micros), micros)
                delay_us = 1000 * self.spec.function.output_delay_ms if is_time(stream) else 0
                yield ev.Watermark(stream, self.meta.watermarks[stream] - delay_us, label)

    def of_timeouts(self, now_ms: int) -> int | None:
        """The time that time-outs of the function's kind are due by, in milliseconds. ``now_ms`` is the batch's."""
        if self.spec.function.timeout == "ProcessingTimeTimeout":
            return now_ms
        if self.spec.function.timeout == "EventTimeTimeout" and self.now_us is not None:
            return self.now_us // 1000
        return None

    @contextmanager
    def at_end(self) -> Iterator[None]:
        """The watermark is at its end, for what is called inside. That is not kept: a job that is restored from here
        counts time by its rows again."""
        seen, self.now_us = self.now_us, END_OF_TIME_MS * 1000
        yield
        self.now_us = seen

    def input_ends(self, checkpoint: int) -> bool:
        """Whether open windows come out with this checkpoint, for there will be no more rows."""
        spec = self.spec
        # What waits in front would come later, and be late then.
        closes = spec.run.config.close_windows and spec.function.late_by_key and not spec.behind_waiting
        return closes and all_at_end(self.meta.watermarks, spec.sources, checkpoint)

    def goes_on_behind_windows(self) -> None:
        """A later start may bring more rows. So that no window comes out twice, the watermark goes on, and stays, at
        the end of the last window that any row was in: in all tasks the same, whichever keys they have.
        """
        self.now_us = max(self.now_us or 0, self.meta.watermarks.get(windows_stream(self.spec.uid), 0))
