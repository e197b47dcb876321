"""The I/O shell of a source's decisions: executes the steps of :mod:`spark_ckpt.protocol.source_steps`. Driver, source
process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, TypeVar

from spark_ckpt.errors import CkptError
from spark_ckpt.faults import reach
from spark_ckpt.jobs.hooks import HookError, ask_hook, call_hook
from spark_ckpt.jobs.pausing import is_paused
from spark_ckpt.jobs.records import JobRecords, left_for_later
from spark_ckpt.jobs.report import aborted_row
from spark_ckpt.jobs.requests import Answer, answer_request, drop_old_answers, drop_request, open_requests, read_answer
from spark_ckpt.jobs.scheduled_savepoints import newest_ms
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.protocol import source_steps as st
from spark_ckpt.protocol.checkpoint_state import CheckpointState, Name, state_of
from spark_ckpt.protocol.records import AbortedRecord, CompletionRecord, TriggerRecord
from spark_ckpt.protocol.steps import StorageFailed
from spark_ckpt.storage.history import History
from spark_ckpt.storage.job_paths import JobPaths, drained_of
from spark_ckpt.storage.retry import Retry, describe, is_storage_failure

Result = TypeVar("Result")
_DAY_MS = 86_400_000


class SourceIO:
    """Storage of one job, as one source's process sees it. ``ask_inner`` asks the inner source."""

    def __init__(self, run: RunSpec, records: JobRecords, leader: bool, now_ms: int) -> None:
        self.run_spec = run
        self.records = records
        self.leader = leader
        self._now_ms = now_ms
        self._names: dict[int, Name] = {}

    def run(
        self,
        coroutine: Generator[st.SourceStep, Any, Result],
        ask_inner: Callable[[Any], st.InnerRead],
    ) -> Result:
        """Drive a coroutine of the protocol to its end. What a step raises ends it."""
        try:
            step = next(coroutine)
            while True:
                if isinstance(step, st.AskInner):
                    step = coroutine.send(ask_inner(step.inner))
                    continue
                step = coroutine.send(self.execute(step))
        except StopIteration as done:
            value: Result = done.value
            return value

    def execute(self, step: st.SourceStep) -> Any:
        name = type(step).__name__
        reach(f"before {name}")
        result = getattr(self, f"_{name}")(step)
        reach(f"after {name}")
        return result

    # -- reading -----------------------------------------------------------------------------------------------

    def _ReadSourceStart(self, step: st.ReadSourceStart) -> st.SourceStart:
        records = self.records
        completed = self.newest_completed()
        newest = records.readable_checkpoint(completed)
        if self.leader:
            self._clean_up("answers", lambda: drop_old_answers(records.store, self._now_ms - _DAY_MS))
            self._clean_up("drained", self._drop_old_announcements)
        triggers = (records.trigger(k) for k in records.ids("triggers"))
        return st.SourceStart(
            records.newest_id(),
            completed,
            newest.completed_ms if isinstance(newest, CompletionRecord) else None,
            frozenset(t.request for t in triggers if t is not None and t.request is not None),
            newest_ms(self.run_spec.config, self.run_spec.job) if self.leader else None,
            is_paused(records.store),
        )

    def _clean_up(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - nothing depends on it, and it is tried again
            left_for_later(what, error)

    def _drop_old_announcements(self) -> None:
        for generation, source in self._drained():
            if generation < self.run_spec.generation:  # a newer driver is not mine to clean up behind
                self.records.store.delete(JobPaths.drained(generation, source))

    def _drained(self) -> list[tuple[int, str]]:
        return [drained_of(name) for name in self.records.store.names("drained")]

    def _Look(self, step: st.Look) -> st.Looked:
        store, there = self.records.store, self.records.ids("checkpoints")
        answers = {r: read_answer(store, r) for r in step.requests}
        return st.Looked(
            self._newest_completed(there),
            frozenset(k for k in step.checkpoints if self._state(k, k in there).given_up),
            frozenset(r for r, a in answers.items() if a is not None and a.error is not None),
        )

    def newest_completed(self) -> int:
        """The newest checkpoint that is complete, whether or not its sinks have been committed yet; 0 if none is."""
        return self._newest_completed(self.records.ids("checkpoints"))

    def _newest_completed(self, ids: list[int]) -> int:
        return next((k for k in sorted(ids, reverse=True) if self._name_of(k) is Name.COMPLETION), 0)

    def _state(self, checkpoint: int, is_named: bool) -> CheckpointState:
        name = self._name_of(checkpoint) if is_named else Name.FREE
        return state_of(name, aborted=name is Name.FREE and self.records.is_aborted(checkpoint))

    def _name_of(self, checkpoint: int) -> Name:
        """Read once: what is taken never becomes anything else that matters here."""
        known = self._names.get(checkpoint) or self.records.name_of(checkpoint)
        if known is not Name.FREE:
            self._names[checkpoint] = known
        return known

    def _ReadOpenTriggers(self, step: st.ReadOpenTriggers) -> tuple[TriggerRecord, ...]:
        return tuple(self.records.open_triggers(step.epoch))

    def _ReadRequests(self, step: st.ReadRequests) -> tuple[st.ManualRequest, ...]:
        return tuple(open_requests(self.records.store))

    def _ReadDrained(self, step: st.ReadDrained) -> frozenset[str]:
        return frozenset(source for generation, source in self._drained() if generation == step.generation)

    def _ReadPaused(self, step: st.ReadPaused) -> bool:
        return is_paused(self.records.store)

    def _ReadAborted(self, step: st.ReadAborted) -> tuple[AbortedRecord, ...]:
        """Declines are counted by the commit, in another process; both read the records."""
        found = (self.records.aborted(k) for k in self.records.ids("aborted"))
        return tuple(a for a in found if a is not None)

    # -- writing -----------------------------------------------------------------------------------------------

    def _CreateTrigger(self, step: st.CreateTrigger) -> bool | StorageFailed:
        try:
            return self.records.create_trigger(step.record)
        except CkptError as error:
            if not is_storage_failure(error):
                raise
            return StorageFailed(describe(error))

    def _CallHook(self, step: st.CallHook) -> str | None:
        record, config = step.record, self.run_spec.config
        info = {"kind": record.kind, "by": record.by, "target": record.target}
        try:
            kept = ask_hook(config, self.run_spec.job, record.checkpoint, info)
        except HookError as failed:
            return str(failed)
        if kept is None:
            return None
        try:
            self.records.replace_trigger(replace(record, hook=kept))
        except CkptError as error:
            if not is_storage_failure(error):
                raise
            return f"what on_trigger returned was not recorded: {describe(error)}"
        return None

    def _DropRequest(self, step: st.DropRequest) -> None:
        self._clean_up("requests", lambda: drop_request(self.records.store, step.request))

    def _Withdraw(self, step: st.Withdraw) -> bool:
        return answer_request(self.records.store, step.request, Answer(None, step.reason)).checkpoint is None

    def _AnnounceDrained(self, step: st.AnnounceDrained) -> None:
        self.records.store.create(JobPaths.drained(step.generation, step.source), "drained", {})

    def _GiveUp(self, step: st.GiveUp) -> None:
        record, config = step.record, self.run_spec.config
        k = record.checkpoint
        self.records.abort(record)
        call_hook(config, self.run_spec.job, "on_abort", k, {"cause": record.cause, "reason": record.reason})
        if config.history:
            self._clean_up("history", lambda: self._record(record))

    def _record(self, aborted: AbortedRecord) -> None:
        row, config = aborted_row(aborted, self.records.trigger(aborted.checkpoint)), self.run_spec.config
        History(self.records.paths.history, config.storage_options(), Retry.of(config).timeout_s).record(row)
