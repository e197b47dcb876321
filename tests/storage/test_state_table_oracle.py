"""Random lives of a job: every recorded version must be the oracle's state, for a Delta reader and for lookups."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_ckpt.protocol.events import GroupManifest
from spark_ckpt.storage._savepoint_files import import_files
from spark_ckpt.storage.content import named_files
from spark_ckpt.storage.run_cache import RunCache
from spark_ckpt.storage.state_table import StateTable
from tests.storage.state_job import SCHEMA, Job, new_job, read_version

STEPS = 30


def _lived(tmp_path: Path, seed: int) -> Job:
    job = new_job(str(tmp_path / "state" / "u"), seed)
    for _ in range(STEPS):
        job.step()
    job.checkpoint()
    return job


def _looked_up(cache: RunCache, groups: dict[int, GroupManifest]) -> list[tuple[int, str]]:
    """What a lookup finds: for each key the row of the newest run that has it."""
    found: dict[int, str | None] = {}
    for group in groups.values():
        for run in group.runs:
            for row in cache.read(run).to_pylist():
                found[row["k"]] = None if run.tombstones else row["v"]
    return sorted((k, v) for k, v in found.items() if v is not None)


@pytest.mark.parametrize("seed", range(8))
def test_every_recorded_version_is_exactly_the_state_at_its_checkpoint(tmp_path: Path, seed: int) -> None:
    job = _lived(tmp_path, seed)
    cache = RunCache(job.table.url, str(tmp_path / "cache"), 2**20)
    for recorded in job.recorded:
        assert read_version(job.table.url, recorded.version) == recorded.rows
        assert _looked_up(cache, recorded.groups) == recorded.rows


@pytest.mark.parametrize("seed", [100, 101])
def test_gc_keeps_what_retained_checkpoints_and_the_head_name_and_nothing_else(tmp_path: Path, seed: int) -> None:
    job = _lived(tmp_path, seed)
    retained = job.recorded[-3:]
    live = set().union(*(named_files(recorded.content) for recorded in retained))
    job.batch()  # its file is named by nobody yet
    job.table.gc(live)
    assert job.table.gc(live) == []
    left = {n for n in job.table.folder.names() if n.endswith((".parquet", ".bin"))}
    assert left == live | named_files(job.table.head().content)
    for recorded in retained:
        assert read_version(job.table.url, recorded.version) == recorded.rows


@pytest.mark.parametrize("seed", [200, 201])
def test_versions_from_the_oldest_retained_on_survive_trimming_the_log(tmp_path: Path, seed: int) -> None:
    job = _lived(tmp_path, seed)
    while job.recorded[-1].version < 45:
        job.step()
    oldest = job.recorded[-2]
    assert job.table.trim_log(oldest.version)
    assert min(int(name[:20]) for name in job.table.folder.names("_delta_log") if name[0] == "0") in (20, 40)
    for recorded in job.recorded[-2:]:
        assert read_version(job.table.url, recorded.version) == recorded.rows
    job.restart(oldest)
    job.batch()
    assert read_version(job.table.url, job.checkpoint().version) == job.rows()


@pytest.mark.parametrize("seed", [300, 301])
def test_a_savepoint_is_a_plain_table_and_a_job_goes_on_from_it(tmp_path: Path, seed: int) -> None:
    job = _lived(tmp_path, seed)
    recorded = job.recorded[len(job.recorded) // 2]
    content, groups = job.table.export_savepoint(recorded.content, recorded.groups, str(tmp_path / "savepoint"))
    source = str(tmp_path / "savepoint" / "state" / "u")
    plain = DeltaTable(source).to_pyarrow_table().sort_by("k")  # refuses tables with deletion vectors
    assert list(zip(plain["k"].to_pylist(), plain["v"].to_pylist(), strict=True)) == recorded.rows
    assert not any(run.tombstones for group in groups.values() for run in group.runs)

    other = StateTable(str(tmp_path / "other" / "u"), "u")
    other.create_if_absent(SCHEMA, "")
    other.import_state(source, content, groups)
    import_files(other.folder, content, other.folder)  # again: nothing to do
    done = other.commit("other/u", recorded.checkpoint + 1, content, [], groups)
    assert read_version(other.url, done.version) == recorded.rows
    assert _looked_up(RunCache(other.url, str(tmp_path / "cache"), 2**20), groups) == recorded.rows


def test_a_savepoint_written_again_has_the_same_files_and_no_others(tmp_path: Path) -> None:
    job = _lived(tmp_path, 400)
    target = str(tmp_path / "savepoint")
    done = job.recorded[-1]
    first = job.table.export_savepoint(done.content, done.groups, target)
    table = tmp_path / "savepoint" / "state" / "u"
    for killed in ("_delta_log", sorted(first[0])[0]):  # as if it had been killed before it wrote this
        path = table / killed
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert job.table.export_savepoint(done.content, done.groups, target) == first
    assert read_version(f"{target}/state/u") == done.rows
    assert {n.name for n in table.glob("*.parquet")} == set(first[0])
    assert len(list((table / "_delta_log").glob("*.json"))) == 1
