"""Is this driver still the job's own? Looked at before whatever an older driver must not do.

Part of the sink's commit: see :mod:`spark_ckpt.protocol.commit` for the order of all steps.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from spark_ckpt.errors import FencedError, ProtocolBugError
from spark_ckpt.protocol._start_decision import StartFacts
from spark_ckpt.protocol._view import JobView, Steps
from spark_ckpt.protocol.records import CompletionRecord, TriggerRecord, VoidRecord
from spark_ckpt.protocol.steps import Created, CreateVoid, Exists, ReadNewestGeneration, Step
from spark_ckpt.types import CheckpointId


def fence(view: JobView) -> Generator[Step, Any, None]:
    """Raises ``FencedError`` unless this generation is the newest."""
    newest = yield ReadNewestGeneration()
    if newest != view.generation:
        why = "another query runs this job now" if newest else "the job's folder was removed"
        raise FencedError(
            f"job {view.job!r}: expected generation {view.generation} to be the newest, found {newest or 'none'}; "
            f"{why}, stop this one"
        )


def unless_fenced(view: JobView, steps: Steps) -> Steps:
    """A driver believed dead that moves on meets what its successor dropped: records, files, staged rows. Then it is
    told that it was fenced, and not that they are missing."""
    try:
        return (yield from steps)
    except FencedError:
        raise
    except Exception:
        yield from fence(view)
        raise


def fence_start(facts: StartFacts) -> None:
    """Raises ``FencedError`` if a later start has begun.

    What is decided from these facts concerns only what earlier generations did: none of a later one is in them."""
    newest = max((g.generation for g in facts.generations), default=0)
    if newest > facts.generation:
        raise FencedError(
            f"expected generation {facts.generation} to be the newest, found {newest}; another query started this job "
            f"at the same time, stop this one"
        )


def void_triggers(triggers: tuple[int, ...], generation: int, now_ms: int) -> Generator[Step, Any, bool]:
    """Take the names of all open checkpoints. False: an older driver completed one before it was fenced."""
    for k in triggers:
        found = yield CreateVoid(VoidRecord(k, generation, now_ms))
        # Stopped here: K can never complete. Going on at the old location aborts it, another restore finds it void.
        if isinstance(found, Created):
            continue
        if isinstance(found.record, CompletionRecord):
            return False
        if found.record.generation > generation:
            raise FencedError(
                f"expected generation {generation} to be the newest, found checkpoint {k} voided by generation "
                f"{found.record.generation}; another query runs this job now, stop this one"
            )
    return True


def take_name(
    view: JobView, checkpoint: CheckpointId, trigger: TriggerRecord | None, now_ms: int
) -> Generator[Step, Any, None]:
    """Take the name of a checkpoint that everyone has acknowledged and that is given up.

    An older driver may have been halted right before it created the record. If it still could, its rows would become
    visible once with that checkpoint and once with the next one, for which they were staged again.
    """
    if trigger is not None and trigger.generation == view.generation:
        return  # nobody older knows of it
    found = yield CreateVoid(VoidRecord(checkpoint, view.generation, now_ms))
    # Stopped here: it can never complete; the next start takes it for aborted.
    if isinstance(found, Exists) and isinstance(found.record, CompletionRecord):
        raise FencedError(
            f"job {view.job!r}: expected checkpoint {checkpoint} to be open, found it completed by an older driver "
            f"while this one gave it up; start the query again, it goes on from there"
        )


def check_created(found: Any, record: CompletionRecord) -> None:
    """Raises unless ``record`` is what stands in ``checkpoints/K`` now."""
    if isinstance(found, Created) or found.record == record:
        return
    there = found.record
    if there.generation != record.generation:
        raise FencedError(
            f"checkpoint {record.checkpoint}: expected to own it as generation {record.generation}, found it owned by "
            f"generation {there.generation}; stop this query (starting it again goes on from what is there)"
        )
    raise ProtocolBugError(f"checkpoint {record.checkpoint} was completed twice by generation {record.generation}")
