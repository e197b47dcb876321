"""One file of a job's folder is damaged or gone: the job starts, or says how it does; nothing wrong is ever emitted."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from spark_ckpt.errors import CkptError, CorruptStorageError
from tests.storage.whole_job import WholeJob, finished

FAULTS: dict[str, Callable[[Path, random.Random], object]] = {
    "missing": lambda path, _: path.unlink(),
    "flipped": lambda path, rng: _flip(path, rng.randrange(path.stat().st_size), rng.randrange(8)),
    "cut": lambda path, rng: path.write_bytes(path.read_bytes()[: rng.randrange(1, path.stat().st_size)]),
    "empty": lambda path, _: path.write_bytes(b""),
    "other JSON": lambda path, _: path.write_bytes(b'[{"kind": 1}]\n'),
}
KINDS = ("job.json", "sinks.json", "generations", "checkpoints", "copies", "committed", "triggers", "aborted",
         "batches", "requests", "manifests", "state/counts/_ckpt", "state/counts/_delta_log",
         "state/counts/e")  # fmt: skip


def _flip(path: Path, place: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(bytes(data))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job in the middle of its life; sinks and records name no absolute path, so that it can be copied."""
    root = tmp_path_factory.mktemp("whole")
    finished(root)
    return root


def _files(root: Path, kind: str) -> list[Path]:
    jobs = root / "jobs" / "job"
    return sorted(p for p in jobs.rglob("*") if p.is_file() and str(p.relative_to(jobs)).startswith(kind))


@pytest.mark.parametrize("location", ["spark", "new"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["missing", "flipped"])
def test_a_job_goes_on_or_says_how_after_one_fault(
    whole: Path, tmp_path: Path, kind: str, fault: str, location: str
) -> None:
    """``location``: its own, or a new one, as after its loss."""
    for number, path in enumerate(_files(whole, kind)):
        _try(whole, tmp_path / str(number), path.relative_to(whole), fault, location)


def test_verify_reports_every_damage_and_nothing_else(whole: Path, tmp_path: Path) -> None:
    """Each kind of file, by its name."""
    root = tmp_path / "copy"
    shutil.copytree(whole, root)
    seen: list[str] = []
    assert WholeJob(root).job.verify(seen.append) == []
    for path in (_files(root, kind)[-1] for kind in KINDS if not kind.startswith("state/counts/_")):
        sound = path.read_bytes()
        path.write_bytes(sound[:-20])
        wrong = WholeJob(root).job.verify()
        assert len(wrong) == 1
        assert path.name in wrong[0]
        path.write_bytes(sound)


@pytest.mark.parametrize("location", ["spark", "new"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_lost_record_of_the_newest_checkpoint_costs_nothing(
    whole: Path, tmp_path: Path, fault: str, location: str
) -> None:
    root = tmp_path / "copy"
    shutil.copytree(whole, root)
    FAULTS[fault](_files(root, "checkpoints")[-1], random.Random(fault))
    job = WholeJob(root)
    _go_on(job, "auto", location)
    job.check(doubles=False)
    assert job.job.verify() == []


@pytest.mark.parametrize("location", ["spark", "new"])
def test_a_record_that_is_damaged_before_its_checkpoint_is_committed_costs_nothing(
    tmp_path: Path, location: str
) -> None:
    job = finished(tmp_path)
    job.records.store.delete(f"committed/{max(job.records.ids('committed')):010d}.json")  # as if stopped before it
    FAULTS["cut"](_files(tmp_path, "checkpoints")[-1], random.Random(0))
    job = WholeJob(tmp_path)
    _go_on(job, "auto", location)
    job.check(doubles=False)


def test_of_two_copies_of_a_lost_checkpoint_neither_is_believed(whole: Path, tmp_path: Path) -> None:
    """Another generation came to creating it, too, and was stopped there: which of the two did, cannot be told."""
    root = tmp_path / "copy"
    shutil.copytree(whole, root)
    record, copy = _files(root, "checkpoints")[-1], _files(root, "copies")[-1]
    record.write_bytes(b"")
    shutil.copy(copy, copy.with_name(copy.name.replace(copy.name[11:21], "0000000001")))
    job = WholeJob(root)
    with pytest.raises(CorruptStorageError, match=f"checkpoints/{int(record.stem)}") as told:
        job.start()
    assert _follow(job, str(told.value), "spark")
    job.check(doubles=True)


@pytest.mark.parametrize("lost", ["the last", "one before", "all"])
def test_a_missing_entry_of_a_state_tables_log_is_noticed_and_no_version_comes_to_mean_something_else(
    whole: Path, tmp_path: Path, lost: str
) -> None:
    """``verify`` names it; the next start begins the log anew, behind every version that a checkpoint recorded."""
    root = tmp_path / "copy"
    shutil.copytree(whole, root)
    log = sorted(_files(root, "state/counts/_delta_log"))
    gone = {"the last": log[-1:], "one before": log[-2:-1], "all": log}[lost]
    for path in gone:
        path.unlink()
    told = "".join(WholeJob(root).job.verify())
    assert gone[0].name in told or (lost == "all" and "found no Delta log" in told)
    before = {c.checkpoint: c.tables["counts"].version for c in WholeJob(root).job.completed()}
    job = WholeJob(root)
    _go_on(job, "auto", "spark")
    job.check(doubles=False)
    assert job.job.verify() == []
    for c in job.job.completed():
        version = c.tables["counts"].version
        assert version > max(before.values()) or before[c.checkpoint] == version
        counts = job.job.show(c.checkpoint).sources["rows"]["inner"]
        _check_version(job, version, counts, must=version > max(before.values()))


def test_an_entry_of_a_state_tables_log_that_is_removed_under_a_running_job_stops_it(
    whole: Path, tmp_path: Path
) -> None:
    root = tmp_path / "copy"
    shutil.copytree(whole, root)
    job = WholeJob(root)
    job.start()
    job.step(True)
    _files(root, "state/counts/_delta_log")[-1].unlink()
    with pytest.raises(CorruptStorageError, match="start the query again") as told:
        job.step(True)
    _follow(WholeJob(root), str(told.value), "spark")
    assert WholeJob(root).job.verify() == []


def _check_version(job: WholeJob, version: int, rows: int, must: bool) -> None:
    """A reader of ``version`` finds the state behind ``rows`` rows, or, unless it ``must``, nothing."""
    try:
        table = DeltaTable(str(job.folder / "state" / "counts"), version=version)
        found = pa.table(QueryBuilder().register("t", table).execute("SELECT k, n FROM t").read_all()).to_pylist()
    except DeltaError:
        assert not must
        return
    wanted = Counter(row % 5 for row in range(rows))
    assert {row["k"]: row["n"] for row in found} == wanted


@pytest.mark.soak
@pytest.mark.parametrize("location", ["spark", "new"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_job_goes_on_or_says_how_after_one_fault_anywhere(
    whole: Path, tmp_path: Path, kind: str, fault: str, location: str
) -> None:
    for path in _files(whole, kind):
        for seed in range(20 if fault in ("flipped", "cut") else 1):
            root = tmp_path / "copy"
            _try(whole, root, path.relative_to(whole), fault, location, seed)
            shutil.rmtree(root)


def _try(whole: Path, root: Path, path: Path, fault: str, location: str, seed: int = 0) -> None:
    shutil.copytree(whole, root)
    FAULTS[fault](root / path, random.Random(f"{path.name} {seed}"))
    job = WholeJob(root)
    try:
        _go_on(job, "auto", location)
        job.check(doubles=False)
        return
    except CkptError as error:
        advice = str(error)
    assert path.parent.name != "checkpoints", advice
    doubles = _follow(job, advice, location)
    job.check(doubles)


def _go_on(job: WholeJob, restore: str, location: str) -> None:
    job.start(restore, location)
    for checkpoint in (True, False, True):
        job.step(checkpoint)


def _follow(job: WholeJob, advice: str, location: str) -> bool:
    """Do what the message says, to the letter; returns whether it says that rows may be written twice."""
    if "start the query again" in advice.lower():
        _go_on(job, "auto", location)
        return False
    if "remove the file" in advice:
        found = re.search(r"(/\S+) is damaged", advice)
        assert found, advice
        Path(found[1]).unlink()
        _go_on(job, "auto", "spark")
        return False
    named = re.search(r"spark\.ckpt\.restore=(<id>|\d+)", advice)
    if named is None:
        assert "or to none" in advice, advice
        _go_on(job, "none", "another")
        return True
    ids = [str(c.checkpoint) for c in job.job.completed()] if named[1] == "<id>" else [named[1]]
    assert ids, advice
    refused: list[str] = []
    for number, restore in enumerate(reversed(ids)):
        try:
            _go_on(job, restore, f"another-{number}")
            return True
        except CkptError as error:
            refused.append(str(error))
    raise AssertionError(f"{advice}\n-- followed, but: {refused}")
