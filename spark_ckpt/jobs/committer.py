"""The sink's commit of one generation. Driver.

Spark calls ``commit`` in a reused Python process with a new writer object each batch, so what was learned is kept in
this module, by job and generation. It is derived from the records and thrown away after any error, and where another
process did a batch in between: queries that run in one session at the same time share Spark's pool of processes, so the
next batch may come to any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spark_ckpt import clock
from spark_ckpt.jobs._io import JobIO
from spark_ckpt.jobs.batch_reports import with_reports_before
from spark_ckpt.jobs.log_lines import log_as
from spark_ckpt.jobs.records import left_for_later
from spark_ckpt.jobs.spec import RunSpec, SinkSpec
from spark_ckpt.protocol import commit as protocol
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.checkpoint_state import Name
from spark_ckpt.protocol.publish import by_sink
from spark_ckpt.protocol.records import BatchRecord, CompletionRecord
from spark_ckpt.protocol.weights import batch_record
from spark_ckpt.types import Committable

_committers: dict[str, Committer] = {}


def committer_for(run: RunSpec, sinks: tuple[SinkSpec, ...]) -> Committer:
    """The committer of this generation in this process."""
    found = _committers.get(run.url)
    if found is None or (found.run.generation, found.run.life) != (run.generation, run.life):
        found = _committers[run.url] = Committer(run, sinks)
    return found


class Committer:
    """Drives the commit coroutine of one generation, batch after batch."""

    def __init__(self, run: RunSpec, sinks: tuple[SinkSpec, ...]) -> None:
        self.run, self._sinks = run, sinks
        self.io = self._fresh_io()
        self._view: protocol.JobView | None = None
        self._next: int | None = None
        """The batch that the view is of; None: of none yet."""
        self._told: BatchRecord | None = None
        """The one before, or none: what batches of this start reported."""

    def commit(
        self, batch: int, staged: Sequence[Committable], events: Sequence[ev.Event], written: int | None = None
    ) -> None:
        """One batch; ``written``: rows that each sink was given. Raises what the steps raise; the next call rebuilds
        everything from the records."""
        log_as(self.run.config, self.run.job, generation=self.run.generation)
        if self._next not in (None, batch):
            self.io, self._view = self._fresh_io(), None
        # Forgotten first: if a step raises, the next call starts from the records.
        view, self._view = self._view or self._rebuilt(), None
        record = batch_record(self.run.origin, batch, self.run.generation, staged, events, written)
        record, now_ms = protocol.labelled(view, record), clock.now_ms()
        newest = self.io.newest_figures(view.last)
        record = self._told = with_reports_before(replace(record, at={batch: now_ms}), self._told, newest)
        self._view = self.io.run(protocol.commit_batch(view, record, now_ms))
        self._next = batch + 1
        if batch == 0 and self.run.restored_from is not None:
            self._note_restored()

    def _fresh_io(self) -> JobIO:
        """One that has read nothing yet."""
        return JobIO(self.run.job, self.run.config, self._sinks, self.run.generation)

    def _note_restored(self) -> None:
        try:
            start = self.io.records.generation(self.run.origin)
            if start is not None and start.restored_from is not None and self.run.config.history:
                self.io.statistics.restored(start, clock.now_ms())
        except Exception as error:  # noqa: BLE001 - a figure less
            left_for_later("statistics", error)

    def publish(self, completions: Sequence[CompletionRecord]) -> None:
        """Commit what is complete and was not confirmed; for a writer that no start did it for."""
        self.io.run(protocol.commit_completions(self._rebuilt(), completions, clock.now_ms()))

    def abort(self, batch: int, staged: Sequence[Committable]) -> None:
        """A batch failed. What its record names may be authorised and stays; recovery decides about it."""
        try:
            self._abort(batch, staged)
        except Exception as error:  # noqa: BLE001 - Spark is about to say why the batch failed, and must
            left_for_later("AbortBatch", error)  # the sinks' gc finds the rest

    def _abort(self, batch: int, staged: Sequence[Committable]) -> None:
        records = self.io.records
        kept = [c for b in records.batches(self.run.origin) if b.batch == batch for c in b.staged]
        kept += [c for k in records.completions() for c in k.committables]
        known = {(c.sink, c.data) for c in kept}  # their epochs may have been told later
        for sink, group in by_sink(c for c in staged if (c.sink, c.data) not in known):
            self.io.sink(sink).abort(group)

    def _rebuilt(self) -> protocol.JobView:
        run, records = self.run, self.io.records
        completions = records.completions()
        recorded = records.recorded(completions)
        aborted = (records.aborted(k) for k in recorded.aborted)
        started = records.generation(run.generation)
        batches = records.batches(run.origin)
        own = (b for b in batches if b.generation == run.generation)
        self._told = max(own, key=lambda b: b.batch, default=None)
        return protocol.rebuild(
            job=run.job,
            topology=run.topology,
            generation=run.generation,
            origin=run.origin,
            restored=next((c for c in completions if c.checkpoint == run.restored_from), None),
            completions=completions,
            batches=batches,
            committed=recorded.committed,
            aborted=[a for a in aborted if a is not None],
            voided=recorded.named(Name.VOID, Name.DAMAGED),
            tolerable_failures=run.config.tolerable_failures,
            retain=run.config.retain,
            life=run.life,
            abandoned=records.abandoned_pairs(),
            adopt=run.adopt,
            timeout_ms=run.config.timeout_ms,
            started_ms=0 if started is None else started.started_ms,
            unread=recorded.named(Name.DAMAGED),
            targets={s.id: self.io.sink(s.id).target for s in self._sinks},
        )
