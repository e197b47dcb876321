"""Savepoints listed, described, verified, copied, removed, and taken of a job that does not run. No Spark."""

from __future__ import annotations

import json
import shutil
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

import spark_ckpt
from spark_ckpt.cli import app
from spark_ckpt.errors import CkptError, InvalidInputError, StorageNotWritableError, TopologyError
from spark_ckpt.faults import heard_by
from spark_ckpt.jobs.start import dry_run
from spark_ckpt.storage.record_store import RecordStore
from tests.storage.whole_job import JOB, TOPOLOGY, UID, WholeJob


class Killed(BaseException):
    """As SIGKILL, but the test goes on."""


def command(*arguments: object, columns: int = 80) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": str(columns)})


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that has stopped and retains checkpoints 1 and 3, and its savepoint of checkpoint 2, ``savepoints/one``."""
    root = tmp_path_factory.mktemp("taken")
    job = WholeJob(root)
    job.start()
    job.step(True)
    job.step(True, savepoint=str(root / "savepoints/one"))
    job.step(True)
    return root


@pytest.fixture
def root(taken: Path, tmp_path: Path) -> Path:
    shutil.copytree(taken, tmp_path / "root")
    return tmp_path / "root"


def killed_at(place: str) -> AbstractContextManager[None]:
    """Within, who comes to ``place`` is killed there."""

    def heard(reached: str) -> None:
        if reached == place:
            raise Killed

    return heard_by(heard)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def restored(root: Path, savepoint: Path | str) -> dict[int, int]:
    job = WholeJob(root)
    job.start(restore=str(savepoint))
    return job.counts


COUNTS = {0: 3, 1: 3, 2: 3, 3: 3, 4: 2}
"""After two batches of seven rows."""


def test_savepoints_are_listed_with_job_and_time_from_any_folder_above_them(root: Path) -> None:
    for place in (root, root / "savepoints", root / "savepoints/one"):
        (found,) = spark_ckpt.savepoints(str(place))
        summary = found.summary()
        assert (summary["job"], summary["checkpoint"], summary["complete"]) == (JOB, 2, True)
        assert summary["path"] == str(root / "savepoints/one")
    listed = command("savepoints", root, columns=40).output
    assert str(root / "savepoints/one") in listed, "a path is not cut, however narrow the terminal is"
    assert json.loads(command("savepoints", root, "--json").output) == [summary]
    assert "There are no savepoints" in command("savepoints", root / "sinks").output


def test_describe_has_offsets_columns_keys_and_what_each_sink_was_given(root: Path) -> None:
    path = root / "savepoints/one"
    found = json.loads(command("describe", path, "--json").output)
    assert found == spark_ckpt.savepoint(str(path)).describe()
    assert found["sources"] == {"rows": {"inner": 14, "ended": False}}
    counts = found["operators"]["counts"]
    assert (counts["columns"], counts["keys"], counts["files"]) == ({"k": "bigint", "n": "bigint"}, 5, 1)
    assert {s: v["checkpoint"] for s, v in found["sinks"].items()} == {"appended": 2, "merged": 2}
    text = command("describe", path).output
    for word in ('{"inner": 14', "counts: 5 keys", "    n bigint", "sink merged: checkpoint 2", "maxParallelism 1"):
        assert word in text


def test_the_state_of_a_savepoint_is_a_table_for_any_reader(root: Path) -> None:
    url, version = spark_ckpt.savepoint(str(root / "savepoints/one")).state_table("counts")
    rows = DeltaTable(url, version=version).to_pyarrow_table()
    assert dict(zip(rows["k"].to_pylist(), rows["n"].to_pylist(), strict=True)) == COUNTS


@pytest.mark.parametrize("damage", ["savepoint.json", "manifests/*/*", "state/*/*.parquet", "state/*/_delta_log/*"])
def test_verify_finds_every_damage_of_a_savepoint(root: Path, damage: str) -> None:
    path = root / "savepoints/one"
    assert spark_ckpt.savepoint(str(path)).verify() == []
    assert command("verify", path).exit_code == 0
    (file,) = path.glob(damage)
    file.write_bytes(file.read_bytes()[:-20])
    (wrong,) = spark_ckpt.savepoint(str(path)).verify()
    assert file.name in wrong or str(file.parent.parent) in wrong
    result = command("verify", path, "--json")
    assert (result.exit_code, json.loads(result.output)) == (1, [wrong])
    if "state" in damage:
        file.unlink()
        assert len(spark_ckpt.savepoint(str(path)).verify()) == 1


def test_a_copy_is_the_same_savepoint_somewhere_else(root: Path, tmp_path: Path) -> None:
    path, target = root / "savepoints/one", root / "copies/two"
    assert command("copy", path, target).output.startswith("the copy is complete")
    same = ("manifests", "state")
    assert files(target).keys() == files(path).keys()
    assert [files(target / name) for name in same] == [files(path / name) for name in same]
    assert spark_ckpt.savepoint(str(target)).record() == spark_ckpt.savepoint(str(path)).record()
    assert command("copy", path, target).exit_code == 0, "again: nothing to do"
    shutil.rmtree(path)
    assert restored(tmp_path / "other", target) == COUNTS


@pytest.mark.parametrize("place", ["savepoint claimed", "state copied"])
def test_a_copy_that_is_killed_is_no_savepoint_and_the_same_command_finishes_it(root: Path, place: str) -> None:
    path, target = root / "savepoints/one", root / "copies/two"
    before = files(path)
    with killed_at(place), pytest.raises(Killed):
        spark_ckpt.savepoint(str(path)).copy(str(target))
    (listed,) = [s.summary() for s in spark_ckpt.savepoints(str(root / "copies"))]
    assert (listed["complete"], listed["job"], listed["checkpoint"]) == (False, JOB, 2)
    assert "unfinished" in command("savepoints", root / "copies").output
    with pytest.raises(InvalidInputError, match="complete savepoint"):
        spark_ckpt.savepoint(str(target)).record()
    spark_ckpt.savepoint(str(path)).copy(str(target))
    assert spark_ckpt.savepoint(str(target)).verify() == []
    assert files(path) == before


def test_nothing_but_a_savepoint_is_ever_removed(root: Path) -> None:
    job = WholeJob(root)
    for folder in (root, root / "jobs", job.folder, job.folder / "state/counts", root / "sinks", root / "nowhere"):
        before = files(root)
        result = command("dispose", folder, "--force")
        assert (result.exit_code, "expected a savepoint" in result.output) == (1, True)
        assert files(root) == before
    (root / "savepoints/one/notes.txt").write_text("mine")
    assert command("dispose", root / "savepoints/one").exit_code == 0
    assert files(root / "savepoints") == {"one/notes.txt": b"mine"}


def test_a_removed_savepoint_leaves_its_folder_to_the_next_one_and_its_jobs_alone(root: Path, tmp_path: Path) -> None:
    path = root / "savepoints/one"
    other = WholeJob(tmp_path / "other")
    other.start(restore=str(path))
    other.step(True)
    assert json.loads(command("dispose", path, "--json").output) == {"removed": str(path)}
    assert not path.exists()
    again = WholeJob(tmp_path / "other")
    again.start(restore=str(path))  # as its command says for ever
    again.step(True)
    assert again.job.verify() == []
    job = WholeJob(root)
    job.start()
    job.step(True, savepoint=str(path))
    assert spark_ckpt.savepoint(str(path)).record().checkpoint == 4


PLACES = [
    "dispose claimed",
    "savepoint removed",
    "manifests removed",
    "state removed",
    "sources removed",
    "uses removed",
]


@pytest.mark.parametrize("place", PLACES)
def test_a_removal_that_is_killed_is_whole_or_no_savepoint_and_the_same_command_goes_on(root: Path, place: str) -> None:
    path = root / "savepoints/one"
    (path / "claim.json").unlink()  # as of an older release
    with killed_at(place), pytest.raises(Killed):
        spark_ckpt.savepoint(str(path)).dispose()
    if (path / "savepoint.json").exists():
        assert spark_ckpt.savepoint(str(path)).verify() == []
    with pytest.raises(InvalidInputError, match="choose an empty folder"):
        WholeJob(root).job.savepoint(str(path), checkpoint=3)
    assert command("dispose", path).exit_code == 0
    assert not path.exists()


def test_a_removal_that_is_killed_ahead_of_its_empty_folder_removes_it_when_it_is_done_again(root: Path) -> None:
    path = root / "savepoints/one"
    with killed_at("savepoint's claim removed"), pytest.raises(Killed):
        spark_ckpt.savepoint(str(path)).dispose()
    assert list(path.iterdir()) == []
    assert command("dispose", path).exit_code == 0
    assert not path.exists()


def test_an_unfinished_savepoint_is_removed_by_force_only(root: Path) -> None:
    target = root / "copies/two"
    with killed_at("state copied"), pytest.raises(Killed):
        spark_ckpt.savepoint(str(root / "savepoints/one")).copy(str(target))
    refused = command("dispose", target)
    assert (refused.exit_code, "--force" in refused.output) == (1, True)
    assert command("dispose", target, "--force").exit_code == 0
    assert not target.exists()


# --- who stands on it ---------------------------------------------------------------------------------------------


def test_a_savepoint_stays_while_a_job_that_began_with_it_has_no_checkpoint_of_its_own(
    root: Path, tmp_path: Path
) -> None:
    path, other = root / "savepoints/one", WholeJob(tmp_path / "other")
    other.start(restore=str(path))
    other.step(False)
    refused = command("dispose", path, columns=500)
    assert refused.exit_code == 1
    assert f"stood on by the job in {other.folder}, which began with it at 20" in refused.output
    assert spark_ckpt.savepoint(str(path)).verify() == []
    other.step(True)
    assert command("dispose", path).exit_code == 0
    assert not path.exists()


def test_a_start_that_is_killed_in_the_import_stands_on_its_savepoint_until_its_folder_is_gone(
    root: Path, tmp_path: Path
) -> None:
    path, other = root / "savepoints/one", WholeJob(tmp_path / "other")
    with killed_at("savepoint told of its use"), pytest.raises(Killed):
        other.start(restore=str(path))
    with pytest.raises(InvalidInputError, match="stood on by"):
        spark_ckpt.savepoint(str(path)).dispose()
    shutil.rmtree(other.folder)
    spark_ckpt.savepoint(str(path)).dispose()
    assert not path.exists()


class ByText(WholeJob):
    """The query has another key, so a start is refused."""

    topology = replace(TOPOLOGY, operators={UID: {**TOPOLOGY.operators[UID], "keys": "text"}})


def test_a_start_that_is_refused_behind_its_import_does_not_stand_on_the_savepoint(root: Path, tmp_path: Path) -> None:
    path, here = root / "savepoints/one", tmp_path / "other"
    other = WholeJob(here)
    with pytest.raises(TopologyError):
        ByText(here).start(restore=str(path))
    assert list((path / "uses").glob("*")) == []
    other.start(restore=str(path))
    with pytest.raises(TopologyError):
        ByText(here).start(restore=str(path))
    with pytest.raises(InvalidInputError, match="stood on by"):
        spark_ckpt.savepoint(str(path)).dispose()  # by the start before
    other.start(restore=str(path))
    other.step(True)
    spark_ckpt.savepoint(str(path)).dispose()
    assert not path.exists()


def test_a_start_that_fails_in_its_import_does_not_stand_on_the_savepoint(root: Path, tmp_path: Path) -> None:
    path = root / "savepoints/one"
    for file in (path / "state").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(CkptError):
        WholeJob(tmp_path / "other").start(restore=str(path))
    spark_ckpt.savepoint(str(path)).dispose()
    assert not path.exists()


def test_who_may_stand_on_a_savepoint_and_cannot_be_asked_keeps_it_but_for_force(root: Path, tmp_path: Path) -> None:
    path, other = root / "savepoints/one", WholeJob(tmp_path / "other")
    other.start(restore=str(path))
    other.step(True)
    (use,) = (path / "uses").iterdir()
    use.write_bytes(use.read_bytes()[:-9])
    with pytest.raises(InvalidInputError, match="cannot be read"):
        spark_ckpt.savepoint(str(path)).dispose()
    spark_ckpt.savepoint(str(path)).dispose(force=True)
    assert not path.exists()


def test_a_savepoint_that_cannot_be_written_is_restored_all_the_same(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, written = root / "savepoints/one", RecordStore.replace

    def refused(store: RecordStore, name: str, *more: Any, **named: Any) -> None:
        if store.url == str(path):
            raise StorageNotWritableError("read-only")
        written(store, name, *more, **named)

    monkeypatch.setattr(RecordStore, "replace", refused)
    assert restored(tmp_path / "other", path) == COUNTS
    assert not (path / "uses").exists()


def test_a_savepoint_that_another_job_stands_on_is_not_removed_by_who_claims_it(root: Path, tmp_path: Path) -> None:
    path, other = root / "savepoints/one", WholeJob(tmp_path / "other")
    other.start(restore=str(path))
    assert claiming(tmp_path / "third", path).counts == COUNTS
    assert spark_ckpt.savepoint(str(path)).verify() == []
    other.step(True)
    claiming(tmp_path / "third", path)
    assert not path.exists()


# --- claimed by a start -------------------------------------------------------------------------------------------


def claiming(folder: Path, savepoint: Path) -> WholeJob:
    job = WholeJob(folder, **{"restore.mode": "claim"})
    job.start(restore=str(savepoint))
    return job


def test_a_claimed_savepoint_is_the_jobs_and_goes_when_the_job_has_all_of_it(root: Path, tmp_path: Path) -> None:
    path = root / "savepoints/one"
    job = claiming(tmp_path / "other", path)
    assert not path.exists()
    assert job.counts == COUNTS
    assert job.job.verify() == []
    again = claiming(tmp_path / "other", path)  # ahead of the first batch; as its command says for ever
    assert again.counts == COUNTS
    again.step(True)
    last = claiming(tmp_path / "other", path)
    assert sum(last.counts.values()) == 3 * 7
    assert last.job.verify() == []


def test_a_savepoint_that_another_job_wrote_where_one_was_claimed_is_left_alone(root: Path, tmp_path: Path) -> None:
    path = root / "savepoints/one"
    claiming(tmp_path / "other", path).step(True)
    WholeJob(root).job.savepoint(str(path), checkpoint=3)
    before = files(path)
    assert sum(claiming(tmp_path / "other", path).counts.values()) == 3 * 7
    assert files(path) == before


@pytest.mark.parametrize("place", ["before WriteGeneration", "after WriteGeneration", "savepoint of a claim", *PLACES])
def test_a_claim_that_is_killed_loses_nothing_and_the_same_command_goes_on(
    root: Path, tmp_path: Path, place: str
) -> None:
    path = root / "savepoints/one"
    with killed_at(place), pytest.raises(Killed):
        claiming(tmp_path / "other", path)
    if place == "before WriteGeneration":
        assert spark_ckpt.savepoint(str(path)).verify() == []
    job = claiming(tmp_path / "other", path)
    assert job.counts == COUNTS
    assert not path.exists()
    job.step(True)
    assert job.job.verify() == []


def test_a_refused_start_claims_nothing(root: Path, tmp_path: Path) -> None:
    path, other = root / "savepoints/one", WholeJob(tmp_path / "other", **{"restore.mode": "claim"})
    other.topology = replace(other.topology, key_groups=7)
    with pytest.raises(TopologyError):
        other.start(restore=str(path))
    assert spark_ckpt.savepoint(str(path)).verify() == []


# --- of a job that does not run ----------------------------------------------------------------------------------


def test_a_savepoint_of_a_stopped_job_is_refused_at_once_with_the_command_that_takes_one(root: Path) -> None:
    result = command("savepoint", root / "jobs", JOB, root / "new", columns=500)
    assert result.exit_code == 1
    assert "savepoint DIR JOB PATH --from 3`" in result.output
    assert not (root / "new").exists()
    assert WholeJob(root).job.records.store.names("requests") == []


@pytest.mark.parametrize("checkpoint", [1, 3])
def test_a_retained_checkpoint_becomes_a_savepoint_without_the_job(root: Path, tmp_path: Path, checkpoint: int) -> None:
    before = files(root)
    done = command("savepoint", root / "jobs", JOB, root / "new", "--from", checkpoint)
    assert (done.exit_code, f"savepoint of checkpoint {checkpoint} is complete" in done.output) == (0, True)
    assert {n: c for n, c in files(root).items() if not n.startswith("new/")} == before
    assert spark_ckpt.savepoint(str(root / "new")).verify() == []
    assert sum(restored(tmp_path / "other", root / "new").values()) == 7 * checkpoint


def test_a_checkpoint_whose_rows_wait_in_a_sink_becomes_no_savepoint(root: Path) -> None:
    job = WholeJob(root)
    (job.folder / "committed/0000000003.json").unlink()
    with pytest.raises(InvalidInputError, match=r"sinks \['appended', 'merged'\] may lack its rows.*checkpoint 1"):
        job.job.savepoint(str(root / "new"), checkpoint=3)
    assert not (root / "new").exists()
    for sink in ("appended", "merged"):
        job.job.abandon(3, sink)
    job.job.savepoint(str(root / "new"), checkpoint=3)


@pytest.mark.parametrize("place", ["before the claim", "savepoint claimed", "state copied"])
def test_a_savepoint_of_a_retained_checkpoint_that_is_killed_is_finished_by_the_same_command(
    root: Path, place: str
) -> None:
    job = WholeJob(root).job
    before = files(root / "jobs")
    with killed_at(place), pytest.raises(Killed):
        job.savepoint(str(root / "new"), checkpoint=3)
    job.savepoint(str(root / "new"), checkpoint=3)
    assert spark_ckpt.savepoint(str(root / "new")).verify() == []
    assert files(root / "jobs") == before


def test_a_checkpoint_that_is_not_retained_is_refused_with_those_that_are(root: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"no checkpoint 9.*it retains \[1, 3\]"):
        WholeJob(root).job.savepoint(str(root / "new"), checkpoint=9)


def test_what_is_no_savepoint_is_told_by_every_command(root: Path) -> None:
    for line in (["describe", root], ["verify", root], ["copy", root, root / "x"], ["dispose", root]):
        result = command(*line)
        assert (result.exit_code, "savepoint in" in result.output) == (1, True)
    with pytest.raises(CkptError, match="complete savepoint"):
        spark_ckpt.savepoint(str(root)).describe()


# --- what a plan shows --------------------------------------------------------------------------------------------


def test_a_plan_shows_rows_of_what_would_be_lost_only_if_asked_and_records_none(root: Path, tmp_path: Path) -> None:
    path = str(root / "savepoints/one")
    here, other = WholeJob(root), WholeJob(tmp_path / "other", allowNonRestoredState="true")
    for job, restore in ((here, "auto"), (other, path)):
        job.topology = replace(job.topology, operators={})
        asked = job.plan(restore, "empty")
        plain, shown = dry_run(asked), dry_run(asked, samples=3)
        assert (plain.samples, plain.changes) == ({}, ("counts",))
        assert plain == shown, "they are no part of what is approved"
        assert "counts, as it is" not in str(plain)
        rows = shown.samples["counts"]
        assert len(rows) == 3
        counts = COUNTS if job is other else {0: 5, 1: 4, 2: 4, 3: 4, 4: 4}
        assert set(rows) <= {f"k={k}, n={n}" for k, n in counts.items()}
        assert all(f"counts, as it is: {row}" in str(shown) for row in rows)


def test_the_command_shows_rows_of_what_the_waiting_start_would_lose(root: Path) -> None:
    job = WholeJob(root)
    job.start()
    job.topology = replace(job.topology, operators={})
    told = dry_run(job.plan("3", "empty"), samples=2)
    assert told.samples
    job.records.write_plan(job.run.generation, replace(told, samples={}))
    shown = command("plan", root / "jobs", JOB, "--samples", 2)
    assert shown.output.count("counts, as it is: k=") == 2
    assert "as it is" not in command("plan", root / "jobs", JOB).output
