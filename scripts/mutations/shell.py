"""Of the shell around the protocol: jobs, readers, records and state tables."""

from __future__ import annotations

from mutations.mutation import Mutation

_IO, _COMMITTER, _RECORDS = "jobs/_io.py", "jobs/committer.py", "jobs/records.py"
_START, _FACTS, _SAVEPOINTS = "jobs/start.py", "jobs/_start_facts.py", "jobs/_savepoints.py"
_REWRITING, _MANIFEST = "jobs/rewriting.py", "storage/manifest.py"
_REQUESTS, _DELETION = "jobs/requests.py", "jobs/_deletion.py"
_READER, _SOURCE_IO = "runtime/source/reader.py", "runtime/source/_io.py"
_TRIGGERS, _WATCH = "runtime/source/trigger_coordinator.py", "runtime/source/_lost_barriers.py"
_FILES, _TABLE, _STORE = "storage/filesystem.py", "storage/state_table.py", "storage/record_store.py"

MUTATIONS = (
    # --- executing steps
    Mutation(
        _IO,
        "the newest generation is looked at",
        'return max(self.records.ids("generations"), default=0)',
        "return self._generation",
    ),
    Mutation(
        _IO,
        "a name that is taken stays so",
        'if isinstance(store.create(path, "checkpoint", body), Created):\n                return st.Created()',
        'store.replace(path, "checkpoint", body)\n            return st.Created()',
    ),
    Mutation(_IO, "a completion has a copy", 'store.replace(copy, "checkpoint", body, durable=False)', "pass"),
    Mutation(
        _IO,
        "a copy of what will never be goes",
        "        if found != record:\n            store.delete(copy)",
        "        if False:\n            store.delete(copy)",
    ),
    Mutation(_IO, "only what is lost is put back", "if self.records.is_lost(step.record.checkpoint):", "if True:"),
    Mutation(
        _IO,
        "files that a checkpoint names stay",
        "found = (n for n in there[uid] if n not in keep)",
        "found = iter(there[uid])",
    ),
    Mutation(
        _IO,
        "what a successor wrote stays",
        "if self._ReadNewestGeneration(st.ReadNewestGeneration()) > self._generation:",
        "if False:",
    ),
    Mutation(_IO, "files of newer epochs stay", 'n.endswith(".bin") or _epoch_of(n) <= step.up_to]', "True]"),
    Mutation(
        _IO,
        "batches that are needed stay",
        "if origin == step.origin and (step.below is None or batch < step.below):",
        "if origin == step.origin:",
    ),
    Mutation(_IO, "batches of other origins stay", "if origin == step.origin and (step.below", "if (step.below"),
    Mutation(
        _IO,
        "a dropped name stays taken",
        'store.replace(JobPaths.checkpoint(k), "checkpoint", step.void.to_json())',
        "store.delete(JobPaths.checkpoint(k))",
    ),
    Mutation(
        _IO,
        "state builds on its base",
        "base = self._content(step.base) if step.base is not None else None",
        "base = None",
    ),
    # --- the committer
    Mutation(_COMMITTER, "a view of another batch is thrown away", "if self._next not in (None, batch):", "if False:"),
    Mutation(
        _COMMITTER,
        "a restored location has a base",
        "restored=next((c for c in completions if c.checkpoint == run.restored_from), None)",
        "restored=None",
    ),
    Mutation(_COMMITTER, "what was adopted is known", "adopt=run.adopt", "adopt=None"),
    Mutation(
        _COMMITTER,
        "the life is that of the run",
        "life=run.life,\n            abandoned",
        'life="",\n            abandoned',
    ),
    # --- records
    Mutation(
        _RECORDS,
        "complete is not committed",
        'committed, aborted = self.ids("committed"), self.ids("aborted")',
        'committed, aborted = self.ids("checkpoints"), self.ids("aborted")',
    ),
    Mutation(
        _RECORDS,
        "a number that is taken is not free",
        "return isinstance(self.store.create(path, kind, body), Created)",
        "return bool(self.store.create(path, kind, body))",
    ),
    Mutation(
        _RECORDS,
        "committed is what can be read so",
        "if k in known and self.committed(k) is not None)",
        "if k in known)",
    ),
    Mutation(
        _RECORDS,
        "the newest id is that of any record",
        'known = (*self.ids("triggers"), *self.ids("checkpoints"), *self.ids("aborted"), *self.ids("committed"))',
        'known = (*self.ids("checkpoints"), *self.ids("committed"))',
    ),
    Mutation(_RECORDS, "an id that was only confirmed is used", ', *self.ids("committed"))', ")"),
    Mutation(_RECORDS, "what is settled is not open", "if k >= since and not self.is_settled(k))", "if k >= since)"),
    Mutation(
        _RECORDS,
        "what can be restored keeps its trigger",
        "if k <= up_to and not self.name_of(k).may_be_restored]",
        "if k <= up_to]",
    ),
    # --- a start
    Mutation(
        _START,
        "rows behind a restored checkpoint have its next epoch",
        "start_epoch=(record.restored_from or 0) + 1",
        "start_epoch=1",
    ),
    Mutation(
        _START,
        "what is to be adopted is told",
        "adopt=decision.adopt.checkpoint if isinstance(decision, GoOn) and decision.adopt else None",
        "adopt=None",
    ),
    Mutation(
        _START,
        "complete is not confirmed",
        "committed=records.confirmed(ids) if plan.sinks_known else frozenset(ids)",
        "committed=frozenset(ids)",
    ),
    Mutation(
        _START,
        "the first number of a life is the clock's",
        "return known + 1 if known else clock.now_ms()",
        "return known + 1",
    ),
    Mutation(_START, "what was inherited is told", "inherited=started.inherited", "inherited=()"),
    Mutation(_FACTS, "a damaged record's number is used", "return max(found)", "return found[0]"),
    # --- savepoints, requests, deletion
    Mutation(
        _SAVEPOINTS,
        "an imported id is new",
        "checkpoint = reserved_id(records, now_ms, source.checkpoint)",
        "checkpoint = source.checkpoint",
    ),
    Mutation(
        _SAVEPOINTS,
        "an import has nothing to commit",
        "record = replace(as_savepoint(source), checkpoint",
        "record = replace(source, checkpoint",
    ),
    Mutation(
        _SAVEPOINTS,
        "a savepoint is there when all of it is",
        "tables = {uid: _export(records, store, table(uid), ref) for uid, ref in record.tables.items()}",
        "tables = dict(record.tables)",
    ),
    Mutation(
        _SAVEPOINTS,
        "a checkpoint that another start made is not one's own",
        "if isinstance(made, Exists):\n        raise Retryable",
        "if False:\n        raise Retryable",
    ),
    Mutation(
        _REWRITING,
        "two starts that write state anew share no manifest",
        "uuid.uuid4().hex[:12]))",
        '"rewritten"))',
    ),
    Mutation(
        _MANIFEST,
        "half a manifest is in no one's way",
        "store.replace(path, _KIND, body)",
        "store.create(path, _KIND, body)",
    ),
    Mutation(
        _REQUESTS,
        "the first answer is the last word",
        "return codec.read(Answer, found.body, path) if isinstance(found, Exists) else answer",
        "return answer",
    ),
    Mutation(_REQUESTS, "an answered request is not open", " and read_answer(store, request_of(name)) is None:", ":"),
    Mutation(_DELETION, "the newest id stays taken", "        if k == newest:\n", "        if False:\n"),
    # --- readers
    Mutation(_READER, "a replay is over with the next look", "        self._replaying = False\n", "        pass\n"),
    Mutation(
        _READER,
        "the first batch of a start may be a replay",
        "        self._replaying = True\n",
        "        self._replaying = False\n",
    ),
    Mutation(_READER, "a restored location sends manifests", "        if manifests:\n", "        if False:\n"),
    Mutation(_READER, "the barriers of a batch are known", "self._watch.sent(behind)", "pass"),
    Mutation(
        _READER,
        "rows are read from where the batch begins",
        "self.inner.splits(before.inner, behind.inner)",
        "self.inner.splits(self.inner.initial(), behind.inner)",
    ),
    Mutation(
        _TRIGGERS,
        "a restored source begins where it stood",
        "position = SourcePosition.from_json(starts_at(self.run.topology, self.source.id, completion))",
        "position = SourcePosition()",
    ),
    Mutation(
        _TRIGGERS,
        "upstream hears of what is complete",
        "return self._position_at(known).inner",
        "return self._position_at(known + 1).inner",
    ),
    Mutation(_TRIGGERS, "what a newer one left behind is over", " or checkpoint < self._io.newest_completed()", ""),
    Mutation(
        _SOURCE_IO,
        "triggers are open that are not settled",
        "return tuple(self.records.open_triggers(step.epoch))",
        "return tuple(self.records.open_triggers(step.epoch + 1))",
    ),
    Mutation(_SOURCE_IO, "a generation's own announcements count", "if generation == step.generation)", ")"),
    Mutation(_SOURCE_IO, "the newest that is complete", "if self._name_of(k) is Name.COMPLETION), 0)", "), 0)"),
    Mutation(_SOURCE_IO, "a withdrawal is seen", "if a is not None and a.error is not None)", "if False)"),
    Mutation(
        _WATCH,
        "who is fenced blames no operation",
        "raise unless_fenced(run, ControlColumnsError(_message(found.reason, triggers.source.plain_operations)))",
        "raise ControlColumnsError(_message(found.reason, triggers.source.plain_operations))",
    ),
    Mutation(
        _SOURCE_IO,
        "what a newer driver announces stays",
        "if generation < self.run_spec.generation:",
        "if generation != self.run_spec.generation:",
    ),
    Mutation(_WATCH, "what is over is not lost", "if triggers.is_over(checkpoint):", "if False:"),
    Mutation(
        _WATCH, "what an earlier start sent is no fault of this query", "sent=checkpoint in self._sent", "sent=True"
    ),
    # --- storage
    Mutation(
        _FILES,
        "create is create if absent",
        'self.fs.pipe_file(self.path(name), data, mode="create")',
        "self.fs.pipe_file(self.path(name), data)",
    ),
    Mutation(_STORE, "a record's checksum is looked at", 'if record.get("crc32") != checksum:', "if False:"),
    Mutation(_TABLE, "state that does not add up is not committed", "        check_live_rows(entries, groups)\n", ""),
    Mutation(_TABLE, "an older generation does not write", "            if fenced:\n", "            if False:\n"),
)
