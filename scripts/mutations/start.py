"""Of a start: what it decides, what it finds damaged, what it makes of what others left."""

from __future__ import annotations

from mutations.mutation import Mutation

_COMPLETE, _REFUSAL = "protocol/_complete.py", "protocol/_refusal.py"
_START, _RECOVERY, _VIEW = "protocol/startup.py", "protocol/recovery.py", "protocol/_view.py"
_FENCING = "protocol/_fencing.py"
_PENDING, _DAMAGE, _TOPOLOGY = "protocol/pending.py", "protocol/damage.py", "protocol/topology.py"
_SOURCES, _MIGRATION = "protocol/source_starts.py", "protocol/migration.py"
_LIFE, _LOST = "protocol/life.py", "protocol/lost_barriers.py"

MUTATIONS = (
    # --- a query that changed
    Mutation(
        _RECOVERY,
        "a changed query leaves the location",
        "if refused is None and changed is not None:",
        "if False:",
    ),
    Mutation(
        _RECOVERY,
        "a changed query goes where nothing was left behind",
        "if refused is None and changed is not None:",
        "if changed is not None:",
    ),
    Mutation(
        _RECOVERY,
        "only a job with a checkpoint moves",
        "    if newest is None:\n        way",
        "    if False:\n        way",
    ),
    Mutation(_START, "a changed query gets a location of its own", "and decision.changed:", "and False:"),
    Mutation(
        _START,
        "the location that was given leads to the own one",
        "given_location=given, spark_location=",
        "spark_location=",
    ),
    Mutation(
        "jobs/start.py",
        "the given location is followed",
        "            at = g.spark_location\n            leads_here",
        "            leads_here",
    ),
    Mutation(
        _TOPOLOGY,
        "sources in another order are another query",
        "list(old.sources), list(new.sources), _MOVE",
        "sorted(old.sources), sorted(new.sources), _MOVE",
    ),
    Mutation(
        _TOPOLOGY,
        "operators in another order are another query",
        "list(old.in_plan or new.in_plan)",
        "list(new.in_plan)",
    ),
    Mutation(_TOPOLOGY, "a derived source that reads something else is another", "if reads != was and", "if False and"),
    # --- sources under other uids, or that begin elsewhere
    Mutation(_START, "a moved source brings what it keeps", "        if names:\n", "        if False:\n"),
    Mutation(
        _START,
        "where a source begins is recorded",
        "return replace(record, topology=found(record.topology, offsets))",
        "return record",
    ),
    Mutation(_SOURCES, "a moved source goes on where it stood", "told.get(SOURCE, uid), {}", "uid, {}"),
    Mutation(_SOURCES, "a beginning is done once", "if asked is not None and asked != was:", "if asked is not None:"),
    Mutation(_SOURCES, "moves lead on", "if end not in query and later.old == end:", "if False:"),
    Mutation(_TOPOLOGY, "a new beginning leaves the location", "    if anew:\n", "    if False:\n"),
    # --- state that begins empty
    Mutation(_MIGRATION, "what another line keeps is a question", "if fits and (moved or", "if False and (moved or"),
    Mutation(
        _MIGRATION,
        "what goes on by itself is not emptied",
        "if not fits or (changed and self._new[table].get(FAMILY_OF) in told):",
        "if not fits or changed:",
    ),
    # --- startup
    Mutation(
        _START,
        "a taken number is skipped",
        "while not (yield CreateGeneration(claim)):",
        "if not (yield CreateGeneration(claim)):",
    ),
    Mutation(_FENCING, "a still newer start wins", "if newest > facts.generation:", "if False:"),
    Mutation(
        _START,
        "open triggers are voided",
        "(yield from void_triggers(decision.abort_triggers, claim.generation, now_ms))",
        "True",
    ),
    Mutation(
        _FENCING,
        "what completed meanwhile is looked at again",
        "            return False\n        if found.record.generation",
        "            continue\n        if found.record.generation",
    ),
    Mutation(_START, "lost records are put back", "lost = () if back else to_put_back(facts.damage)", "lost = ()"),
    Mutation(
        _START,
        "what is complete is committed",
        "yield from commit_completions(view, decision.commit, now_ms)",
        "yield from ()",
    ),
    Mutation(
        _START,
        "a rollback that failed binds no later start",
        "origin=REFUSED, restored_from=None, gave_up=None",
        "gave_up=None",
    ),
    Mutation(
        _START, "what nobody will commit is aborted", "        yield AbortSink(sink, group)", "        yield from ()"
    ),
    Mutation(
        _START,
        "open triggers are aborted",
        'yield WriteAborted(AbortedRecord(k, LOST, "the job was started elsewhere", now_ms, facts.generation))',
        "yield from ()",
    ),
    Mutation(
        _START,
        "batches of other origins are dropped",
        "        yield DropBatches(origin, None)",
        "        yield from ()",
    ),
    Mutation(
        _START,
        "a restore begins a new origin",
        "claim = replace(claim, origin=claim.generation, gave_up=decision.gave_up)",
        "claim = replace(claim, origin=max(1, claim.generation - 1), gave_up=decision.gave_up)",
    ),
    Mutation(
        _START,
        "what a restore begins from is recorded",
        "return replace(claim, restored_from=decision.checkpoint.checkpoint)",
        "return claim",
    ),
    Mutation(
        _START,
        "going on inherits open triggers",
        "inherited = facts.open_triggers if isinstance(decision, GoOn) else ()",
        "inherited = ()",
    ),
    # --- recovery
    Mutation(
        _RECOVERY,
        "the batch that completed the newest is adopted",
        "adopt=newest if newest and newest.batch > _committed(facts) else None",
        "adopt=None",
    ),
    Mutation(_RECOVERY, "only what Spark repeats is adopted", "newest and newest.batch > _committed(facts)", "newest"),
    Mutation(_RECOVERY, "a location that was left is refused", "        _moved_on(facts, latest)\n", "        None\n"),
    Mutation(
        _RECOVERY,
        "an origin stands at its newest checkpoint",
        "return max(own, key=lambda c: c.checkpoint)",
        "return min(own, key=lambda c: c.checkpoint)",
    ),
    Mutation(
        _RECOVERY,
        "the origin chosen last says where the job stands",
        "return sorted(chosen, key=lambda o: chosen[o], reverse=True)",
        "return sorted(chosen, key=lambda o: chosen[o])",
    ),
    Mutation(
        _RECOVERY,
        "a fenced start's late decision is not the last one",
        "return sorted(chosen, key=lambda o: chosen[o], reverse=True)",
        "return sorted(chosen, reverse=True)",
    ),
    Mutation(
        _RECOVERY,
        "a fenced start's late decision takes the job nowhere",
        "        if g.generation > here.generation\n        and (",
        "        if (",
    ),
    Mutation(
        _RECOVERY,
        "a restored origin that did nothing counts",
        "default=o) for o in active + restored}",
        "default=o) for o in active}",
    ),
    Mutation(
        _RECOVERY,
        "a savepoint has nothing to commit",
        "batches_from=0, committables=(), finished_weight=0",
        "batches_from=0, finished_weight=0",
    ),
    Mutation(
        _RECOVERY,
        "a savepoint's ended inputs do not count here",
        "committables=(), finished_weight=0, triggered_by=0",
        "committables=(), triggered_by=0",
    ),
    Mutation(_RECOVERY, "what is complete is not aborted", "c.epoch > reached.get(b.origin, 0)", "c.epoch > 0"),
    Mutation(
        _RECOVERY,
        "a sink that is owed rows is there",
        "return _sinks_exist(facts, commit) or StartFresh(",
        "return StartFresh(",
    ),
    # --- the view
    Mutation(
        _VIEW, "a replaced attempt's acknowledgements do not count", "        if replaced:\n", "        if False:\n"
    ),
    Mutation(
        _VIEW,
        "the newest attempt of a batch counts",
        "key=lambda r: (r.batch, r.generation)):",
        "key=lambda r: (r.batch, -r.generation)):",
    ),
    Mutation(
        _VIEW,
        "an own completion is the base",
        "last = max(own, key=lambda c: c.checkpoint) if own else restored",
        "last = restored",
    ),
    Mutation(_VIEW, "the newest completion is the base", "last = max(own, key", "last = min(own, key"),
    Mutation(
        _VIEW,
        "what was voided is aborted",
        "frozenset(a.checkpoint for a in aborted) | frozenset(voided)",
        "frozenset(a.checkpoint for a in aborted)",
    ),
    Mutation(
        _VIEW,
        "what is complete is trimmed away",
        "staged=tuple(c for c in record.staged if c.epoch > checkpoint)",
        "staged=record.staged",
    ),
    Mutation(
        _VIEW,
        "flushes of complete epochs are trimmed away",
        "events=tuple(e for e in record.events if _epoch(e) > checkpoint)",
        "events=record.events",
    ),
    Mutation(
        _VIEW,
        "state takes what was flushed up to the checkpoint",
        "if e.uid == uid and e.epoch <= checkpoint)",
        "if e.uid == uid)",
    ),
    Mutation(
        _VIEW,
        "inputs that ended count in later checkpoints",
        "before = self.last.finished_weight if self.last and self.last.origin == self.origin else 0",
        "before = 0",
    ),
    Mutation(
        _VIEW,
        "ended inputs of another origin do not count",
        "if self.last and self.last.origin == self.origin else 0",
        "if self.last else 0",
    ),
    Mutation(_VIEW, "sinks forget what is before the oldest", "CheckpointId(min(known))", "CheckpointId(max(known))"),
    # --- who has acknowledged
    Mutation(
        _PENDING,
        "every source acknowledges",
        'out = [f"source {s}" for s in t.sources if s not in self.sources]',
        "out = []",
    ),
    Mutation(
        _PENDING,
        "every key group acknowledges",
        "if len(self.groups.get(u, {})) < g",
        "if len(self.groups.get(u, {})) < 1",
    ),
    Mutation(
        _PENDING,
        "all weight reaches the sink",
        "if weight < t.weight_total else tuple(out)",
        "if weight < 1 else tuple(out)",
    ),
    Mutation(_PENDING, "what comes twice is a bug", "        if again:\n", "        if False:\n"),
    # --- damage
    Mutation(
        _DAMAGE,
        "of several copies none is believed",
        "if len(c) == 1 and k in damage.checkpoints",
        "if k in damage.checkpoints",
    ),
    Mutation(
        _DAMAGE,
        "a copy says which checkpoint it is of",
        "record is not None and record.checkpoint == k",
        "record is not None",
    ),
    Mutation(
        _DAMAGE,
        "a lost newer checkpoint is not passed over",
        "if k > after and by is not None and by >= line)",
        "if False)",
    ),
    Mutation(
        _DAMAGE,
        "a lost checkpoint that is needed here is told",
        "        or _lost_checkpoint(damage, newest, here[0])\n",
        "",
    ),
    Mutation(
        _DAMAGE, "a lost batch is told", "        or _lost_batch(damage, batches, newest, origin, committed)\n", ""
    ),
    Mutation(_DAMAGE, "lost state is told", "        or _lost_state(damage, newest, here[0])\n", ""),
    Mutation(_DAMAGE, "a lost generation may have left", "if g > latest and g not in traces]", "if False]"),
    Mutation(
        _DAMAGE,
        "the way out names what can be read",
        "good = sorted(c.checkpoint for c in completions if c.checkpoint not in damage.states)",
        "good = sorted(c.checkpoint for c in completions)",
    ),
    # --- topology
    Mutation(
        _TOPOLOGY,
        "state begins empty for new operators only",
        "if _begins_empty(u, old))",
        ")",
    ),
    Mutation(
        _TOPOLOGY,
        "another state schema is refused",
        "    if differs is not None:\n        return differs\n    dropped",
        "    dropped",
    ),
    # --- life
    Mutation(_LIFE, "a life has its mark", 'return f"{job}@{life}" if life else job', "return job"),
    Mutation(
        _LIFE,
        "a claim counts only if nobody has decided",
        "    known = decided or generations\n",
        "    known = generations\n",
    ),
    Mutation(
        _LIFE,
        "a savepoint tells of another life",
        "own = [c for c in completions if c.origin > 0]",
        "own = list(completions)",
    ),
    # --- lost barriers
    Mutation(_LOST, "an acknowledgement that is missing is a loss", "    if source not in acks:\n", "    if False:\n"),
    Mutation(_LOST, "others' acknowledgements may be on their way", "elif set(sources) <= acks:", "elif True:"),
    Mutation(
        _LOST,
        "what others lost before is given up",
        "return LostHere(reason) if sent else LostBefore(reason)",
        "return LostHere(reason)",
    ),
    # --- what a sink refuses
    Mutation(_COMPLETE, "a refusal comes before the completion", "    if tried.refused:\n", "    if False:\n"),
    Mutation(_COMPLETE, "who is fenced records no refusal", "fence(view)  # else a successor may have had", "()  #"),
    Mutation(_REFUSAL, "a newer checkpoint ends a refusal", " and a.checkpoint > after)", ")"),
    Mutation(_REFUSAL, "a refusal is of its origin", "a.generation in own and ", ""),
    Mutation(_REFUSAL, "a start stopped in it is taken up", "return None if last.origin in active else last", "return"),
    Mutation(_REFUSAL, "what is done is not done again", "None if last.origin in active else last", "last"),
    Mutation(_REFUSAL, "an old restore does not read all again", "and facts.restore not in (AUTO, begin)", "and False"),
    Mutation(_REFUSAL, "Spark's open location stays as it is", "and not facts.may_empty", "and False"),
    Mutation(_REFUSAL, "an origin began from something", "newest or _of(facts, first.restored_from)", "newest"),
    Mutation(_START, "the location is emptied", "yield EmptyLocation(decision.gave_up)", "pass"),
    Mutation(_START, "the record says what was given up", ", gave_up=decision.gave_up)", ")"),
    Mutation(_RECOVERY, "a job that went on elsewhere is not given up", "_moved_on(facts, at) or damaged", "damaged"),
    Mutation(_RECOVERY, "a lost checkpoint is not passed over", "or damaged or keeps_from", "or keeps_from"),
)
