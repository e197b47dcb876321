"""Triggers and takes up checkpoints inside a source's ``latestOffset``. Driver, source process.

The first source decides (:func:`spark_ckpt.protocol.coordinator.decide_trigger`); the others follow ``triggers/``.
Decisions are durable twice: as ``triggers/K`` and in the offset that Spark logs before the batch. A crash in between
leaves a trigger nobody injected; its id is not used again and a newer barrier gives it up.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from spark_ckpt.errors import CheckpointFailedError
from spark_ckpt.protocol import coordinator as co
from spark_ckpt.protocol.records import EXPIRED, FINAL, LOST, AbortedRecord, TriggerRecord
from spark_ckpt.spark.hooks import call_hook
from spark_ckpt.spark.job_records import JobRecords
from spark_ckpt.spark.requests import open_requests
from spark_ckpt.spark.spec import RunSpec, SourceSpec
from spark_ckpt.storage.history import History, HistoryRow

Offset = dict[str, Any]
_SETTLED_POLL_MS = 50
"""How often an idle source looks whether its pending checkpoint is complete."""


@dataclass(frozen=True)
class Injection:
    """What goes into the next offset. ``barrier`` None: nothing is injected."""

    barrier: int | None
    triggered_ms: int
    pending: tuple[tuple[int, int], ...]
    cancel: tuple[int, ...] = ()
    terminal: bool = False

    @property
    def injects(self) -> bool:
        return self.barrier is not None or bool(self.cancel)


class TriggerDesk:
    """One source's view of the job's checkpoints. Lives as long as the reader; everything it needs is in records."""

    def __init__(self, run: RunSpec, source: SourceSpec, now_ms: int) -> None:
        self.run = run
        self.source = source
        self.records = JobRecords(run.url, run.config)
        self._started_ms = now_ms
        delay = run.config.initial_delay_ms
        # Many jobs started at once must not write their snapshots all at once.
        self._initial_delay_ms = random.randrange(run.config.interval_ms) if delay is None else delay
        self._newest = self.records.newest_id()
        self._last_trigger_ms: int | None = None
        self._last_completion_ms: int | None = None
        self._final: int | None = None
        self._answered = self._answered_requests()
        self._polled: dict[str, int] = {}
        self._settled: set[int] = set()
        self._looked_for_lost = False
        self._reported = max(self.records.ids("committed"), default=0)

    # -- asked by the reader -----------------------------------------------------------------------------------

    def restored_offset(self, checkpoint: int, source: str) -> Offset:
        """Where ``source`` stood at ``checkpoint``; empty if it took no part in it."""
        completion = self.records.completion(checkpoint)
        return dict(completion.sources.get(source, {})) if completion is not None else {}

    def frozen(self, start: Offset) -> bool:
        """A stop-with-savepoint of this generation went by: nothing behind its barrier may be read."""
        if start.get("terminal") != self.run.generation:
            return False
        return not self.records.store.exists(f"aborted/{start['epoch'] - 1:010d}.json")

    def newly_completed_offset(self, source: str) -> Any | None:
        """The inner offset of the newest committed checkpoint, once."""
        newest = max(self.records.ids("committed"), default=0)
        if newest <= self._reported:
            return None
        self._reported = newest
        return self.restored_offset(newest, source).get("inner")

    def decide(self, start: Offset, now_ms: int, *, drained: bool) -> Injection:
        """Whether a barrier or a cancel marker goes into the next offset. ``drained``: bounded input is at its end."""
        pending, given_up = self._still_pending(start, now_ms)
        if not self.source.leader:
            return self._follow(start, pending, now_ms, drained)
        given_up += self._lost(start, now_ms)
        late = co.decide_expiry(self._policy(), pending, now_ms)
        # ``pending`` may be a moment old; what has completed meanwhile must not be aborted.
        expired = tuple(e for e in late if not self.records.settled(e.checkpoint))
        if expired:
            return self._expire(expired, pending, given_up, now_ms)
        decision = co.decide_trigger(self._policy(), self._facts(pending, now_ms, drained))
        if isinstance(decision, co.Wait):
            return Injection(None, 0, _plain(pending), tuple(given_up))
        return replace(self._trigger(decision, pending, now_ms), cancel=tuple(given_up))

    # -- leader ------------------------------------------------------------------------------------------------

    def _policy(self) -> co.TriggerPolicy:
        c = self.run.config
        return co.TriggerPolicy(c.interval_ms, c.min_pause_ms, c.timeout_ms, c.max_concurrent)

    def _facts(self, pending: list[co.PendingTrigger], now_ms: int, drained: bool) -> co.TriggerFacts:
        return co.TriggerFacts(
            now_ms=now_ms,
            started_ms=self._started_ms,
            initial_delay_ms=self._initial_delay_ms,
            last_trigger_ms=self._last_trigger_ms,
            last_completion_ms=self._last_completion_ms,
            pending=tuple(pending),
            requests=self._requests(now_ms),
            at_end=drained,
            final_done=self._final is not None and self.records.completion(self._final) is not None,
        )

    def _requests(self, now_ms: int) -> tuple[co.ManualRequest, ...]:
        if not self._due("requests", now_ms, self.run.config.trigger_poll_interval_ms):
            return ()
        return tuple(r for r in open_requests(self.records.store) if r.request not in self._answered)

    def _trigger(self, now: co.TriggerNow, pending: list[co.PendingTrigger], now_ms: int) -> Injection:
        record = self._create(now, now_ms)
        self._last_trigger_ms = now_ms
        if now.kind == FINAL:
            self._final = record.checkpoint
        if now.request is not None:
            self._answered.add(now.request)
        info = {"kind": record.kind, "by": record.by, "target": record.target}
        call_hook(self.run.config, self.run.job, "on_trigger", record.checkpoint, info)
        after = (*_plain(pending), (record.checkpoint, now_ms))
        return Injection(record.checkpoint, now_ms, after, terminal=record.terminal)

    def _create(self, now: co.TriggerNow, now_ms: int) -> TriggerRecord:
        while True:
            # Whoever else starts this job may have taken the id; ids only need to grow.
            self._newest += 1
            record = TriggerRecord(
                self._newest, now.kind, now_ms, now.by, now.target, now.terminal, now.request, self.run.generation
            )
            if self.records.create_trigger(record):
                return record

    def _lost(self, start: Offset, now_ms: int) -> list[int]:
        """Once after a start: give up what an earlier generation triggered and never injected here."""
        if self._looked_for_lost:
            return []
        self._looked_for_lost = True
        triggers = (self.records.trigger(k) for k in self.records.ids("triggers") if not self.records.settled(k))
        lost = co.decide_lost([t for t in triggers if t is not None], self.run.generation, start["epoch"])
        for k in lost:
            reason = "its generation ended before every source had injected it"
            self._give_up(AbortedRecord(k, LOST, reason, now_ms, self.run.generation), now_ms)
        return list(lost)

    def _expire(
        self, expired: tuple[co.Expire, ...], pending: list[co.PendingTrigger], given_up: list[int], now_ms: int
    ) -> Injection:
        triggered = {p.checkpoint: p.triggered_ms for p in pending}
        for e in expired:
            record = AbortedRecord(e.checkpoint, EXPIRED, e.reason, now_ms, self.run.generation)
            self._give_up(record, triggered[e.checkpoint])
        failures = self._failed_in_a_row()
        if failures.exceeded:
            raise CheckpointFailedError(
                f"{len(failures.failed)} checkpoint(s) in a row failed, spark.ckpt.tolerableFailures allows "
                f"{failures.tolerable}; the last: {expired[-1].reason}. Nothing is lost; start the query "
                "again, with a longer spark.ckpt.timeout if the checkpoints need it."
            )
        gone = set(triggered) & {e.checkpoint for e in expired}
        kept = [p for p in pending if p.checkpoint not in gone]
        return Injection(None, 0, _plain(kept), tuple(sorted(gone | set(given_up))))

    def _give_up(self, record: AbortedRecord, triggered_ms: int) -> None:
        self.records.abort(record)
        config, k = self.run.config, record.checkpoint
        call_hook(config, self.run.job, "on_abort", k, {"cause": record.cause, "reason": record.reason})
        if config.history:
            trigger = self.records.trigger(k)
            kind = trigger.kind if trigger else None
            # No batch: the one that carries the cancel marker has no number yet.
            row = HistoryRow(k, kind, record.cause, triggered_ms, record.generation, -1, record.reason)
            History(f"{self.run.url}/history", config.storage_options()).record(row)

    def _failed_in_a_row(self) -> co.FailureCounter:
        """From the records, because declines are counted by the commit, in another process."""
        aborted = (self.records.aborted(k) for k in self.records.ids("aborted"))
        counter = co.FailureCounter(self.run.config.tolerable_failures)
        counter = counter.add([a for a in aborted if a is not None], self.run.generation)
        return counter.completed(max((c.checkpoint for c in self.records.completions()), default=0))

    # -- follower ----------------------------------------------------------------------------------------------

    def _follow(self, start: Offset, pending: list[co.PendingTrigger], now_ms: int, drained: bool) -> Injection:
        """Take up the newest open trigger that is ahead of this source."""
        nothing = Injection(None, 0, _plain(pending))
        if not drained and not self._due("triggers", now_ms, self.run.config.trigger_poll_interval_ms):
            return nothing
        ahead = [k for k in self.records.ids("triggers") if k >= start["epoch"]]
        if not ahead or self.records.settled(ahead[-1]):
            return nothing
        record = self.records.trigger(ahead[-1])
        if record is None or (record.kind == FINAL and not drained):
            return nothing
        after = (*_plain(pending), (record.checkpoint, record.time_ms))
        return Injection(record.checkpoint, record.time_ms, after, terminal=record.terminal)

    # -- shared ------------------------------------------------------------------------------------------------

    def _still_pending(self, start: Offset, now_ms: int) -> tuple[list[co.PendingTrigger], list[int]]:
        """(what is neither complete nor aborted, what was aborted and has no cancel marker yet).

        An aborted checkpoint leaves ``pending`` with the offset that carries its marker. A crash before that offset
        is logged: it is still pending there, and gets its marker from the next reader.
        """
        given_up: list[int] = []
        triggered = [(k, t) for k, t in start["pending"] if k not in self._settled]
        if triggered and self._due("settled", now_ms, _SETTLED_POLL_MS):
            newest = max(self.records.ids("checkpoints"), default=0)
            for k, _ in triggered:
                if k <= newest or self.records.settled(k):
                    self._settled.add(k)
                    self._last_completion_ms = now_ms
                if k > newest and k in self._settled:
                    given_up.append(k)
        return [co.PendingTrigger(k, t) for k, t in triggered if k not in self._settled], given_up

    def _answered_requests(self) -> set[str]:
        triggers = (self.records.trigger(k) for k in self.records.ids("triggers"))
        return {t.request for t in triggers if t is not None and t.request is not None}

    def _due(self, what: str, now_ms: int, every_ms: int) -> bool:
        """Storage is read now and then, not with every poll."""
        if now_ms - self._polled.get(what, -every_ms) < every_ms:
            return False
        self._polled[what] = now_ms
        return True


def _plain(pending: list[co.PendingTrigger]) -> tuple[tuple[int, int], ...]:
    return tuple((p.checkpoint, p.triggered_ms) for p in pending)
