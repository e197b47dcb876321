"""A query's start, as a coroutine of steps: claim a generation, decide, end what earlier generations left.

CreateGeneration (a claim), ReadStartFacts,
PutBack (each checkpoints/K that is lost and has a copy; then back to ReadStartFacts),
ReadSinks (if the job was started before); AwaitApproval (if the start would lose something, and is to ask), then back
to ReadStartFacts; where one is ahead of the folder, and that is accepted: CreateVoid of the
open triggers and of what it shows, then back to ReadStartFacts,
restoring or fresh: CreateVoid (each open trigger; back to ReadStartFacts if one completed meanwhile),
RewriteState (if state is to be written anew),
BringSources, FindOffsets (if sources have other uids, or are to begin elsewhere),
ChooseLocation (if the query is another one than that of the location's batches),
WriteGeneration (the decision), CommitSinks ... AppendHistory (each completion not confirmed as committed),
EmptyLocation (if rows that its batches staged were refused),
restoring or fresh: AbortSink (what nobody will commit), WriteAborted (each open trigger), DropBatches
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_ckpt.errors import FencedError
from spark_ckpt.protocol._fencing import fence, fence_start, void_triggers
from spark_ckpt.protocol._view import JobView
from spark_ckpt.protocol.commit import commit_completions
from spark_ckpt.protocol.damage import to_put_back
from spark_ckpt.protocol.evolution import carried_over
from spark_ckpt.protocol.life import identity, life_to_live
from spark_ckpt.protocol.migration import migrated
from spark_ckpt.protocol.publish import by_sink
from spark_ckpt.protocol.records import (
    LOST,
    REFUSED,
    AbortedRecord,
    GenerationRecord,
    Shown,
    Topology,
    VoidRecord,
)
from spark_ckpt.protocol.recovery import ASK, GoOn, Refuse, RestoreFrom, StartFacts, StartFresh, decide_start
from spark_ckpt.protocol.restore_plan import RestorePlan, plan_of
from spark_ckpt.protocol.rewriting import rewritings
from spark_ckpt.protocol.setback import (
    SinkFound,
    is_accepted,
    moved,
    refuse_set_back,
    refuse_staged_before,
    set_back,
    shown_by,
    waits_elsewhere,
)
from spark_ckpt.protocol.source_starts import begins_anew, found, moved_sources, to_find
from spark_ckpt.protocol.steps import (
    AbortSink,
    AwaitApproval,
    BringSources,
    ChooseLocation,
    CreateGeneration,
    CreateVoid,
    DropBatches,
    EmptyLocation,
    FindOffsets,
    PutBack,
    ReadSinks,
    ReadStartFacts,
    RewriteState,
    Step,
    WriteAborted,
    WriteGeneration,
)
from spark_ckpt.types import Committable

_Goes = GoOn | RestoreFrom | StartFresh


@dataclass(frozen=True)
class Started:
    """``generation`` is the record as decided; ``decision`` tells sources and sink where to begin. ``inherited``: the
    open triggers of earlier generations that this one goes on with. ``moved``: by sink, the target that it had and
    the one that it has, where that one shows nothing of the job."""

    generation: GenerationRecord
    decision: GoOn | RestoreFrom | StartFresh
    inherited: tuple[int, ...] = ()
    moved: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def start_job(job: str, claim: GenerationRecord, now_ms: int) -> Generator[Step, Any, Started]:
    """Driver, once a start, before Spark's query starts. ``claim``: origin 0, a number above the known generations,
    and the mark of a new life, which is used if the job has none yet.

    A crash anywhere: the next start does the rest, from what is recorded by then. Raises ``TopologyError`` or
    ``ConfigError`` when the job cannot start like this (nothing was changed but the claim), and ``FencedError`` when a
    still newer query starts at the same time.
    """
    while not (yield CreateGeneration(claim)):
        claim = replace(claim, generation=claim.generation + 1)
    # Stopped here: an undecided claim. It fences older drivers, which is right: this start was asked for.
    facts, decision, shown = yield from _decide(job, claim, now_ms)
    there = _committed_there(facts, _alive(facts, claim).life, decision)
    if isinstance(decision, RestoreFrom):
        decision = yield from _with_state(facts, claim, decision, there)
    record = _decided(facts, _alive(facts, claim), decision)
    if not isinstance(decision, GoOn):
        record = yield from _with_sources(record)
    if isinstance(decision, RestoreFrom) and decision.changed:
        given = claim.given_location or claim.spark_location
        record = replace(record, given_location=given, spark_location=(yield ChooseLocation(claim.generation)))
        # Stopped before the record is written: the next start finds the location that was given, and chooses another.
    yield WriteGeneration(record)
    # Stopped here: if batches are planned at this location they go on as this record says; else a new start decides
    # anew. Either way what is left ends below.
    view = JobView(
        job=job,
        topology=record.topology,
        generation=record.generation,
        origin=record.origin,
        life=record.life,
        abandoned=facts.abandoned,
    )
    try:
        yield from commit_completions(view, decision.commit, now_ms)
    except FencedError:
        raise
    except Exception:
        if not isinstance(decision, GoOn):
            # Whoever asked for this start is told that it failed: what it was to restore binds no later one.
            yield WriteGeneration(_binds_no_later(record))
            # Stopped before this: the decision stands, as if the start had been stopped right behind it.
        raise
    if not isinstance(decision, GoOn):
        if decision.gave_up is not None:
            # Stopped before this, or in it: this generation's record names the origin, and the next start does it.
            yield from fence(view)  # else a successor did, and has batches of its own there
            yield EmptyLocation(decision.gave_up)
            # Stopped here: the location is empty, and the next start goes on from what this one did, and leaves the
            # same origin behind.
        yield from _leave_behind(facts, decision, now_ms)
    inherited = facts.open_triggers if isinstance(decision, GoOn) else ()
    return Started(record, decision, inherited, moved(there, shown))


def _with_state(
    facts: StartFacts, claim: GenerationRecord, decision: RestoreFrom, there: Mapping[str, tuple[int, str]]
) -> Generator[Step, Any, RestoreFrom]:
    """Restore a checkpoint whose state was written anew, where that is asked for. ``there``: what sinks show surely;
    what the old one has for them may wait yet."""
    at = decision.checkpoint
    told = migrated(at.topology, facts.topology, facts.migrations, at.checkpoint)
    if not rewritings(told):
        return decision
    try:
        shown = {sink: Shown(newest, 0, target) for sink, (newest, target) in there.items()}
        written = yield RewriteState(replace(at, shown=shown), told)
    except Exception:
        yield WriteGeneration(_binds_no_later(claim))
        # Stopped before this: the claim stays undecided, as in a refused start.
        raise
    # Stopped in it, or here: files that nobody names, or a checkpoint that no start went on from. The next start goes
    # on from ``at``, and writes the state once more.
    return replace(decision, checkpoint=written)


def _with_sources(record: GenerationRecord) -> Generator[Step, Any, GenerationRecord]:
    """Once for a Spark location: its first batch begins at the same offsets whenever it is replayed."""
    names, asked, offsets = moved_sources(record.topology), to_find(record.topology), {}
    try:
        if names:
            yield BringSources(names)
            # Stopped here: files that nobody names; the next start brings them again.
        if asked:
            offsets = yield FindOffsets(asked)
    except Exception:
        yield WriteGeneration(_binds_no_later(record))
        # Stopped before this: the claim stays undecided, as in a refused start.
        raise
    return replace(record, topology=found(record.topology, offsets))


def _decide(
    job: str, claim: GenerationRecord, now_ms: int
) -> Generator[Step, Any, tuple[StartFacts, _Goes, Mapping[str, SinkFound]]]:
    back = looked = False
    approved: RestorePlan | None = None
    shown: Mapping[str, SinkFound] = {}
    while True:
        facts: StartFacts = yield ReadStartFacts(claim.generation)
        fence_start(facts)
        lost = () if back else to_put_back(facts.damage)
        for record in lost:
            yield PutBack(record)
            # Stopped here: the next start puts back the rest.
        if lost:
            back = True  # once: a disk that damages what is written does not keep a start busy for ever
            continue
        alive = _alive(facts, claim)
        decision = decide_start(facts)
        if not isinstance(decision, Refuse):
            shown = yield from _read_sinks(job, facts, alive)
            decision, again = yield from _compared(job, facts, alive, decision, shown, looked, now_ms)
            looked = True
            if again:
                continue
        if isinstance(decision, Refuse):
            yield WriteGeneration(replace(alive, origin=REFUSED))
            # Stopped before this: the claim stays undecided, and other locations with batches refuse to go on.
            raise decision.error()
        if facts.approve == ASK:
            plan = plan_of(facts, decision)
            if plan.loses and plan != approved:
                yield AwaitApproval(claim.generation, plan)
                # Stopped before it is approved: an undecided claim, and the next start asks anew.
                approved = plan
                continue  # the job may have completed a checkpoint since
        if isinstance(decision, GoOn) or (yield from void_triggers(decision.abort_triggers, claim.generation, now_ms)):
            return facts, decision, shown


def _read_sinks(job: str, facts: StartFacts, claim: GenerationRecord) -> Generator[Step, Any, Mapping[str, SinkFound]]:
    """Behind the facts, so that a sink shows at least what they say. In a job's first start there is nothing to ask."""
    if not facts.topology.sinks or not (facts.generations or facts.completions):
        return {}
    found: Mapping[str, SinkFound] = yield ReadSinks(identity(job, claim.life), facts.topology.sinks)
    return found


def _compared(
    job: str,
    facts: StartFacts,
    claim: GenerationRecord,
    decision: _Goes,
    shown: Mapping[str, SinkFound],
    looked: bool,
    now_ms: int,
) -> Generator[Step, Any, tuple[_Goes | Refuse, bool]]:
    """``decision``, or why it cannot be; and whether to read the facts and decide again. ``looked``: this is not the
    first time."""
    differ = set_back(_committed_there(facts, claim.life, decision), facts.newest_known, shown)
    ahead = [d.found for d in differ if d.is_ahead]
    if ahead and not looked:
        return decision, True  # perhaps an older driver completed it since: then it is in the records now
    refused = [d for d in differ if not is_accepted(d, facts.accepted)]
    if refused:
        return refuse_set_back(job, refused, facts.completions, shown), False
    waits = waits_elsewhere(decision.commit, shown, facts.abandoned)
    if waits is not None:
        return waits, False
    if isinstance(decision, GoOn):
        batches = (b for b in facts.batches if b.origin == decision.origin)
        after = decision.newest.checkpoint if decision.newest else 0
        gone = refuse_staged_before(job, differ, facts.accepted, batches, after)
        if gone is not None:
            return gone, False
    # The sink knows these ids with other rows. Stopped in here: the ids that are void by then stay so, and the rest of
    # it is still ahead of the folder.
    for k in (*facts.open_triggers, *sorted(ahead)) if ahead else ():
        yield CreateVoid(VoidRecord(k, claim.generation, now_ms))
    return decision, bool(ahead)


def _committed_there(facts: StartFacts, life: str, decision: _Goes) -> dict[str, tuple[int, str]]:
    """What the job committed in each sink, by where it goes on from; nothing counts for one that begins anew."""
    if isinstance(decision, StartFresh):
        return {}
    at = decision.newest if isinstance(decision, GoOn) else decision.checkpoint
    confirmed = at is not None and at.checkpoint in facts.committed
    return shown_by(at, life, confirmed, facts.abandoned)


def _alive(facts: StartFacts, claim: GenerationRecord) -> GenerationRecord:
    own = any(c.origin > 0 for c in facts.completions)  # the others were imported
    is_used = bool(own or facts.batches or facts.open_triggers or facts.location.planned is not None)
    return replace(claim, life=life_to_live(facts.generations, facts.completions, is_used, claim.life))


def _decided(facts: StartFacts, claim: GenerationRecord, decision: GoOn | RestoreFrom | StartFresh) -> GenerationRecord:
    if not isinstance(decision, StartFresh):
        claim = replace(claim, topology=_topology(facts, claim, decision))
    if isinstance(decision, GoOn):
        first = next(g for g in facts.generations if g.origin == decision.origin)
        return replace(claim, origin=decision.origin, restored_from=first.restored_from)
    claim = replace(claim, origin=claim.generation, gave_up=decision.gave_up)
    if isinstance(decision, StartFresh):
        return replace(claim, topology=begins_anew(claim.topology))
    return replace(claim, restored_from=decision.checkpoint.checkpoint)


def _binds_no_later(record: GenerationRecord) -> GenerationRecord:
    """Of a start that failed: no later one goes by it."""
    return replace(record, origin=REFUSED, restored_from=None, gave_up=None)


def _topology(facts: StartFacts, claim: GenerationRecord, decision: GoOn | RestoreFrom) -> Topology:
    """The query's, with how the state that goes on is written."""
    if isinstance(decision, RestoreFrom):
        old, new = decision.checkpoint, claim.topology
        return carried_over(migrated(old.topology, new, facts.migrations, old.checkpoint), new, None)
    return claim.topology if decision.was is None else carried_over(decision.was, claim.topology, claim.generation)


def _leave_behind(facts: StartFacts, decision: RestoreFrom | StartFresh, now_ms: int) -> Generator[Step, Any, None]:
    """Nobody can complete the open checkpoints any more: give up what was staged for them."""
    for sink, group in by_sink(_in_order(decision.abort)):
        yield AbortSink(sink, group)
        # Stopped here, or above: the batch records still name the rest; the next start aborts all of it.
    for k in decision.abort_triggers:
        yield WriteAborted(AbortedRecord(k, LOST, "the job was started elsewhere", now_ms, facts.generation))
    for origin in decision.drop_origins:
        yield DropBatches(origin, None)


def _in_order(committables: tuple[Committable, ...]) -> list[Committable]:
    return sorted(committables, key=lambda c: c.epoch)
