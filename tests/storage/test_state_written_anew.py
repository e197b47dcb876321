"""A start that writes state anew, beside another one that was believed dead, or behind one that died. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ckpt.errors import RetryableError, TopologyError
from spark_ckpt.faults import heard_by
from spark_ckpt.protocol.records import CommittedRecord
from spark_ckpt.storage.manifest import read_manifest
from tests.storage.changed_job import Changed
from tests.storage.whole_job import ROWS, UID, WholeJob


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A job behind three checkpoints, which has stopped."""
    job = WholeJob(tmp_path, retain="5")
    job.start()
    for _ in range(3):
        job.step(True)
    return tmp_path


def test_a_start_that_was_halted_in_the_pass_changes_nothing_of_what_its_successor_made(root: Path) -> None:
    """Each has an id of its own for the checkpoint that it makes, so that neither confirms what the other made."""
    made = {}

    def overtake() -> None:
        successor = Changed(root, retain="5")
        successor.start()
        successor.step(True)
        folders = {"manifests", "checkpoints", "committed"}
        made.update({p: p.read_bytes() for p in (root / "jobs/job").rglob("*.json") if folders & {*p.parts}})

    with pytest.raises(RetryableError, match=r"went on while this one was halted .* start the query again"):
        Changed(root, overtake, retain="5").start()
    assert made
    assert {p.stem for p in made if p.parent.name == "committed"} >= {"0000000005", "0000000006"}
    assert {path: path.read_bytes() for path in made} == made
    again = Changed(root, retain="5")
    again.start()
    assert again.position == 4 * ROWS
    again.step(True)
    again.check(doubles=False)
    assert again.job.verify() == []


def test_files_that_were_written_anew_are_collected_when_no_checkpoint_names_them(root: Path) -> None:
    job = Changed(root, retain="2")
    job.start()
    for _ in range(3):
        job.step(True)
    store, done = job.records.store, job.job.completed()
    assert len(done) == 2
    named = {file for c in done for file in read_manifest(store, c.tables[UID].manifest).files}
    assert {path.name for path in (root / "jobs/job/state" / UID).glob("*.parquet")} == named


def test_half_a_manifest_of_a_start_that_died_is_in_no_ones_way(root: Path) -> None:
    """As a power cut leaves it, whatever its name is."""

    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Changed(root, die, retain="5").start()
    folder = root / "jobs/job/manifests" / UID
    for token in ("rewritten", "imported", "savepoint"):
        (folder / f"0000000005-{token}.json").write_text("{")
    job = Changed(root, retain="5")
    job.start()
    assert job.run.restored_from == 5  # 4 was reserved by the start that died
    assert job.counts == {0: 5, 1: 4, 2: 4, 3: 4, 4: 4}


def test_a_job_without_a_checkpoint_is_told_to_go_on_as_it_was_until_it_has_one(tmp_path: Path) -> None:
    job = WholeJob(tmp_path)
    job.start()
    job.step(False)
    told = "as the job has no checkpoint yet, first start the query as it was, until one is complete"
    with pytest.raises(TopologyError, match=told):
        Changed(tmp_path).start()
    job.start()
    job.step(True)
    changed = Changed(tmp_path)
    changed.start()
    assert changed.counts == job.counts


def test_what_a_start_that_died_only_confirmed_is_not_taken_for_a_checkpoint_of_the_job(root: Path) -> None:
    """It was to be checkpoint 4. The next one is committed behind a crash, as its rows are in no sink yet."""

    def die(place: str) -> None:
        if place == "after CreateCompletion":
            raise KeyboardInterrupt

    records = WholeJob(root).job.records
    records.store.replace("committed/0000000004.json", "committed", CommittedRecord(4, 0, 0).to_json())
    job = WholeJob(root, retain="5")
    job.start()
    with heard_by(die), pytest.raises(KeyboardInterrupt):
        job.step(True)
    again = WholeJob(root, retain="5")
    again.start()
    again.check(doubles=False)
    assert again.position == 4 * ROWS
    assert [c.checkpoint for c in again.job.completed()][-1] == 5
