"""What a start reads of a job's folder: facts, and what of them is lost. Driver."""

from __future__ import annotations

from functools import partial

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.jobs.records import JobRecords, is_lost, report
from spark_ckpt.protocol.damage import Damage
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.storage.job_paths import JobPaths, batch_of
from spark_ckpt.storage.manifest import read_manifest


def read_damage(records: JobRecords, generation: int, completions: tuple[CompletionRecord, ...]) -> Damage:
    """``generation`` is the one that starts."""
    lost = records.recorded(completions).lost()
    return Damage(
        generations=tuple(
            g for g in records.ids("generations") if g != generation and is_lost(partial(records.generation, g))
        ),
        checkpoints={k: _triggered_by(records, k, generation) for k in lost},
        states=tuple(c.checkpoint for c in completions if not _has_manifests(records, c)),
        batches=tuple(
            batch_of(name) for name in records.store.names("batches") if is_lost(partial(records.batch, name))
        ),
        copies={k: records.copies(k) for k in lost},
    )


def newest_generation(records: JobRecords) -> int:
    """The largest number of a generation that left any trace; 0 if there is none.

    Its record may be lost. A number that is used twice would take the other's batches and checkpoints for its own.
    """
    found = [0, *records.ids("generations")]
    for c in records.completions():
        found += [c.generation, c.origin, c.triggered_by]
    for name in records.store.names("batches"):
        origin, _, generation = batch_of(name)
        found += [origin, generation]
    return max(found)


def _triggered_by(records: JobRecords, checkpoint: int, generation: int) -> int | None:
    trigger = records.trigger(checkpoint)
    if trigger is not None:
        return trigger.generation
    there = records.store.exists(JobPaths.trigger(checkpoint))
    return generation if there else None  # damaged, too: then the worst is assumed


def _has_manifests(records: JobRecords, completion: CompletionRecord) -> bool:
    try:
        for ref in completion.tables.values():
            read_manifest(records.store, ref.manifest)
    except CorruptStorageError as damage:
        report(damage)
        return False
    return True
