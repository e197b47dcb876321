"""Pausing a job: ``paused.json`` in its folder says that nothing is to be read, and why. Any process.

Sources look for it behind each trigger that they take up, and at their start: so a pause begins at a barrier, and holds
for later starts, too. Checkpoints go on meanwhile, as while nothing comes.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from spark_ckpt import clock
from spark_ckpt.errors import CheckpointFailedError, CorruptStorageError, InvalidInputError
from spark_ckpt.jobs.records import JobRecords, report
from spark_ckpt.protocol.records import PausedRecord, Topology
from spark_ckpt.storage.job_paths import PAUSED_RECORD
from spark_ckpt.storage.record_store import RecordStore

_log = logging.getLogger("spark_ckpt")
_KIND = "paused"
_BY_SPARK = "SparkStream"
"""What the topology calls the streams that Spark itself reads (``reads_of`` of :mod:`spark_ckpt.execution.build`)."""
_DAMAGED = "(the record that says why is damaged)"


def is_paused(store: RecordStore) -> bool:
    """One request; a record that is damaged pauses the job as well."""
    return store.exists(PAUSED_RECORD)


def paused(store: RecordStore) -> PausedRecord | None:
    """Since when the job is paused, and why; None if it is not."""
    try:
        body = store.read(PAUSED_RECORD, _KIND)
        return None if body is None else PausedRecord.from_json(body, PAUSED_RECORD)
    except CorruptStorageError as damage:
        report(damage)
        return PausedRecord(0, _DAMAGED)


def note_pause(records: JobRecords, job: str, reason: str) -> PausedRecord:
    """Leave the record; of one that is there the first reason stays. Returns what holds.

    Raises ``InvalidInputError`` for an empty reason, and for a job that cannot stand still.
    """
    if not reason.strip():
        raise InvalidInputError("expected a reason to pause the job, for who finds it paused; found none")
    require_can_pause(records, job)
    # Stopped behind it: the sources stand still from the next checkpoint on, and the same call finishes it.
    asked = PausedRecord(clock.now_ms(), reason.strip())
    if not is_paused(records.store):  # one that is damaged is not written over: it pauses the job as well
        records.store.create(PAUSED_RECORD, _KIND, asked.to_json())
    return paused(records.store) or asked


@contextlib.contextmanager
def pause_stands(job: str) -> Iterator[None]:
    """Around the wait for the checkpoint of a pause: what fails says that the pause holds all the same."""
    try:
        yield
    except CheckpointFailedError as error:
        raise CheckpointFailedError(
            f"job {job!r} is paused: its sources stand still from the next checkpoint on, and `spark-ckpt resume` lets "
            f"them go on. But sinks may not show all that was read yet: {error}"
        ) from None


def end_pause(store: RecordStore) -> PausedRecord | None:
    """Remove the record; returns what it said, None if the job was not paused."""
    found = paused(store)
    store.delete(PAUSED_RECORD)
    return found


def require_can_pause(records: JobRecords, job: str) -> None:
    newest = max(records.decided(), key=lambda g: g.generation, default=None)
    if newest is not None and _spark_reads(newest.topology):
        raise InvalidInputError(
            f"job {job!r} cannot be paused: Spark itself reads a stream of it, and goes on reading. Stop it with a "
            "savepoint instead (`spark-ckpt stop`), and start it again"
        )


def _spark_reads(topology: Topology) -> bool:
    return any(what.split(" ")[0] == _BY_SPARK for what in topology.reads.values())


def say_paused(job: str, topology: Topology, store: RecordStore, bounded: bool = False) -> None:
    """At a start, in the log. Raises ``InvalidInputError`` for a run that a pause would keep from its end, and for a
    job that cannot stand still."""
    found = paused(store)
    if found is None:
        return
    if bounded or _spark_reads(topology):
        why = "a run of what is available now would not come to its end" if bounded else "Spark reads a stream of it"
        raise InvalidInputError(
            f"job {job!r} is paused ({found.reason}), and {why}: resume it (`spark-ckpt resume`) and start the query "
            "again. Nothing was changed"
        )
    _log.warning("Job %s is paused, and reads nothing until it is resumed (`spark-ckpt resume`): %s", job, found.reason)
