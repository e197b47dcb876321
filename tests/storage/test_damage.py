"""One file of a job's folder is damaged or gone: the job starts, or says how it does; nothing wrong is ever emitted."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_ckpt.errors import CkptError
from tests.storage.whole_job import WholeJob, finished

FAULTS: dict[str, Callable[[Path, random.Random], object]] = {
    "missing": lambda path, _: path.unlink(),
    "flipped": lambda path, rng: _flip(path, rng.randrange(path.stat().st_size), rng.randrange(8)),
    "cut": lambda path, rng: path.write_bytes(path.read_bytes()[: rng.randrange(1, path.stat().st_size)]),
    "empty": lambda path, _: path.write_bytes(b""),
    "other JSON": lambda path, _: path.write_bytes(b'[{"kind": 1}]\n'),
}
KINDS = ("job.json", "sinks.json", "generations", "checkpoints", "committed", "triggers", "aborted", "batches",
         "requests", "manifests", "state/counts/_ckpt", "state/counts/_delta_log", "state/counts/e")  # fmt: skip


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
