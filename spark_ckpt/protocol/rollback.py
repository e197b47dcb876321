"""Taking a stopped job back to a checkpoint: its state, its offsets, and the targets of its sinks. Pure.

A rollback claims a generation, as a start does, so that a driver that still lives is fenced. Its record is a decision
as a start's is: the job stands at ``restored_from`` now, and the next start goes on from there, at a location of its
own. ``to_set_back`` are the sinks whose targets are not back yet. While there are some, every start is refused.

CreateGeneration (a claim), ReadStartFacts, CreateVoid (each open trigger; back to ReadStartFacts if one completed
meanwhile), WriteGeneration (the decision), AbortSink (what is complete behind the checkpoint, and not committed),
SetBackSink (each sink), DropCheckpoint (each one behind it), WriteGeneration (nothing is left to set back)
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from spark_ckpt.errors import StorageUnavailableError
from spark_ckpt.protocol._fencing import fence_start, void_triggers
from spark_ckpt.protocol._start_decision import StartFacts
from spark_ckpt.protocol.checkpoint_state import uncommitted
from spark_ckpt.protocol.damage import refuse_state
from spark_ckpt.protocol.life import identity, newest_decided
from spark_ckpt.protocol.publish import by_sink
from spark_ckpt.protocol.records import REFUSED, CompletionRecord, GenerationRecord, VoidRecord
from spark_ckpt.protocol.steps import (
    AbortSink,
    CreateGeneration,
    DropCheckpoint,
    ReadStartFacts,
    SetBackSink,
    Step,
    StorageFailed,
    WriteGeneration,
)
from spark_ckpt.protocol.topology import Refuse
from spark_ckpt.types import CheckpointId


def roll_back(
    job: str, claim: GenerationRecord, checkpoint: int, sinks: tuple[str, ...], now_ms: int
) -> Generator[Step, Any, GenerationRecord]:
    """While the job is stopped. ``sinks``: those whose targets are set back; others keep what they have. Returns the
    generation's record.

    A crash anywhere: the same rollback again does the rest. Raises ``ConfigError`` if the job cannot go back there
    (nothing was changed but the claim), ``FencedError`` if a query starts at the same time, and what a sink raises:
    then the targets ahead of it are back, and every start is refused until a rollback gets to its end. Raises
    ``StorageUnavailableError`` likewise.
    """
    while not (yield CreateGeneration(claim)):
        claim = replace(claim, generation=claim.generation + 1)
    while True:
        facts: StartFacts = yield ReadStartFacts(claim.generation)
        fence_start(facts)
        found = decide_rollback(facts, checkpoint)
        if isinstance(found, Refuse):
            yield WriteGeneration(replace(claim, origin=REFUSED))
            raise found.error()
        if (yield from void_triggers(facts.open_triggers, claim.generation, now_ms)):
            break  # else an older driver completed one before it was fenced
    record = _decided(facts, claim, found, sinks)
    yield WriteGeneration(record)
    # Stopped here or below: no start goes on. The same rollback again claims a newer generation, and does all of it.
    behind = [c for c in facts.completions if c.checkpoint > checkpoint]
    for one in uncommitted(behind, facts.committed):
        for sink, group in by_sink(one.committables):
            # Nobody commits it any more. A driver that was halted in its commit finds it gone.
            yield AbortSink(sink, group)
    for sink in sinks:
        yield SetBackSink(identity(job, record.life), sink, CheckpointId(checkpoint))
        # Stopped here, or in it: some targets are back and some are not. A sink that is back is asked again, and has
        # nothing to do.
    for one in sorted(behind, key=lambda c: -c.checkpoint):
        # Its rows are gone from the sinks, so nobody may restore it.
        void = VoidRecord(one.checkpoint, record.generation, now_ms)
        failed = yield DropCheckpoint(CheckpointId(one.checkpoint), void)
        if isinstance(failed, StorageFailed):
            raise StorageUnavailableError(
                f"the rollback to checkpoint {checkpoint} is not finished: checkpoint {one.checkpoint} could not be "
                f"removed, {failed.reason}. Run it again when the storage answers; no start goes on before"
            )
    done = replace(record, to_set_back=())
    yield WriteGeneration(done)
    return done


def decide_rollback(facts: StartFacts, checkpoint: int) -> CompletionRecord | Refuse:
    """The checkpoint that the job goes back to, or why it cannot."""
    found = next((c for c in facts.completions if c.checkpoint == checkpoint), None)
    have = sorted(c.checkpoint for c in facts.completions)
    if found is None:
        return Refuse(f"expected a retained checkpoint to roll back to, one of {have}, found {checkpoint!r}")
    begun = unfinished(facts)
    if begun is not None and (begun.restored_from or 0) < checkpoint:
        return Refuse(
            f"a rollback to checkpoint {begun.restored_from} was begun and is not finished: some targets may be there. "
            f"Expected that checkpoint or an older one of {have}, found {checkpoint}"
        )
    if found.origin <= 0:
        return Refuse(
            f"checkpoint {checkpoint} is a savepoint that was brought in, or has state that a start wrote anew: no "
            f"sink knows it. Start the job with spark.ckpt.restore={checkpoint} at an empty checkpointLocation"
        )
    return refuse_state(facts.damage, facts.completions, found) or _refuse_lost(facts, checkpoint) or found


def _refuse_lost(facts: StartFacts, checkpoint: int) -> Refuse | None:
    """A record behind ``checkpoint`` that is lost may come back, when a start puts it back from its copy: then its rows
    would be gone from the sinks, and it could be restored."""
    lost = sorted(k for k in facts.damage.checkpoints if k > checkpoint)
    if not lost or unfinished(facts) is not None:
        return None
    return Refuse(
        f"expected the record checkpoints/{lost[0]}, which is behind checkpoint {checkpoint}, found it damaged or "
        "missing. Nothing was changed. Put back a good copy, or start the job once, which does it where the record's "
        f"own copy is there; or start with spark.ckpt.restore={checkpoint} at an empty checkpointLocation, without the "
        "sinks",
        damaged=True,
    )


def unfinished(facts: StartFacts) -> GenerationRecord | None:
    newest = newest_decided(facts.generations)
    return newest if newest is not None and newest.to_set_back else None


def refuse_unfinished(facts: StartFacts) -> Refuse | None:
    """Whether a start has to wait for a rollback."""
    begun = unfinished(facts)
    if begun is None or not any(c.checkpoint <= (begun.restored_from or 0) for c in facts.completions):
        # Nothing could finish it, as behind `delete_checkpoints`: what the sinks show is compared, as at each start.
        return None
    return Refuse(
        f"a rollback to checkpoint {begun.restored_from} was begun and is not finished: expected the targets of "
        f"{list(begun.to_set_back or ())} to be set back. Run `spark-ckpt rollback DIR JOB {begun.restored_from}` "
        "again; with --partial it leaves targets that cannot be set back as they are"
    )


def rolled_back(facts: StartFacts) -> tuple[CompletionRecord | None, Refuse] | None:
    """The checkpoint that the job stands at, and why a location with batches cannot be gone on with, if the newest
    decision is a rollback."""
    newest = newest_decided(facts.generations)
    if newest is None or newest.to_set_back is None:
        return None
    at = next((c for c in facts.completions if c.checkpoint == newest.restored_from), None)
    why = Refuse(
        f"the job was rolled back to checkpoint {newest.restored_from}, and the batches at {facts.location.path} are "
        "behind it; start it at an empty checkpointLocation"
    )
    return at, why


def _decided(
    facts: StartFacts, claim: GenerationRecord, found: CompletionRecord, sinks: tuple[str, ...]
) -> GenerationRecord:
    """It stands in the line of starts, with what the last of them knew: the next one compares itself with that."""
    last = newest_decided(facts.generations)
    assert last is not None  # it wrote the checkpoint
    return replace(
        last,
        generation=claim.generation,
        origin=claim.generation,
        restored_from=found.checkpoint,
        started_ms=claim.started_ms,
        gave_up=None,
        to_set_back=sinks,
    )
