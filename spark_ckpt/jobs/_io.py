"""The I/O shell of the protocol: executes the steps that its coroutines ask for. Driver.

Every method named ``_<Step>`` does one step of :mod:`spark_ckpt.protocol.steps`; what a step means stands there.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from spark_ckpt import clock
from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CorruptStorageError, FencedError, ProtocolBugError
from spark_ckpt.faults import reach
from spark_ckpt.jobs._moved_sources import bring_source
from spark_ckpt.jobs._savepoints import write_savepoint
from spark_ckpt.jobs._start_facts import newest_generation
from spark_ckpt.jobs.hooks import call_hook
from spark_ckpt.jobs.log_lines import about_checkpoint
from spark_ckpt.jobs.records import JobRecords, left_for_later, report
from spark_ckpt.jobs.report import history_row, left_by, left_state, sizes_of
from spark_ckpt.jobs.requests import Answer, answer_request
from spark_ckpt.jobs.rewriting import WriteRows, rewrite_checkpoint
from spark_ckpt.jobs.scheduled_savepoints import drop_older
from spark_ckpt.jobs.spec import SinkSpec, cache_dir, job_url, sink_place
from spark_ckpt.jobs.statistics import StatisticsKeeper
from spark_ckpt.protocol import steps as st
from spark_ckpt.protocol.records import CompletionRecord, FailingSink, Figures, GenerationRecord, TableRef, VoidRecord
from spark_ckpt.protocol.recovery import StartFacts
from spark_ckpt.protocol.setback import SinkFound
from spark_ckpt.redaction import redact_url
from spark_ckpt.sinks import rejects
from spark_ckpt.sinks.base import Part, TwoPhaseSink
from spark_ckpt.sinks.together import Failed, ask_sinks, commit_sinks, may_be_repeated, try_sinks
from spark_ckpt.storage.content import TableContent, named_files
from spark_ckpt.storage.delta_schema import to_delta_schema
from spark_ckpt.storage.history import History
from spark_ckpt.storage.job_paths import JobPaths, batch_of
from spark_ckpt.storage.manifest import StateManifest, read_manifest, write_manifest
from spark_ckpt.storage.record_store import Created
from spark_ckpt.storage.retry import Retry, describe, is_storage_failure
from spark_ckpt.storage.run_cache import forget_cached
from spark_ckpt.storage.state_table import StateTable

_log = logging.getLogger("spark_ckpt")
Result = TypeVar("Result")

_LOOKS_EVERY_S = 0.5
"""For a person's approval."""

_PHASES: dict[type[Any], str] = {
    st.CommitState: "commit_state_ms",
    st.TrySinks: "commit_sinks_ms",
    st.CommitSinks: "commit_sinks_ms",
    st.WriteSavepoint: "commit_sinks_ms",
}
"""What a completed checkpoint's statistics tell of the steps."""


class JobIO:
    """Storage and sinks of one job, in one process. ``generation`` is that of the query that commits."""

    def __init__(
        self,
        job: str,
        config: JobConfig,
        sinks: tuple[SinkSpec, ...],
        generation: int = 0,
        read_facts: Callable[[int], StartFacts] | None = None,
        on_claim: Callable[[int], None] | None = None,
        empty_location: Callable[[int], None] | None = None,
        choose_location: Callable[[int], str] | None = None,
        find_offset: Callable[[str, Any], Any] | None = None,
        write_rows: WriteRows | None = None,
    ) -> None:
        self.job = job
        self.config = config
        self.records = JobRecords(job_url(config, job), config)
        self._retry = Retry.of(config)
        self._took_ms: dict[str, float] = {}
        self.statistics = StatisticsKeeper(self.records)
        self._generation = generation
        self._read_facts = read_facts
        self._on_claim = on_claim
        self._empty_location = empty_location
        self._choose_location = choose_location
        self._find_offset = find_offset
        self._write_rows = write_rows
        self._specs = {s.id: s for s in sinks}
        self._sinks: dict[str, TwoPhaseSink] = {}
        self._tables: dict[str, StateTable] = {}
        self._contents: dict[str, TableContent] = {}
        self._manifests: dict[str, StateManifest] = {}
        self._figures: dict[int, Figures] = {}
        self._history = History(self.records.paths.history, config.storage_options(), self._retry.timeout_s)

    def run(self, coroutine: Generator[st.Step, Any, Result]) -> Result:
        """Drive a coroutine of the protocol to its end. What a step raises ends it."""
        try:
            step = next(coroutine)
            while True:
                name = type(step).__name__
                reach(f"before {name}")
                try:
                    result = self._execute(step)
                except Exception as error:  # noqa: BLE001 - the coroutine may say more about it; it comes out of it
                    step = coroutine.throw(error)
                    continue
                reach(f"after {name}")
                step = coroutine.send(result)
        except StopIteration as done:
            value: Result = done.value
            return value

    def _execute(self, step: st.Step) -> Any:
        """Do one step; what the protocol can go on without is told to it as an answer."""
        started = time.perf_counter()
        about_checkpoint(getattr(getattr(step, "record", step), "checkpoint", None))
        try:
            return getattr(self, f"_{type(step).__name__}")(step)
        except (FencedError, ProtocolBugError):
            raise
        except Exception as error:
            if isinstance(step, st.CLEAN_UP_STEPS):
                return st.StorageFailed(left_for_later(type(step).__name__, error))
            if isinstance(step, st.CHECKPOINT_STEPS) and is_storage_failure(error):
                return st.StorageFailed(describe(error))
            raise
        finally:
            phase = _PHASES.get(type(step))
            if phase is not None:
                self._took_ms[phase] = self._took_ms.get(phase, 0.0) + 1000 * (time.perf_counter() - started)

    def sink(self, name: str) -> TwoPhaseSink:
        if name not in self._sinks:
            self._sinks[name] = self._specs[name].make(sink_place(self.config, self.job))
        return self._sinks[name]

    def table(self, uid: str) -> StateTable:
        if uid not in self._tables:
            url, options = self.records.paths.state(uid), self.config.storage_options()
            self._tables[uid] = StateTable(url, uid, options, self._retry)
        return self._tables[uid]

    def newest_figures(self, newest: CompletionRecord | None) -> Figures:
        """What ``newest`` was like: for a report, so it never fails."""
        if newest is None:
            return Figures()
        if newest.checkpoint not in self._figures:
            try:
                sizes = sizes_of(left_by(self.records, newest, self._manifest))
            except Exception as error:  # noqa: BLE001 - whatever a file system raises: a figure less
                left_for_later("sizes of state", error)
                sizes = {}
            keys, state_bytes = {t: s.keys for t, s in sizes.items()}, {t: s.size_bytes for t, s in sizes.items()}
            phases = self.statistics.newest_phases()
            self._figures = {newest.checkpoint: Figures(keys=keys, state_bytes=state_bytes, checkpoint_ms=phases)}
        return self._figures[newest.checkpoint]

    # -- generations ---------------------------------------------------------------------------------------------

    def _CreateGeneration(self, step: st.CreateGeneration) -> bool:
        created = self.records.create_generation(step.record)
        if created and self._on_claim is not None:
            self._on_claim(step.record.generation)
        return created

    def _ReadStartFacts(self, step: st.ReadStartFacts) -> StartFacts:
        assert self._read_facts is not None
        return self._read_facts(step.generation)

    def _ReadSinks(self, step: st.ReadSinks) -> dict[str, SinkFound]:
        return ask_sinks(step.job, {name: self.sink(name) for name in step.sinks}, self._retry)

    def _CreateVoid(self, step: st.CreateVoid) -> st.Created | st.Exists:
        return self._create_checkpoint(step.record)

    def _WriteGeneration(self, step: st.WriteGeneration) -> None:
        record: GenerationRecord = step.record
        self.records.store.replace(JobPaths.generation(record.generation), "generation", record.to_json())

    def _SetBackSink(self, step: st.SetBackSink) -> None:
        back = partial(self.sink(step.sink).roll_back, step.job, step.sink, step.checkpoint)
        self._retry.call(back, may_be_repeated)

    def _AwaitApproval(self, step: st.AwaitApproval) -> None:
        records, g = self.records, step.generation
        records.write_plan(g, step.plan)
        _log.warning(
            "Job %s waits, as this start would lose what is marked by an exclamation mark:\n%s\n`spark-ckpt approve %s "
            "%s` lets it go on.", self.job, step.plan, redact_url(self.config.dir), self.job,
        )  # fmt: skip
        while records.approved(g) != step.plan:
            newest = newest_generation(records)
            if newest > g:
                raise FencedError(
                    f"job {self.job!r}: expected generation {g} to be the newest, found {newest}; another start came "
                    "while this one waited to be approved"
                )
            time.sleep(_LOOKS_EVERY_S)

    def _RewriteState(self, step: st.RewriteState) -> CompletionRecord:
        assert self._write_rows is not None
        return rewrite_checkpoint(self.job, self.records, step.checkpoint, step.topology, self._write_rows)

    def _BringSources(self, step: st.BringSources) -> None:
        for uid, was in step.moved.items():
            bring_source(self.records, was, uid)

    def _FindOffsets(self, step: st.FindOffsets) -> dict[str, Any]:
        assert self._find_offset is not None
        return {uid: self._find_offset(uid, asked) for uid, asked in step.asked.items()}

    def _ChooseLocation(self, step: st.ChooseLocation) -> str:
        assert self._choose_location is not None
        return self._choose_location(step.generation)

    def _EmptyLocation(self, step: st.EmptyLocation) -> None:
        assert self._empty_location is not None
        self._empty_location(step.origin)

    # -- batches and checkpoints ---------------------------------------------------------------------------------

    def _create_checkpoint(self, record: CompletionRecord | VoidRecord) -> st.Created | st.Exists:
        k, body = record.checkpoint, record.to_json()
        path, copy = JobPaths.checkpoint(k), JobPaths.copy(k, record.generation)
        store = self.records.store
        # Not synced: one of the two is enough, and after a power loss it is the other that is there.
        store.replace(copy, "checkpoint", body, durable=False)
        reach("between copy and checkpoint")
        # Stopped here: nobody looks at a copy while its checkpoint is absent.
        try:
            if isinstance(store.create(path, "checkpoint", body), Created):
                return st.Created()
            found = self.records.checkpoint(k)
        except CorruptStorageError:
            store.delete(copy)
            raise
        assert found is not None
        if found != record:
            store.delete(copy)  # of what will never be. Stopped before: of two copies neither is believed
        return st.Exists(found)

    def _PutBack(self, step: st.PutBack) -> None:
        if self.records.is_lost(step.record.checkpoint):
            path = JobPaths.checkpoint(step.record.checkpoint)
            _log.warning("%s of job %s was lost, and is put back from its copy.", path, self.job)
            self.records.store.replace(path, "checkpoint", step.record.to_json())

    def _WriteBatch(self, step: st.WriteBatch) -> None:
        self.records.store.replace(JobPaths.batch(step.record.name), "batch", step.record.to_json())

    def _AbortSink(self, step: st.AbortSink) -> None:
        if step.sink not in self._specs:  # of a rollback that does not know all sinks: left for gc
            return
        self.sink(step.sink).abort(step.committables)

    def _ReadTrigger(self, step: st.ReadTrigger) -> Any:
        return self.records.trigger(step.checkpoint), self.records.aborted(step.checkpoint)

    def _ReadAborted(self, step: st.ReadAborted) -> Any:
        found = (self.records.aborted(k) for k in self.records.ids("aborted"))
        return tuple(a for a in found if a is not None)

    def _ReadNewestGeneration(self, step: st.ReadNewestGeneration) -> int:
        return max(self.records.ids("generations"), default=0)

    def _CommitState(self, step: st.CommitState) -> TableRef:
        table = self.table(step.uid)
        base = self._content(step.base) if step.base is not None else None
        app_id = f"{self.job}/{step.uid}"
        done = table.commit(app_id, step.checkpoint, base, step.flushed, step.groups, self._generation)
        schema = to_delta_schema(table.schema(known=True))
        manifest = StateManifest(step.uid, step.checkpoint, done.version, schema, done.content, step.groups)
        path = write_manifest(self.records.store, manifest, uuid.uuid4().hex[:12])
        self._manifests[path] = manifest
        of_table = f"{JobPaths.manifests_of(step.uid)}/"
        self._contents = {k: v for k, v in self._contents.items() if not k.startswith(of_table)}
        self._contents[path] = done.content
        return TableRef(done.version, path)

    def _content(self, ref: TableRef) -> TableContent:
        if ref.manifest not in self._contents:
            self._contents[ref.manifest] = self._manifest(ref.manifest).content
        return self._contents[ref.manifest]

    def _manifest(self, path: str) -> StateManifest:
        """A manifest is written once, under a name of its own: what this process wrote or read need not be read."""
        if path not in self._manifests:
            self._manifests[path] = read_manifest(self.records.store, path)
        return self._manifests[path]

    def _CreateCompletion(self, step: st.CreateCompletion) -> st.Created | st.Exists:
        return self._create_checkpoint(step.record)

    def _TrySinks(self, step: st.TrySinks) -> st.Tried:
        parts = {t.sink: Part(self.sink(t.sink), t.committables) for t in step.tries}
        tried = try_sinks(parts, self._retry, self._failing(step.checkpoint, list(parts)))
        rejected = Counter(tried.rejected)
        for t in step.tries:
            refused_by = self._specs[t.sink].refused_by
            if refused_by is not None:
                rejected[refused_by] += rejects.count(t.committables)
        return replace(tried, rejected=dict(rejected))

    def _CommitSinks(self, step: st.CommitSinks) -> tuple[Exception | None, ...]:
        parts = [Part(self.sink(c.sink), c.committables) for c in step.commits]
        permit = step.commits[0].permit
        return commit_sinks(
            permit, parts, self._retry, reach, self._failing(permit.checkpoint, [c.sink for c in step.commits])
        )

    def _failing(self, checkpoint: int, sinks: Sequence[str]) -> Failed:
        """Records what fails, by its place among ``sinks``: `spark-ckpt doctor` tells it while it is tried again."""

        def failed(part: int, error: BaseException) -> None:
            name, now_ms = sinks[part], clock.now_ms()
            try:
                old = self.records.failing(name)
                same = old is not None and old.checkpoint == checkpoint
                tries, since_ms = (old.tries, old.since_ms) if old is not None and same else (0, now_ms)
                target = redact_url(self.sink(name).target)
                self.records.failed(FailingSink(name, target, checkpoint, tries + 1, since_ms, now_ms, describe(error)))
            except Exception as unwritten:  # noqa: BLE001 - a figure less
                left_for_later("failures of sinks", unwritten)

        return failed

    def _WriteSavepoint(self, step: st.WriteSavepoint) -> st.SavepointFailed | None:
        failed = write_savepoint(self.job, self.records, self.table, step.record)
        if failed is None and step.record.request is None:  # on a schedule
            drop_older(self.config, self.job, step.record)
        return failed

    def _AnswerRequest(self, step: st.AnswerRequest) -> None:
        answer_request(self.records.store, step.request, Answer(step.checkpoint, step.error))

    def _WriteCommitted(self, step: st.WriteCommitted) -> None:
        k = step.record.checkpoint
        self.records.store.replace(JobPaths.committed(k), "committed", step.record.to_json())

    def _WriteAborted(self, step: st.WriteAborted) -> None:
        self.records.abort(step.record)
        info = {"cause": step.record.cause, "reason": step.record.reason}
        call_hook(self.config, self.job, "on_abort", step.record.checkpoint, info)

    def _AppendHistory(self, step: st.AppendHistory) -> None:
        completed = step.outcome == "completed"
        if completed:
            info = {"kind": step.kind, "batch": step.batch, "duration_ms": step.ended_ms - (step.triggered_ms or 0)}
            call_hook(self.config, self.job, "on_complete", step.checkpoint, info)
        took, self._took_ms = self._took_ms, {}
        if not self.config.history:
            return
        left = left_state(self.records, step.checkpoint, self._manifest)
        row = history_row(step, left, clock.now_ms(), {name: int(ms) for name, ms in took.items()})
        self._history.record(row)
        if completed:
            self.statistics.completed(step, row, left)
        else:
            self.statistics.aborted(step)

    def _CollectFiles(self, step: st.CollectFiles) -> None:
        """Names come from the manifests; a file's epoch stands in its name."""
        named: dict[str, list[StateManifest]] = {}
        completions = self.records.completions()
        for checkpoint in step.named_by:
            record = next((c for c in completions if c.checkpoint == checkpoint), None)
            if record is None:
                # Damaged, or somebody else dropped it: this driver is not the job's newest. What is garbage cannot be
                # judged here.
                return
            for uid, ref in record.tables.items():
                try:
                    named.setdefault(uid, []).append(self._manifest(ref.manifest))
                except CorruptStorageError as damage:
                    report(damage)
                    return  # what it names cannot be told from garbage; files are collected again when it is dropped
        there = {uid: self.table(uid).folder.names() for uid in named}
        if self._ReadNewestGeneration(st.ReadNewestGeneration()) > self._generation:
            return  # a newer driver may have written some of them. What was listed before it came is none of its files
        for uid, manifests in named.items():
            table = self.table(uid)
            keep = set().union(*(m.files for m in manifests)) | named_files(table.head().content)
            found = (n for n in there[uid] if n not in keep)
            collected = [n for n in found if n.endswith(".bin") or _epoch_of(n) <= step.up_to]
            table.remove(collected)
            # Stopped here: what is cached of them goes when its machine's processes tidy up.
            forget_cached(table.url, cache_dir(self.config), collected, self.config.storage_options())
            table.trim_log(min(m.table_version for m in manifests))

    def _DropBatches(self, step: st.DropBatches) -> None:
        for name in self.records.store.names("batches"):
            origin, batch, _ = batch_of(name)
            if origin == step.origin and (step.below is None or batch < step.below):
                self.records.store.delete(JobPaths.listed("batches", name))

    def _DropCheckpoint(self, step: st.DropCheckpoint) -> None:
        record, k = self.records.completion(step.checkpoint), step.checkpoint
        manifests = [t.manifest for t in record.tables.values()] if record else []
        store = self.records.store
        # Copies first: what is dropped must not be put back.
        if step.void is None:
            if record is not None:
                # Of a K that this generation triggered, nobody else made one.
                store.delete(JobPaths.copy(k, record.generation))
            store.delete(JobPaths.checkpoint(k))
        else:
            self.records.drop_copies(k)
            store.replace(JobPaths.checkpoint(k), "checkpoint", step.void.to_json())
        for path in (JobPaths.committed(k), *manifests, *self.records.abandoned_of(k)):
            self._manifests.pop(path, None)
            store.delete(path)
        for path in self.records.given_up_paths(k):
            store.delete(path)


def _epoch_of(file: str) -> float:
    """The epoch in a state file's name: 0 for one that came with a savepoint, infinite for somebody else's."""
    if not file.endswith(".parquet"):
        return float("inf")
    epoch = file[1:11]
    return (
        int(epoch) if file.startswith("e") and epoch.isdigit() else 0 if file.startswith("savepoint-") else float("inf")
    )
