"""Of sources, triggers, alignment, the commit and retention."""

from __future__ import annotations

from mutations.mutation import Mutation

_VIEW, _SOURCE, _LEAD, _EVENTS = (
    "protocol/source_view.py",
    "protocol/source.py",
    "protocol/_source_lead.py",
    "protocol/source_events.py",
)
_GIVE_UP, _WEIGHTS, _STATE = "protocol/_give_up.py", "protocol/weights.py", "protocol/checkpoint_state.py"
_OFFSET, _COORD, _ALIGNER, _COMMIT = (
    "protocol/source_offset.py",
    "protocol/coordinator.py",
    "protocol/aligner.py",
    "protocol/commit.py",
)
_COMPLETE, _RETENTION, _FENCING, _PUBLISH = (
    "protocol/_complete.py",
    "protocol/_retention.py",
    "protocol/_fencing.py",
    "protocol/publish.py",
)

MUTATIONS = (
    # --- standing still
    Mutation(
        _VIEW, "a later generation is not stopped", "if start.terminal != generation:", "if start.terminal is None:"
    ),
    Mutation(
        _VIEW,
        "an aborted stop lets the source go on",
        "return start.epoch - 1 not in aborted and",
        "return",
    ),
    Mutation(_VIEW, "a withdrawn stop lets the source go on", " and start.request not in released", ""),
    Mutation(
        _VIEW,
        "an earlier generation's stop that is taken up late stops nothing",
        "trigger.terminal and trigger.generation == generation",
        "trigger.terminal",
    ),
    Mutation(_SOURCE, "a frozen source is not asked", "if not (frozen or start.ended):", "if not start.ended:"),
    Mutation(_SOURCE, "an ended source is not asked", "if not (frozen or start.ended):", "if not frozen:"),
    Mutation(_SOURCE, "a frozen source stays so", "terminal=start.terminal if at.frozen else None", "terminal=None"),
    Mutation(
        _SOURCE, "a frozen source keeps its request", "request=start.request if at.frozen else None", "request=None"
    ),
    Mutation(
        _SOURCE,
        "a follower that is frozen takes nothing up",
        "if early or (at.frozen and start.drain is None):",
        "if early:",
    ),
    Mutation(
        _SOURCE, "only a stop freezes", "terminal=generation if injected.terminal else None", "terminal=generation"
    ),
    Mutation(_VIEW, "a failed stop is seen before Spark ends the query", "fresh = fresh or role.available_now", "pass"),
    # --- looking
    Mutation(
        _VIEW,
        "storage is looked at now and then",
        "if not ids or not (fresh or due(",
        "if not ids or not (True or due(",
    ),
    Mutation(_VIEW, "fresh means at once", "if not ids or not (fresh or due(", "if not ids or not (due("),
    Mutation(
        _VIEW,
        "a completion is remembered",
        "completed=max(found.completed, view.completed)",
        "completed=view.completed",
    ),
    Mutation(
        _VIEW,
        "a pause begins with a completion",
        "now_ms if new else view.last_completion_ms",
        "view.last_completion_ms",
    ),
    Mutation(_VIEW, "an abort is remembered", "aborted=view.aborted | found.aborted", "aborted=view.aborted"),
    Mutation(_VIEW, "a withdrawal is remembered", "released=view.released | found.released", "released=view.released"),
    Mutation(
        _VIEW,
        "what completed is not pending",
        "later = [p for p in start.pending if p.checkpoint > view.completed]",
        "later = list(start.pending)",
    ),
    Mutation(
        _VIEW,
        "what is aborted is not pending",
        "pending = tuple(p for p in later if not view.state(p.checkpoint).given_up)",
        "pending = tuple(later)",
    ),
    Mutation(
        _VIEW,
        "what is aborted gets its marker",
        "tuple(p.checkpoint for p in later if view.state(p.checkpoint).given_up)",
        "()",
    ),
    # --- following
    Mutation(_SOURCE, "triggers are taken up in order", "first = min(triggers", "first = max(triggers"),
    Mutation(_SOURCE, "final is final for every source", "(drained or first.drain)):", "first.drain):"),
    Mutation(
        _SOURCE,
        "an older generation's final checkpoint is an ordinary one",
        " and first.generation == generation and not",
        " and not",
    ),
    Mutation(
        _SOURCE, "who is behind does not wait for a poll", "last_call or view.behind or due(", "last_call or due("
    ),
    Mutation(_SOURCE, "who is drained does not wait for a poll", "not (last_call or view.behind", "not (view.behind"),
    Mutation(
        _SOURCE,
        "who waits at its end polls now and then",
        "last_call = at.drained and role.available_now",
        "last_call = at.drained",
    ),
    Mutation(_SOURCE, "a follower polls now and then", "due(view.followed_ms, now_ms, role.poll_ms)", "True"),
    Mutation(_SOURCE, "rows without epochs: the last of all", "t.checkpoint <= at.injected]", "t.checkpoint]"),
    Mutation(_SOURCE, "the last looks when there is one", "if role.last and at.injected < start.epoch:", "if False:"),
    Mutation(
        _COMMIT,
        "rows without epochs are of the oldest that is open",
        "min((*record.barriers, view.last_id + 1))",
        "min(record.barriers, default=view.last_id + 1)",
    ),
    Mutation(_SOURCE, "a follower tells of what was given up", "_, given_up = sort_out(view, start)", "given_up = ()"),
    Mutation(_SOURCE, "drained is announced", "if at.drained and not view.announced:", "if False:"),
    Mutation(_SOURCE, "drained is announced once", "if at.drained and not view.announced:", "if at.drained:"),
    Mutation(_SOURCE, "who is drained asks for a batch more", "if at.drained and not role.leader:", "if False:"),
    Mutation(_VIEW, "a stream is never drained", "return self.available_now and still", "return still"),
    Mutation(_VIEW, "a source ends where it is told to end", "if self.end is not None:", "if False:"),
    Mutation(_SOURCE, "no checkpoint elsewhere", "if role.end is not None and still and not", "if False and not"),
    # --- the offset
    Mutation(
        _SOURCE, "a label is the last barrier plus one", "epoch=injected.checkpoint + 1", "epoch=injected.checkpoint"
    ),
    Mutation(
        _SOURCE,
        "what is injected is pending",
        "pending=(*end.pending, replace(injected, terminal=False, drain=False))",
        "pending=end.pending",
    ),
    Mutation(_SOURCE, "a restored location begins with a batch", " or start.restore is not None):", "):"),
    Mutation(_SOURCE, "an end is news", " or at.ended != start.ended", ""),
    Mutation(_SOURCE, "a marker is news", " or injection.cancel or", " or"),
    Mutation(
        _SOURCE, "an end is only asked for when nothing came", "(still and read.finished)", "read.finished and False"
    ),
    Mutation(_OFFSET, "a restored source that has ended stays ended", "ended=position.ended", "ended=False"),
    Mutation(_OFFSET, "a location remembers what it restores", " restore=restored,", ""),
    Mutation(_OFFSET, "an idle source is idle where it is restored", "turns=position.turns", "turns=None"),
    Mutation(
        _EVENTS,
        "an idle source says so again where it is restored",
        "end.turns != start.turns or start.restore is not None",
        "end.turns != start.turns",
    ),
    Mutation(
        _SOURCE,
        "windows close at the end of the input only",
        "(at.drained or at.ended) and not injected.drain",
        "not injected.drain",
    ),
    Mutation(_OFFSET, "a new source begins at its own beginning", "offset.inner is not None", "True"),
    # --- leading
    Mutation(
        _LEAD,
        "what completed meanwhile is not given up",
        "role.available_now) or _too_long(",
        "role.available_now) or False and _too_long(",
    ),
    Mutation(
        _LEAD, "who is drained looks for the last time", "if (at.drained and role.available_now) or _too", "if _too"
    ),
    Mutation(
        _LEAD,
        "a trigger is decided from what is so now",
        "view = yield from _ask(role, view, at, now_ms, fresh=True)",
        "pass",
    ),
    Mutation(_LEAD, "a request of before is not taken up again", "if r.request in view.taken:", "if False:"),
    Mutation(
        _LEAD,
        "a request dies with its deadline",
        "elif r.deadline_ms is not None and now_ms > r.deadline_ms:",
        "elif False:",
    ),
    Mutation(
        _LEAD,
        "a pending one dies with its deadline",
        "elif p.deadline_ms is not None and now_ms > p.deadline_ms:",
        "elif False:",
    ),
    Mutation(
        _LEAD, "what was withdrawn is given up", "if p.request is not None and p.request in view.released:", "if False:"
    ),
    Mutation(_LEAD, "withdrawn first, then aborted", "if cause == WITHDRAWN and p.request is not None:", "if False:"),
    Mutation(
        _LEAD,
        "a request is dropped once taken up",
        "if now.request is not None:\n        yield DropRequest",
        "if False:\n        yield DropRequest",
    ),
    Mutation(
        _LEAD,
        "an id is never used twice",
        "        if created:\n            return record, None",
        "        break",
    ),
    Mutation(_LEAD, "lost triggers are looked for", "if view.looked_for_lost:", "if True:"),
    Mutation(
        _LEAD,
        "lost triggers get their marker",
        "return replace(view, looked_for_lost=True), lost",
        "return replace(view, looked_for_lost=True), ()",
    ),
    Mutation(_LEAD, "expiries count as failures", "if expired:", "if False:"),
    Mutation(
        _LEAD, "final waits for every source", "at_end=at.drained and view.drained >= role.others", "at_end=at.drained"
    ),
    Mutation(_LEAD, "final is taken once", "final_pending=final", "final_pending=False"),
    Mutation(_LEAD, "an aborted final one is taken again", " and not view.state(view.final).given_up", ""),
    Mutation(_LEAD, "nothing is triggered behind a stop", "stopping=at.frozen", "stopping=False"),
    # --- what is said
    Mutation(_EVENTS, "markers are sent", "[Cancel(k) for k in end.cancel]", "[]"),
    Mutation(
        _EVENTS, "an end is told", "if end.ended and (not start.ended or start.restore is not None):", "if False:"
    ),
    Mutation(
        _EVENTS,
        "an end is told again at a restore",
        "(not start.ended or start.restore is not None)",
        "not start.ended",
    ),
    Mutation(
        _EVENTS,
        "an end is told once",
        "if end.ended and (not start.ended or start.restore is not None):",
        "if end.ended:",
    ),
    Mutation(
        _EVENTS, "one share stays alive", "Finished(key_groups - 1, start.epoch)", "Finished(key_groups, start.epoch)"
    ),
    Mutation(
        _EVENTS,
        "a source acknowledges",
        "    if end.barrier is not None:\n        found.append(SourceAck",
        "    if False:\n        found.append(SourceAck",
    ),
    Mutation(_WEIGHTS, "the weights sum up", "weight // parts + (i < weight % parts)", "weight // parts"),
    Mutation(
        _EVENTS, "an ended source sends one share", "if end.ended:\n        # An ended", "if False:\n        # An ended"
    ),
    Mutation(
        _EVENTS,
        "a partition for what is said",
        "if parts == 0 and not spoken and end.barrier is None:",
        "if parts == 0 and end.barrier is None:",
    ),
    Mutation(_EVENTS, "manifests are sent at a restore", "if start.restore is not None and restores:", "if False:"),
    Mutation(
        _EVENTS, "manifests are adopted in a replay", "if replayed and adopt is not None and reaches:", "if False:"
    ),
    Mutation(
        _EVENTS,
        "both are sent in the replay of a restored first batch",
        "if replayed and adopt is not None",
        "if not found and replayed and adopt is not None",
    ),
    Mutation(_EVENTS, "only a replay adopts", "if replayed and adopt is not None", "if adopt is not None"),
    # --- triggering
    Mutation(
        _COORD,
        "savepoints come first",
        "return not _forced(request), request.time_ms",
        "return False, request.time_ms",
    ),
    Mutation(_COORD, "a savepoint does not wait", "(_forced(request) or not full)", "(not full)"),
    Mutation(_COORD, "requests wait for maxConcurrent", "(_forced(request) or not full)", "True"),
    Mutation(_COORD, "no more than maxConcurrent", "    if full:\n", "    if False:\n"),
    Mutation(_COORD, "the minimum pause", "_is_within(completed_ms, pause_ms, facts.now_ms)", "False"),
    Mutation(_COORD, "an idle source rests", "_REST_MS if facts.idle else 0", "0"),
    Mutation(_COORD, "age counts from this start", "now_ms - max(triggered_ms, started_ms)", "now_ms - triggered_ms"),
    Mutation(
        _COORD, "savepoints are not retained", "counted = [k for k in ids if k not in elsewhere]", "counted = ids"
    ),
    Mutation(_COORD, "the newest stays", "*ids[-1:], *pins}", "*pins}"),
    # --- draining
    Mutation(_VIEW, "a drain freezes every generation", "if start.drain is not None:\n        return True", "pass"),
    Mutation(_VIEW, "a drained job is not looked at", "if start.drain is None and is_frozen(", "if is_frozen("),
    Mutation(
        _VIEW, "a drain is taken up whoever triggered it", "trigger.deadline_ms, trigger.drain", "trigger.deadline_ms"
    ),
    Mutation(
        _SOURCE, "a follower drains on", "if early or (at.frozen and start.drain is None):", "if early or at.frozen:"
    ),
    Mutation(_SOURCE, "a drain is the end of the input", "not (drained or first.drain)):", "not drained):"),
    Mutation(_SOURCE, "a drain is for good", "        drain=start.drain,\n", ""),
    Mutation(_SOURCE, "the barrier drains", "injected.checkpoint if injected.drain else end.drain", "end.drain"),
    Mutation(
        _LEAD, "a drain goes on when its checkpoint is given up", "draining=start.drain is not None", "draining=False"
    ),
    Mutation(
        _LEAD,
        "a drain ends",
        "drain_done=start.drain is not None and view.completed >= start.drain",
        "drain_done=False",
    ),
    Mutation(_LEAD, "the trigger says that it drains", "            now.drain,\n", ""),
    Mutation(
        _COORD, "a drain does not wait", "request.kind == SAVEPOINT or request.drain", "request.kind == SAVEPOINT"
    ),
    Mutation(
        _COORD, "one drain at a time", "    if facts.pending:\n        return Wait(None, WaitReason.DRAINING)\n", ""
    ),
    Mutation(
        _COORD,
        "a drain that fails waits for the interval",
        "if last is not None and _is_within(last, interval_ms, facts.now_ms):",
        "if False:",
    ),
    Mutation(_EVENTS, "the barrier says that it drains", "drain = end.drain is not None", "drain = False"),
    Mutation(
        _ALIGNER,
        "a drain waits for all inputs",
        "drain=old.drain or checkpoint in batch.drains",
        "drain=checkpoint in batch.drains",
    ),
    Mutation(_ALIGNER, "the snapshot drains", "barrier.held_bytes, barrier.drain)", "barrier.held_bytes)"),
    Mutation(_COMPLETE, "the record says that it drained", "        drained=trigger.drain,\n", ""),
    # --- hooks and listeners
    Mutation(
        _LEAD,
        "a hook declines its checkpoint",
        "    if why is None:\n        # Behind the trigger",
        "    if True:\n        # Behind the trigger",
    ),
    # --- pausing
    Mutation(_SOURCE, "a paused source reads nothing", "    if view.paused and not frozen:\n", "    if False:\n"),
    Mutation(_SOURCE, "a paused job is started", "paused=known.paused", "paused=False"),
    Mutation(_SOURCE, "a follower is paused", "view = replace(view, paused=(yield ReadPaused()))", "pass"),
    Mutation(
        _LEAD, "a leader is paused", "return replace(view, paused=(yield ReadPaused())), record", "return view, record"
    ),
    Mutation(
        _LEAD, "a leader is resumed", "        view = replace(view, paused=(yield ReadPaused()))\n", "        pass\n"
    ),
    Mutation(_SOURCE, "a paused run of what is there does not seem done", "raise InvalidInputError(_PAUSED)", "pass"),
    Mutation(
        _LEAD, "a failure before anybody heard of it counts", "    yield from _count(role, view, why, advice)\n", ""
    ),
    Mutation(
        _SOURCE,
        "a fenced driver's trigger is not taken up",
        "if known is None or t.generation == role.generation or t.checkpoint in known",
        "if True",
    ),
    Mutation(_LEAD, "the final one is tried again", "while trigger is None and at.drained", "while False"),
    Mutation(_COMPLETE, "what hooks kept goes with the checkpoint", "        hook=trigger.hook,\n", ""),
    Mutation(
        _SOURCE,
        "only what was injected here is told",
        "if any(p.checkpoint == view.completed for p in start.pending)",
        "if view.completed",
    ),
    Mutation(
        _SOURCE,
        "a restored checkpoint is told",
        "        return start.restore\n    return view",
        "        return None\n    return view",
    ),
    Mutation(_SOURCE, "nobody is told who does not listen", "if role.tells else None", ""),
    Mutation(_EVENTS, "functions are told", "if end.completed is not None:", "if False:"),
    # --- aligning
    Mutation(
        _ALIGNER,
        "a newer barrier waits its turn",
        "elif k in cancels and not state.pending:",
        "elif not state.pending and pending.keys() - {k} or k in cancels and not state.pending:",
    ),
    Mutation(
        _ALIGNER,
        "a cancel takes effect behind an older one",
        "elif k in cancels and not state.pending:",
        "elif k in cancels:",
    ),
    Mutation(
        _ALIGNER, "a cancel is remembered", "for c in (*batch.cancels, *state.cancelled)", "for c in batch.cancels"
    ),
    Mutation(_ALIGNER, "what is left out gets its marker", "            actions += _given_up(state)\n", ""),
    Mutation(
        _ALIGNER,
        "the oldest is declined first",
        "k, rest = state.pending[0].checkpoint, state.pending[1:]",
        "k, rest = state.pending[-1].checkpoint, ()",
    ),
    # --- committing
    Mutation(_COMPLETE, "a late one is not completed", "elif why is not None:", "elif False:"),
    Mutation(
        _FENCING,
        "nobody older completes what is given up",
        "if trigger is not None and trigger.generation == view.generation:\n        return  #",
        "if True:\n        return  #",
    ),
    Mutation(
        _COMPLETE,
        "nobody older completes what failed",
        "    yield from take_name(view, CheckpointId(k), trigger, now_ms)\n    view",
        "    view",
    ),
    Mutation(
        _FENCING,
        "what was completed first is not given up",
        "if isinstance(found, Exists) and isinstance(found.record, CompletionRecord):\n        raise",
        "if False:\n        raise",
    ),
    Mutation(_PUBLISH, "a request is answered", "if record.request is not None:", "if False:"),
    Mutation(_COMMIT, "a replay that did not adopt is stopped", "view.last.checkpoint != view.adopt:", "False:"),
    # --- what became of a checkpoint
    Mutation(_STATE, "an abort settles", "    if aborted:\n", "    if False:\n"),
    Mutation(
        _STATE, "a completion counts whatever was given up", "if name is Name.COMPLETION:", "if not aborted and name:"
    ),
    Mutation(_STATE, "what is missing is lost", "if committed and not newer:", "if False:"),
    Mutation(_STATE, "a name that is free can still be taken", "not in _UNSETTLED", "is not CheckpointState.PENDING"),
    Mutation(_WEIGHTS, "an end counts from its label on", "if label <= checkpoint)", "if label < checkpoint)"),
    Mutation(_WEIGHTS, "one drain is enough", "a.drain or b.drain)", "b.drain)"),
    # --- storage that fails
    Mutation(_LEAD, "the final trigger is tried again", "while trigger is None and at.drained:", "while False:"),
    Mutation(_GIVE_UP, "rows held are no failure", "failed = failed or any(e.failed for e in why)", "failed = True"),
    Mutation(_GIVE_UP, "a failure is told first", "if e.failed), declined[0]", "), None"),
    Mutation(_GIVE_UP, "a failure counts", "failed = failed or any(e.failed for e in why)", "pass"),
    Mutation(_GIVE_UP, "a newer driver says why", "yield from fence(view)", "yield from ()"),
    Mutation(_COORD, "what storage fails counts", "a.cause in (FAILED, EXPIRED)", "a.cause in (EXPIRED,)"),
    Mutation(
        _COMPLETE,
        "a completion that may be there is made impossible",
        "void = yield CreateVoid(VoidRecord(record.checkpoint, view.generation, now_ms))",
        "void = Created()",
    ),
    Mutation(
        _COMPLETE,
        "a completion whose answer was lost stands",
        "    if isinstance(void, Created):\n        return",
        "    if True:\n        return",
    ),
    Mutation(
        _COMPLETE, "who is fenced fails nothing", "    yield from fence(view)  # else a successor collected", "    # "
    ),
    Mutation(_COMPLETE, "older ones do not wait behind", "[j for j in view.pending if j < k]", "[]"),
    Mutation(_COMPLETE, "a failed completion counts", "any(t.checkpoint in view.aborted for t in ready)", "False"),
    Mutation(_RETENTION, "what was not dropped keeps its files", " and dropped == unnamed:", ":"),
    Mutation(_RETENTION, "what was not dropped is dropped later", "if k not in dropped)", "if k in plan.keep)"),
    Mutation(
        _COMMIT, "what was not aborted is aborted later", "            left.extend(group)\n", "            pass\n"
    ),
)
