"""One source's view of the job's checkpoints: asks :func:`spark_ckpt.protocol.source.next_offset` and remembers what
it said. Driver, source process.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.scheduled_savepoints import schedule
from spark_ckpt.jobs.spec import RunSpec, SourceSpec
from spark_ckpt.protocol.coordinator import TriggerPolicy
from spark_ckpt.protocol.records import AbortedRecord
from spark_ckpt.protocol.source import next_offset
from spark_ckpt.protocol.source_offset import SourceOffset, SourcePosition, initial_offset
from spark_ckpt.protocol.source_starts import starts_at
from spark_ckpt.protocol.source_steps import GiveUp, InnerRead
from spark_ckpt.protocol.source_view import SourceRole, SourceView
from spark_ckpt.runtime.source._io import SourceIO


class TriggerCoordinator:
    """Lives as long as the reader; everything it needs is in records."""

    def __init__(self, run: RunSpec, source: SourceSpec, now_ms: int) -> None:
        self.run = run
        self.source = source
        self.records = JobRecords(run.url, run.config)
        self._io = SourceIO(run, self.records, source.leader, now_ms)
        self._role = _role(run, source, now_ms)
        self._view: SourceView | None = None
        self._reported = self._io.newest_completed()

    def initial(self) -> SourceOffset:
        """Stable for one Spark location: asked again whenever its first batch is replayed."""
        restored = self.run.restored_from
        completion = None if restored is None else self.records.completion(restored)
        position = SourcePosition.from_json(starts_at(self.run.topology, self.source.id, completion))
        return initial_offset(self.run.origin, self.run.start_epoch, restored, position)

    def next(
        self, start: SourceOffset, ask_inner: Callable[[Any], InnerRead], available_now: bool, now_ms: int
    ) -> SourceOffset:
        """The next offset, ``start`` itself when there is nothing new. Raises what its steps raise."""
        role = replace(self._role, available_now=available_now)
        # Forgotten first: if a step raises, the next call starts from the records.
        view, self._view = self._view, None
        self._view, end = self._io.run(next_offset(role, view, start, now_ms), ask_inner)
        return end

    def is_over(self, checkpoint: int) -> bool:
        """Whether nothing more can happen to a checkpoint that was triggered: it is complete, void or aborted, or a
        newer one is complete. The newer one is looked for last: only behind it are records of the older one dropped.
        """
        return self.records.is_settled(checkpoint) or checkpoint < self._io.newest_completed()

    def give_up(self, record: AbortedRecord) -> None:
        """A checkpoint that cannot be completed any more; its cancel marker goes into the next offset."""
        self._io.execute(GiveUp(record))

    def newly_completed_offset(self, ended: bool = False) -> Any | None:
        """The inner offset of the newest completed checkpoint that this source knows of, once; None if there is no
        newer one. ``ended``: look for it, as nobody will ask again."""
        known = self._io.newest_completed() if ended else 0 if self._view is None else self._view.completed
        if known <= self._reported:
            return None
        self._reported = known
        return self._position_at(known).inner

    def _position_at(self, checkpoint: int) -> SourcePosition:
        """Where the source stood at ``checkpoint``."""
        completion = self.records.completion(checkpoint)
        return SourcePosition.from_json(completion.sources.get(self.source.id, {}) if completion is not None else {})


def _role(run: RunSpec, source: SourceSpec, now_ms: int) -> SourceRole:
    c = run.config
    # Many jobs started at once must not write their snapshots all at once.
    delay_ms = random.randrange(c.interval_ms) if c.initial_delay_ms is None else c.initial_delay_ms
    return SourceRole(
        source=source.id,
        leader=source.leader,
        generation=run.generation,
        started_ms=now_ms,
        initial_delay_ms=delay_ms,
        poll_ms=c.trigger_poll_interval_ms,
        others=frozenset(run.topology.sources) - {source.id},
        batch_behind_rows=source.event_time and source.no_data_batches,
        tolerable_failures=c.tolerable_failures,
        inherited=None if run.inherited is None else frozenset(run.inherited),
        tells=source.tells,
        idle_ms=c.idle_timeout_ms if source.event_time else None,
        closes_windows=c.close_windows and source.event_time,
        can_drain=source.can_drain,
        last=source.last,
        marks_reads=source.marks_reads,
        end=run.ends.get(source.id),
        policy=TriggerPolicy(c.interval_ms, c.min_pause_ms, c.timeout_ms, c.max_concurrent, schedule(c, run.job)),
    )
