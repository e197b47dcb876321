"""``gc`` of a job: nothing that is needed goes, and nothing at all while a record cannot be read or the job runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from spark_ckpt import faults
from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.protocol.records import LOST, AbortedRecord
from spark_ckpt.storage.job_paths import batch_of
from tests.storage.whole_job import WholeJob, finished

NAMING = ("generations", "checkpoints", "committed", "batches")
"""Kinds of records that name files."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    job = finished(root)
    for orphan in ("state/counts/e0000000001-orphan.parquet", "manifests/counts/0000000001-orphan.json"):
        (job.folder / orphan).write_bytes(b"nobody names me")
    return root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    """A copy of a job with something to collect."""
    shutil.copytree(whole, tmp_path / "copy")
    return tmp_path / "copy"


def _all(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def _naming(root: Path) -> list[Path]:
    job = WholeJob(root)
    records = [p for kind in NAMING for p in sorted((job.folder / kind).iterdir())]
    manifests = [job.folder / t.manifest for c in job.job.completed() for t in c.tables.values()]
    heads = sorted((job.folder / "state" / "counts" / "_ckpt").iterdir(), key=lambda p: p.stat().st_mtime_ns)
    return [*records, *manifests, heads[-1]]


def test_gc_removes_orphans_and_the_job_goes_on_with_what_stays(root: Path) -> None:
    removed = WholeJob(root).job.gc()
    assert {"state/counts/e0000000001-orphan.parquet", "manifests/counts/0000000001-orphan.json"} <= set(removed)
    job = WholeJob(root)
    assert job.job.verify() == []
    job.start()
    job.step(True)
    job.check(doubles=False)


def test_gc_removes_nothing_while_a_record_that_names_files_is_damaged(root: Path) -> None:
    """Each of them, cut and flipped; then the good copy is put back, as the message says, and gc works."""
    for path in _naming(root):
        sound = path.read_bytes()
        for damaged in (sound[:-20], sound.replace(b"1", b"2", 1), b""):
            path.write_bytes(damaged)
            before = _all(root)
            with pytest.raises(CorruptStorageError) as refused:
                WholeJob(root).job.gc()
            assert path.name in str(refused.value) or "_ckpt" in str(path), path
            assert _all(root) == before, path
            path.write_bytes(sound)
    assert WholeJob(root).job.gc()


def test_gc_removes_nothing_while_a_named_manifest_or_the_newest_checkpoint_is_missing(root: Path) -> None:
    job = WholeJob(root)
    newest = job.job.completed()[-1]
    for name in (newest.tables["counts"].manifest, f"checkpoints/{newest.checkpoint:010d}.json"):
        path = job.folder / name
        sound = path.read_bytes()
        path.unlink()
        before = _all(root)
        with pytest.raises(CorruptStorageError, match=name):
            job.job.gc()
        assert _all(root) == before
        path.write_bytes(sound)


def test_gc_removes_nothing_while_a_batch_record_is_missing(root: Path) -> None:
    """Of those that Spark does not repeat and no checkpoint has; the others are gone because they were dropped."""
    job = WholeJob(root)
    done = job.job.completed()[-1]
    # That of the batch which completed the newest one stays for the query's progress, and names nothing else.
    needed = [n for n in job.job.records.store.names("batches") if batch_of(n)[1] >= done.batches_from]
    assert needed
    for name in needed:
        path = job.folder / "batches" / name
        sound = path.read_bytes()
        path.unlink()
        before = _all(root)
        with pytest.raises(CorruptStorageError, match=f"batches/{name[:21]}"):
            job.job.gc()
        assert _all(root) == before
        path.write_bytes(sound)
    assert job.job.gc()


def test_batches_that_a_rollback_dropped_are_not_missed(root: Path) -> None:
    """It did nothing yet, and Spark's folder of before still tells of more batches."""
    job = WholeJob(root)
    job.start(str(job.job.completed()[0].checkpoint), "another")
    assert job.job.records.store.names("batches") == []
    job.job.gc()


def test_one_gc_removes_what_only_records_name_that_it_removes(root: Path) -> None:
    """A rollback could not drop the batch records of the origin that it left; one has an aborted checkpoint's state."""
    job = WholeJob(root)
    job.start()
    k = job._trigger()
    job.records.abort(AbortedRecord(k, LOST, "for a test", 0, job.run.generation))
    job._replay({"position": job.position + 1, "barrier": k})
    left = {path: path.read_bytes() for path in (job.folder / "batches").iterdir()}
    job.start(str(job.job.completed()[0].checkpoint), "another")
    job.step(True)
    for path, record in left.items():
        path.write_bytes(record)
    removed = job.job.gc()
    assert any(name.startswith(f"state/counts/e{k:010d}-") for name in removed)
    assert job.job.gc() == []
    assert job.job.verify() == []


def test_a_driver_that_was_halted_ahead_of_a_collection_removes_nothing_of_its_successor(root: Path) -> None:
    """A deletion vector stands in the state's folder a moment before anything names it."""
    job = WholeJob(root)
    job.start()
    theirs = job.folder / "state" / "counts" / "deletion_vector_theirs.bin"

    def halted(place: str) -> None:
        if place == "before CollectFiles" and not theirs.exists():
            theirs.write_bytes(b"")
            WholeJob(root).start(location="another")

    with faults.heard_by(halted):
        job.step(True)
    assert theirs.exists()


def test_a_damaged_checkpoint_is_removed_knowingly_and_gc_works_again(root: Path) -> None:
    job = WholeJob(root)
    lost = job.job.completed()[-1]
    checkpoint, committed = (
        job.folder / kind / f"{lost.checkpoint:010d}.json" for kind in ("checkpoints", "committed")
    )
    checkpoint.write_bytes(b"{")
    shutil.rmtree(job.folder / "copies")
    with pytest.raises(CorruptStorageError, match="committed/K together"):
        job.job.gc()
    with pytest.raises(CorruptStorageError) as told:
        job.start()
    restore = re.search(r"spark\.ckpt\.restore=(\d+)", str(told.value))
    assert restore, told.value
    job.start(restore[1], "another")
    checkpoint.unlink()
    committed.unlink()
    assert lost.tables["counts"].manifest in job.job.gc()
    assert job.job.verify() == []
