"""What a starting query does: go on, restore, start fresh, or refuse. A pure decision from the records.

==============================  =========================================================================
Spark location                  decision
==============================  =========================================================================
has planned batches             go on there, with the restore decision its first opener took, if the job
                                has not been started elsewhere since; else refuse
has planned batches of another  restore the location's newest checkpoint at a location that this start
query                           chooses, if the query fits that; else refuse
has planned batches, and the    restore the checkpoint that it was rolled back to, at a location that this start
job was rolled back since       chooses
has batches with rows that a    as if it were empty, from where its origin stood, whatever ``restore`` says: see
sink refused                    :mod:`spark_ckpt.protocol._refusal`
empty, ``restore=auto``         restore the newest checkpoint of the job's current line; fresh if it has
                                no history
empty, ``restore=<id>``         restore that one
empty, ``restore=none``         start fresh: the user says so
==============================  =========================================================================

The *current line*: origins form a chain (each was restored from a checkpoint of an earlier one). The origin chosen last
says where the job stands: at its own newest checkpoint, or else where it began. That it did nothing yet changes nothing
if it was restored: its decision is written, and what older origins had open is given up. One that began fresh and did
nothing counts only if there is nothing to go on from.

A new generation writes its record *before* it reads these facts, so that an older driver still alive is fenced.
"""

from __future__ import annotations

from dataclasses import replace

from spark_ckpt.protocol._refusal import Left, keeps_from_leaving, leaves
from spark_ckpt.protocol._start_decision import (
    ASK,
    AUTO,
    NONE,
    SAFE,
    Decision,
    GoOn,
    RestoreFrom,
    SparkLocation,
    StartFacts,
    StartFresh,
)
from spark_ckpt.protocol.checkpoint_state import uncommitted
from spark_ckpt.protocol.damage import (
    active_origins,
    refuse_state,
    refuse_to_go_on,
    refuse_to_restore,
    way_out,
)
from spark_ckpt.protocol.records import UNDECIDED, CompletionRecord, GenerationRecord
from spark_ckpt.protocol.rollback import refuse_unfinished, rolled_back
from spark_ckpt.protocol.topology import Fit, Refuse, fit_topology, same_topology, uncompared
from spark_ckpt.types import Committable


def decide_start(facts: StartFacts) -> Decision:
    """Driver, once a start, after this generation's record was created and before anything is read from sources."""
    unfinished = refuse_unfinished(facts)
    if unfinished is not None:
        return unfinished
    left = None if rolled_back(facts) else leaves(facts)
    if left is None and facts.location.planned is not None:
        return _go_on(facts)
    chosen = _choose(facts) if left is None else _leave(facts, left)
    if isinstance(chosen, Refuse):
        return chosen
    gave_up = left.origin if left else None
    if chosen is not None:
        return _restore(facts, chosen, gave_up)
    commit, abort, origins = _clean_up(facts)
    return _sinks_exist(facts, commit) or StartFresh(commit, abort, facts.open_triggers, origins, gave_up)


def _restore(
    facts: StartFacts, chosen: CompletionRecord, gave_up: int | None = None, changed: str | None = None
) -> RestoreFrom | Refuse:
    fit = fit_topology(chosen.topology, facts.topology, facts.allow_non_restored, facts.migrations, chosen.checkpoint)
    if isinstance(fit, Refuse):
        return fit
    commit, abort, origins = _clean_up(facts)
    restore = RestoreFrom(
        chosen,
        commit,
        abort,
        facts.open_triggers,
        origins,
        fit.fresh_uids,
        fit.dropped_uids,
        fit.uncompared,
        gave_up,
        changed,
    )
    return _sinks_exist(facts, commit) or _hook_gone(facts, chosen) or restore


# --- going on at the same location ---------------------------------------------------------------------------


def _go_on(facts: StartFacts) -> GoOn | RestoreFrom | Refuse:
    here = [g for g in facts.generations if g.origin > 0 and g.origin == facts.location.origin]
    if not here:
        return Refuse(
            f"the Spark checkpoint location {facts.location.path} holds batches of origin {facts.location.origin}, "
            f"which is none of this job's, or whose record is lost: expected an empty location or the job's own; give "
            f"another checkpointLocation, or another job name; if the location is this job's own, "
            f"{way_out(facts.damage, facts.completions, True)}"
        )
    latest = max(here, key=lambda g: g.generation)
    first = min(here, key=lambda g: g.generation)
    own = [c for c in facts.completions if c.origin == first.origin]
    newest = max(own, key=lambda c: c.checkpoint, default=None)
    restored = _find(facts, first.restored_from)
    was = _last_to_run(facts, here, first).topology
    back = rolled_back(facts)
    if back is not None:
        return _move(facts, back[1], back[0])
    refused = (
        _moved_on(facts, latest)
        or refuse_to_go_on(facts.damage, facts.completions, facts.batches, here, _committed(facts))
        or _rolled_back(facts, newest)
    )
    changed = same_topology(was, facts.topology, facts.migrations)
    if refused is None and changed is not None:
        return _move(facts, changed, newest or restored)
    return (
        refused
        or _restored_gone(facts, first)
        or _hook_gone(facts, newest or restored)
        or GoOn(
            origin=first.origin,
            restored=restored,
            adopt=newest if newest and newest.batch > _committed(facts) else None,
            commit=uncommitted(facts.completions, facts.committed),
            uncompared=uncompared(was, facts.topology),
            newest=newest or restored,
            was=was,
        )
    )


def _move(facts: StartFacts, changed: Refuse, newest: CompletionRecord | None) -> RestoreFrom | Refuse:
    """The query is another one: what Spark keeps here is of no use to it, and the newest checkpoint is."""
    if newest is None:
        way = "as the job has no checkpoint yet, first start the query as it was, until one is complete"
        return replace(changed, reason=f"{changed.reason}; {way}")
    if not facts.may_move:
        return changed
    return _restore(facts, newest, changed=changed.reason)


def _last_to_run(facts: StartFacts, here: list[GenerationRecord], first: GenerationRecord) -> GenerationRecord:
    """The start whose batches are the last ones here. One that was stopped ahead of its first batch changed no state,
    whatever query it was: what that had left out goes on."""
    wrote = [c.generation for c in facts.completions if c.origin == first.origin]
    wrote += [b.generation for b in facts.batches if b.origin == first.origin]
    ran = max([first.generation, *wrote])
    return max((g for g in here if g.generation <= ran), key=lambda g: g.generation)


def _moved_on(facts: StartFacts, here: GenerationRecord) -> Refuse | None:
    """Another location took over, or began to and may still: an undecided claim counts, its owner may be alive."""
    # A start before ``here`` that took it elsewhere was seen by ``here``, or fenced before it did anything there.
    newer = [
        g
        for g in facts.generations
        if g.generation > here.generation
        and (g.origin > here.origin or (g.origin == UNDECIDED and g.spark_location != facts.location.path))
    ]
    if not newer:
        return None
    g = max(newer, key=lambda g: g.generation)
    return Refuse(
        f"the job went on at {g.spark_location} (generation {g.generation}) since it last ran at "
        f"{facts.location.path}, whose transactions were given up then; start it there, or at an empty "
        f"location, which goes on from where the job stands now (or from what spark.ckpt.restore names)"
    )


def _rolled_back(facts: StartFacts, newest: CompletionRecord | None) -> Refuse | None:
    if newest is None or newest.batch <= _committed(facts) + 1:
        return None
    return Refuse(
        f"the Spark checkpoint location {facts.location.path} was set back: expected batch {newest.batch}, which "
        f"completed checkpoint {newest.checkpoint}, to be its last or committed, found batch {_committed(facts)} "
        f"committed last; start at an empty location, which restores the newest checkpoint"
    )


def _restored_gone(facts: StartFacts, first: GenerationRecord) -> Refuse | None:
    """Until its first batch is committed, a location needs what it was restored from."""
    k = first.restored_from
    if k is None or facts.location.committed is not None or _find(facts, k) is not None:
        return None
    return Refuse(
        f"the Spark checkpoint location {facts.location.path} began from checkpoint {k} and has not committed a batch "
        f"yet: expected checkpoints/{k}, found nothing; start at an empty location"
    )


def _committed(facts: StartFacts) -> int:
    return -1 if facts.location.committed is None else facts.location.committed


def _leave(facts: StartFacts, left: Left) -> CompletionRecord | Refuse | None:
    """What the job goes on from, without what its origin staged since; None: from its beginning."""
    planned = facts.location.planned is not None
    here = [g for g in facts.generations if g.origin == left.origin]
    damaged = (
        refuse_to_go_on(facts.damage, facts.completions, facts.batches, here, -1)
        if planned
        else refuse_to_restore(facts.damage, facts.completions, left.begin, left.origin)
    )
    at = max((g for g in facts.generations if left.origin in (g.origin, g.gave_up)), key=lambda g: g.generation)
    return _moved_on(facts, at) or damaged or keeps_from_leaving(facts, left) or left.begin


# --- choosing what to restore ----------------------------------------------------------------------------------


def _choose(facts: StartFacts) -> CompletionRecord | Refuse | None:
    """The checkpoint an empty location begins from; None: fresh."""
    restore = facts.restore
    if restore == NONE:
        return None
    if restore == AUTO:
        return _line(facts)
    found = _find(facts, restore) if isinstance(restore, int) else None
    if found is None:
        have = sorted(c.checkpoint for c in facts.completions)
        return Refuse(f"restore={restore}: expected one of the job's checkpoints {have}, auto or none")
    return refuse_state(facts.damage, facts.completions, found) or found


def _line(facts: StartFacts) -> CompletionRecord | Refuse | None:
    """Where the job stands: see the module's docstring."""
    origins = _origins(facts)
    if not origins:
        # Nobody did anything yet, or nothing of it is left: then there is nothing newer than the newest.
        newest = max(facts.completions, key=lambda c: c.checkpoint, default=None)
        return refuse_to_restore(facts.damage, facts.completions, newest, 0) or newest
    found = _end_of_line(facts, origins[0])
    if isinstance(found, Refuse):
        return found
    return refuse_to_restore(facts.damage, facts.completions, found, origins[0]) or found


def _origins(facts: StartFacts) -> list[int]:
    """Those that say where the job stands, newest first: they did something, or were restored from what is there.

    The newest is the one that was chosen last. A start that was halted may record its own when a newer one has gone on
    with an older origin: it is fenced then, and did nothing.
    """
    active = active_origins(facts.damage, facts.batches, facts.completions)
    there = {c.checkpoint for c in facts.completions}
    restored = [g.origin for g in facts.generations if g.origin > 0 and g.restored_from in there]
    chosen = {o: max((g.generation for g in facts.generations if g.origin == o), default=o) for o in active + restored}
    return sorted(chosen, key=lambda o: chosen[o], reverse=True)


def _end_of_line(facts: StartFacts, origin: int) -> CompletionRecord | Refuse | None:
    own = [c for c in facts.completions if c.origin == origin]
    if own:
        return max(own, key=lambda c: c.checkpoint)
    first = min((g for g in facts.generations if g.origin == origin), key=lambda g: g.generation, default=None)
    if first is None:
        return Refuse(
            f"expected the record generations/{origin}, which tells where the job began, found it damaged or missing; "
            f"{way_out(facts.damage, facts.completions, False)}"
        )
    if first.restored_from is None:
        return None
    found = _find(facts, first.restored_from)
    return found or Refuse(
        f"the job stands at checkpoint {first.restored_from}: expected checkpoints/{first.restored_from}, "
        f"found nothing; {way_out(facts.damage, facts.completions, False)}"
    )


def as_savepoint(record: CompletionRecord) -> CompletionRecord:
    """A savepoint's record as a checkpoint of this job, to be given an id: what it says of its own job's batches means
    nothing here, and its committables were committed before it was written."""
    return replace(record, origin=0, batch=-1, batches_from=0, committables=(), finished_weight=0, triggered_by=0)


# --- leaving other origins behind ------------------------------------------------------------------------------


def _clean_up(facts: StartFacts) -> tuple[tuple[CompletionRecord, ...], tuple[Committable, ...], tuple[int, ...]]:
    reached: dict[int, int] = {}
    for c in facts.completions:
        reached[c.origin] = max(reached.get(c.origin, 0), c.checkpoint)
    # Up to its origin's newest checkpoint, a committable is committed, or was aborted when it turned out to be garbage.
    # An origin that completed one left all older ones behind; what they committed is not known for ever, and their
    # records may outlive that if storage fails.
    left_behind = max(reached, default=0)
    batches = (b for b in facts.batches if b.origin >= left_behind)
    open_ = [c for b in batches for c in b.staged if c.epoch > reached.get(b.origin, 0)]
    abort = tuple(c for c in dict.fromkeys(open_) if c.sink in facts.topology.sinks)
    # A completion record is canonical, whatever is restored: what it authorises becomes visible.
    return uncommitted(facts.completions, facts.committed), abort, tuple(sorted({b.origin for b in facts.batches}))


def _sinks_exist(facts: StartFacts, commit: tuple[CompletionRecord, ...]) -> Refuse | None:
    needed = {c.sink for r in commit for c in r.committables if (r.checkpoint, c.sink) not in facts.abandoned}
    gone = sorted(needed - set(facts.topology.sinks))
    if not gone:
        return None
    return Refuse(
        f"checkpoint {commit[-1].checkpoint} is complete but not committed: expected sinks {sorted(needed)}, "
        f"found {sorted(facts.topology.sinks)}; start once with {gone}, then change the query; or "
        f"give up what it has for a sink that is no more: `spark-ckpt abandon`",
        True,
    )


def _hook_gone(facts: StartFacts, start: CompletionRecord | None) -> Refuse | None:
    """As with the state of operators: what nobody would take back is not passed over in silence."""
    kept = None if start is None else start.hook
    if start is None or kept is None or kept.name == facts.hook or facts.allow_non_restored:
        return None
    return Refuse(
        f"checkpoint {start.checkpoint} holds state of the hooks {kept.name!r}: expected them in spark.ckpt.hooks, "
        f"found {facts.hook or 'none'}; set them, or spark.ckpt.allowNonRestoredState to drop their state"
    )


def _find(facts: StartFacts, checkpoint: int | None) -> CompletionRecord | None:
    return next((c for c in facts.completions if c.checkpoint == checkpoint), None)


__all__ = [
    "ASK",
    "AUTO",
    "NONE",
    "SAFE",
    "Decision",
    "Fit",
    "GoOn",
    "Refuse",
    "RestoreFrom",
    "SparkLocation",
    "StartFacts",
    "StartFresh",
    "as_savepoint",
    "decide_start",
    "fit_topology",
]
