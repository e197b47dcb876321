"""Removes what no retained checkpoint of a stopped job needs, once every record that could name it can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CkptError, CorruptStorageError
from spark_ckpt.jobs.heartbeat import drop_dead
from spark_ckpt.jobs.records import JobRecords, is_lost
from spark_ckpt.jobs.spark_folder import SparkFolder
from spark_ckpt.jobs.spec import SinkSpec, cache_dir, sink_place
from spark_ckpt.protocol.checkpoint_state import CheckpointState
from spark_ckpt.protocol.leftovers import missing_batches, open_committables, split_batches
from spark_ckpt.protocol.life import identity, newest_decided
from spark_ckpt.protocol.records import CommittedRecord, CompletionRecord
from spark_ckpt.storage.filesystem import Folder, normalize_url
from spark_ckpt.storage.job_paths import JobPaths, batch_of, checkpoint_of
from spark_ckpt.storage.manifest import StateManifest, read_manifest
from spark_ckpt.storage.run_cache import forget_cached
from spark_ckpt.storage.state_table import StateTable
from spark_ckpt.types import CheckpointId, Committable


class GarbageCollector:
    """One collection over one job's folder."""

    def __init__(self, records: JobRecords, config: JobConfig, job: str) -> None:
        self.records = records
        self.config = config
        self.job = job

    def collect(self, sinks: tuple[SinkSpec, ...], min_age_s: float) -> list[str]:
        """Remove orphan state files, manifests, records and what sinks staged in vain; returns their names."""
        self._require_sound()
        removed: list[str] = []
        done = self.records.completions()
        # First records, then what they name: stopped between the two, the next collection finds what nobody names.
        keep, known_as = self._records(removed), identity(self.job, self.records.life())
        for uid in self._folders(self.records.paths.states):
            removed += self._table(uid, done, min_age_s)
        removed += self._manifests(done) + self._locations()
        oldest = CheckpointId(min((c.checkpoint for c in done), default=self.records.newest_id() + 1))
        for spec in sinks:
            sink = spec.make(sink_place(self.config, self.job))
            removed += sink.gc(known_as, keep) + sink.forget(known_as, oldest)
        drop_dead(self.records)
        self.records.store.remove_temporaries()
        return removed

    # -- what must be readable -------------------------------------------------------------------------------------

    def _require_sound(self) -> None:
        """What a lost record names cannot be told from garbage."""
        lost = list(dict.fromkeys(path for path, read in self._needed() if is_lost(read)))
        if not lost:
            for uid in self._folders(self.records.paths.states):
                self._state(uid).head()  # raises what a table's own log says of damage to it
            return
        raise CorruptStorageError(
            f"gc removes nothing of job {self.job!r}: expected every record that may name files to be readable, found"
            f" {len(lost)} damaged or missing below {self.records.store.url}: {', '.join(lost)}. What they name cannot"
            " be told from garbage. Put back good copies ('spark-ckpt verify' tells what is wrong with each) and run gc"
            " again. If there is none, start the job (it may need none of them, or says which checkpoint to restore);"
            " then remove these files, and for a checkpoint K and its manifests checkpoints/K and committed/K together:"
            " gc then removes, for good, what only they named."
        )

    def _needed(self) -> Iterator[tuple[str, Callable[[], object]]]:
        records, store = self.records, self.records.store
        for g in records.ids("generations"):
            yield JobPaths.generation(g), partial(records.generation, g)
        for k in records.ids("checkpoints"):
            yield JobPaths.checkpoint(k), partial(records.checkpoint, k)
        done = records.completions()
        for ref in (ref for c in done for ref in c.tables.values()):
            yield ref.manifest, partial(read_manifest, store, ref.manifest)
        recorded = records.recorded(done)
        for k in sorted(recorded.committed):
            path = JobPaths.committed(k)
            yield path, partial(_committed, records, path)
            # One that nobody triggered is an import that was stopped.
            if recorded.state(k) is CheckpointState.MISSING and k in recorded.triggered:
                yield JobPaths.checkpoint(k), partial(records.checkpoint, k)
        for name in store.names("batches"):
            yield JobPaths.listed("batches", name), partial(records.batch, name)
        yield from ((JobPaths.listed("batches", name), lambda: None) for name in self._missing_batches(done))
        for name in store.names("abandoned"):
            path = JobPaths.listed("abandoned", name)
            yield path, partial(store.read, path, "abandoned")

    def _missing_batches(self, done: list[CompletionRecord]) -> list[str]:
        newest = newest_decided(self.records.generations())
        if newest is None:
            return []
        try:
            at = SparkFolder(newest.spark_location, self.config).location()
            committed = at.committed if at.origin == newest.origin and at.committed is not None else -1
        except (OSError, CkptError):
            committed = -1  # it may be reached from elsewhere only; then a gap between two records is what shows
        there = [batch_of(name)[:2] for name in self.records.store.names("batches")]
        lost = missing_batches(there, done, newest.origin, committed)
        return [f"{newest.origin:010d}-{b:010d}-*" for b in lost]

    # -- what is removed -------------------------------------------------------------------------------------------

    def _table(self, uid: str, done: list[CompletionRecord], min_age_s: float) -> list[str]:
        table = self._state(uid)
        live: set[str] = set()
        for record in done:
            if uid in record.tables:
                live |= self._manifest(record, uid).files
        # A stopped job may go on at its Spark location from state newer than its last checkpoint.
        for batch in self.records.batches():
            for event in batch.events:
                files = getattr(event, "files", ()) if getattr(event, "uid", None) == uid else ()
                live |= {f.file for f in files}
        newest = next((c for c in reversed(done) if uid in c.tables), None)
        if newest is not None:
            # A crash between a state commit and its completion leaves a head that names files nobody else does.
            table.rollback(f"{self.job}/{uid}", newest.checkpoint, self._manifest(newest, uid).content)
        removed = table.gc(live, min_age_s)
        forget_cached(table.url, cache_dir(self.config), removed, self.config.storage_options())
        return [JobPaths.state_file(uid, name) for name in removed]

    def _manifests(self, done: list[CompletionRecord]) -> list[str]:
        named = {t.manifest for c in done for t in c.tables.values()}
        store = self.records.store
        folders = (JobPaths.manifests_of(uid) for uid in self._folders(self.records.paths.manifests))
        found = [f"{folder}/{name}" for folder in folders for name in store.names(folder)]
        orphans = [path for path in found if path not in named]
        for path in orphans:
            store.delete(path)
        return orphans

    def _locations(self) -> list[str]:
        """Spark's folders that the job left when its query changed: nothing goes on there any more."""
        newest = newest_decided(self.records.generations())
        if newest is None:
            return []
        folder = Folder(self.records.paths.url, self.config.storage_options())
        found = [name for name in folder.folders() if JobPaths.is_spark(name)]
        left = [name for name in found if normalize_url(f"{folder.url}/{name}") != newest.spark_location]
        for name in left:
            folder.remove_all(name)
        return left

    def _records(self, removed: list[str]) -> list[Committable]:
        """Remove records that nobody reads any more; returns what may still be committed by those that stay."""
        records, done = self.records, self.records.completions()
        live, dead = split_batches(records.batches(), done, set(records.ids("generations")))
        # Not where checkpoints/K is lost: then committed/K is what is left to tell of it.
        recorded = records.recorded(done)
        orphans = [k for k in sorted(recorded.committed) if recorded.state(k) is CheckpointState.VOID]
        # The batch that completed the newest one stays, for those who ask for the query's progress.
        told = {(c.origin, c.batch) for c in done[-1:]}
        dead = tuple(b for b in dead if (b.origin, b.batch) not in told)
        names = [JobPaths.batch(b.name) for b in dead] + [JobPaths.committed(k) for k in orphans]
        # Retention drops those up to the newest checkpoint that it drops; of those behind it a driver may still tell.
        names += records.given_up_paths(done[0].checkpoint) if done else []
        copies = (JobPaths.listed("copies", name) for name in records.store.names("copies"))
        names += [path for path in copies if _is_stale(records, path)]
        for name in names:
            records.store.delete(name)
        removed += names
        return open_committables(live, done, set(records.ids("committed")), records.abandoned_pairs())

    def _state(self, uid: str) -> StateTable:
        return StateTable(self.records.paths.state(uid), uid, self.config.storage_options())

    def _manifest(self, record: CompletionRecord, uid: str) -> StateManifest:
        return read_manifest(self.records.store, record.tables[uid].manifest)

    def _folders(self, url: str) -> list[str]:
        return Folder(url, self.config.storage_options()).folders()


def _committed(records: JobRecords, path: str) -> object:
    body = records.store.read(path, "committed")
    return None if body is None else CommittedRecord.from_json(body, path)


def _is_stale(records: JobRecords, copy: str) -> bool:
    """Of a checkpoint that was never created or is dropped, or of an attempt at it that another overtook."""
    checkpoint = checkpoint_of(copy.rpartition("/")[2])
    found = None if checkpoint is None else records.checkpoint(checkpoint)
    return found is None or JobPaths.copy(found.checkpoint, found.generation) != copy
