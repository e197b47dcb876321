"""Deletes every checkpoint of a stopped job, step by step so that a start behind a crash finds something sound."""

from __future__ import annotations

from spark_ckpt import clock
from spark_ckpt.config import JobConfig
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.spark_folder import remove_local
from spark_ckpt.jobs.spec import cache_dir
from spark_ckpt.protocol.checkpoint_state import Name
from spark_ckpt.protocol.records import VoidRecord
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.job_paths import JobPaths
from spark_ckpt.storage.run_cache import forget_cached


def delete_checkpoints(records: JobRecords, config: JobConfig) -> None:
    """Again after a crash: what is gone already is passed over."""
    folder = Folder(records.paths.url, config.storage_options())
    _remove(folder, *filter(JobPaths.is_spark, folder.folders()), "copies")  # a start must not put back what is deleted
    for location in {g.spark_location for g in records.generations()}:
        remove_local(location)
    # Stopped here, or at a checkpoint below: the next start restores the newest that is left, the newest of all.
    newest = records.newest_id()
    void = VoidRecord(newest, max(records.ids("generations"), default=0), clock.now_ms()).to_json()
    if newest and not records.store.exists(JobPaths.checkpoint(newest)):
        records.store.create(JobPaths.checkpoint(newest), "checkpoint", void)
    # They tell of checkpoints that are gone below, and without them none is taken for lost. What batches staged is
    # left to the sinks' gc.
    _remove(folder, "triggers", "batches")
    for k in records.ids("checkpoints"):
        if records.name_of(k) is Name.VOID:
            continue
        if k == newest:
            records.store.replace(JobPaths.checkpoint(k), "checkpoint", void)
        else:
            records.store.delete(JobPaths.checkpoint(k))
    # Stopped here: the next start is fresh, and counts on from the void record.
    for uid in folder.folders("state"):
        table = folder.child(JobPaths.state_file(uid))
        forget_cached(table.url, cache_dir(config), table.names(), config.storage_options())
    _remove(folder, "committed", "aborted", "requests", "answers", "drained", "failing", "manifests", "state")


def _remove(folder: Folder, *names: str) -> None:
    for name in filter(folder.fs.exists, map(folder.path, names)):
        folder.fs.rm(name, recursive=True)
