"""What one commit of a state table does and refuses."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_ckpt.errors import (
    CorruptStorageError,
    FencedError,
    InvalidInputError,
    ProtocolBugError,
    TopologyError,
)
from spark_ckpt.protocol.events import Flushed, GroupManifest, Run, StateFile
from spark_ckpt.storage._delta_log import DeltaLog
from spark_ckpt.storage.content import TableContent, named_files
from spark_ckpt.storage.deletion_vectors import encode_rows
from spark_ckpt.storage.manifest import StateManifest, read_manifest, write_manifest
from spark_ckpt.storage.record_store import RecordStore
from spark_ckpt.storage.run_files import write_run_file
from spark_ckpt.storage.state_table import StateTable, TableCommit
from tests.storage.state_job import SCHEMA, read_version, rows_table


@pytest.fixture
def table(tmp_path: Path) -> StateTable:
    made = StateTable(str(tmp_path / "u"), "u")
    made.create_if_absent(SCHEMA, "state of u")
    return made


def _file(table: StateTable, name: str, *keys: int) -> StateFile:
    return write_run_file(table.url, name, rows_table((k, name) for k in keys))


def _one_group(keys: int, *runs: Run) -> dict[int, GroupManifest]:
    return {0: GroupManifest(runs, keys)}


def _run(file: StateFile, epoch: int = 1) -> Run:
    return Run(file.file, 0, file.rows, epoch)


def _commit(
    table: StateTable, checkpoint: int, name: str, base: TableContent | None = None, generation: int = 1
) -> TableCommit:
    """A checkpoint whose whole state is one new file of two keys."""
    file = _file(table, name, 1, 2)
    flushed = [Flushed("u", checkpoint, (file,), {})]
    return table.commit("job/u", checkpoint, base, flushed, _one_group(2, _run(file)), generation)


def _actions(table: StateTable, version: int, kind: str) -> list[dict[str, Any]]:
    commit = DeltaLog(table.folder).read(version)
    assert commit is not None
    return [action[kind] for action in commit.actions if kind in action]


def test_committing_a_checkpoint_again_changes_nothing(table: StateTable) -> None:
    file = _file(table, "a.parquet", 1, 2, 3)
    flushed = [Flushed("u", 1, (file,), {"a.parquet": encode_rows([1])})]
    first = table.commit("job/u", 1, None, flushed, _one_group(2, _run(file)), 1)
    files = table.folder.names()
    again = StateTable(table.url, "u").commit("job/u", 1, None, flushed, _one_group(2, _run(file)), 2)
    assert again == first
    assert DeltaTable(table.url).version() == first.version == 1
    assert table.folder.names() == files


def test_another_attempt_at_a_committed_checkpoint_replaces_what_it_said(table: StateTable) -> None:
    lost = _commit(table, 1, "lost.parquet")
    done = _commit(StateTable(table.url, "u"), 1, "kept.parquet", generation=2)
    assert done.version == lost.version + 1
    assert set(done.content) == {"kept.parquet"}
    assert read_version(table.url, done.version) == [(1, "kept.parquet"), (2, "kept.parquet")]


def test_the_table_says_which_checkpoint_it_holds(table: StateTable) -> None:
    _commit(table, 41, "a.parquet")
    assert DeltaTable(table.url).transaction_version("job/u") == 41


def test_a_checkpoint_without_changes_still_gets_its_version(table: StateTable) -> None:
    first = _commit(table, 1, "a.parquet")
    groups = _one_group(2, Run("a.parquet", 0, 2, 1))
    second = table.commit("job/u", 2, first.content, [], groups, 1)
    assert (second.version, second.content) == (2, first.content)
    assert _actions(table, 2, "add") == _actions(table, 2, "remove") == []


def test_files_that_did_not_change_are_not_touched(table: StateTable) -> None:
    a, b = _file(table, "a.parquet", *range(10)), _file(table, "b.parquet", *range(10, 20))
    dead = {"a.parquet": encode_rows([0]), "b.parquet": encode_rows([0])}
    first = table.commit("job/u", 1, None, [Flushed("u", 1, (a, b), dead)], _one_group(18, _run(a), _run(b)))
    second = table.commit(
        "job/u",
        2,
        first.content,
        [Flushed("u", 2, (), {"b.parquet": encode_rows([1])})],
        _one_group(17, _run(a), _run(b)),
    )
    assert second.content["a.parquet"] == first.content["a.parquet"]
    assert [add["path"] for add in _actions(table, 2, "add")] == ["b.parquet"]
    (removed,) = _actions(table, 2, "remove")
    assert removed["deletionVector"] == _actions(table, 1, "add")[1]["deletionVector"]


def test_the_vectors_of_one_commit_are_in_one_file(table: StateTable) -> None:
    a, b = _file(table, "a.parquet", *range(10)), _file(table, "b.parquet", *range(10, 20))
    dead = {"a.parquet": encode_rows([0]), "b.parquet": encode_rows([0, 3])}
    done = table.commit("job/u", 1, None, [Flushed("u", 1, (a, b), dead)], _one_group(17, _run(a), _run(b)))
    assert len([n for n in table.folder.names() if n.endswith(".bin")]) == 1
    assert [k for k, _ in read_version(table.url, done.version)] == [*range(1, 10), 11, 12, *range(14, 20)]


def test_a_file_without_live_rows_leaves_the_table_and_stays_on_storage_while_a_run_names_it(
    table: StateTable,
) -> None:
    a = _file(table, "a.parquet", 1, 2)
    groups = _one_group(0, Run("a.parquet", 0, 2, 1, tombstones=True))
    done = table.commit("job/u", 1, None, [Flushed("u", 1, (a,), {"a.parquet": encode_rows([0, 1])})], groups)
    assert _actions(table, 1, "add") == []
    assert "a.parquet" in named_files(done.content)
    after = table.commit("job/u", 2, done.content, [], groups)  # the run is still there
    assert "a.parquet" in after.content
    assert "a.parquet" not in table.commit("job/u", 3, after.content, [], _one_group(0)).content


def test_rows_and_keys_that_do_not_add_up_commit_nothing(table: StateTable) -> None:
    file = _file(table, "a.parquet", 1, 2)
    with pytest.raises(ProtocolBugError, match="2 live rows: expected 3"):
        table.commit("job/u", 1, None, [Flushed("u", 1, (file,), {})], _one_group(3, _run(file)))
    assert DeltaTable(table.url).version() == 0
    assert [n for n in table.folder.names() if n.endswith(".bin")] == []


def test_a_run_of_a_file_that_nobody_flushed_commits_nothing(table: StateTable) -> None:
    with pytest.raises(ProtocolBugError, match=r"missing \['b\.parquet'\]"):
        table.commit("job/u", 1, None, [], _one_group(2, Run("b.parquet", 0, 2, 1)))
    assert DeltaTable(table.url).version() == 0


def test_a_dead_row_beyond_the_file_commits_nothing(table: StateTable) -> None:
    file = _file(table, "a.parquet", 1, 2)
    flushed = [Flushed("u", 1, (file,), {"a.parquet": encode_rows([2])})]
    with pytest.raises(ProtocolBugError, match="Row 2 of state file"):
        table.commit("job/u", 1, None, flushed, _one_group(1, _run(file)))


def test_an_older_generation_is_fenced(table: StateTable) -> None:
    zombie = StateTable(table.url, "u")
    base = _commit(table, 1, "a.parquet", generation=1).content
    _commit(StateTable(table.url, "u"), 2, "b.parquet", base, generation=2)
    with pytest.raises(FencedError, match="expected at most generation 1, checkpoint 2, found generation 2"):
        _commit(zombie, 2, "c.parquet", base, generation=1)


def test_within_a_generation_a_newer_checkpoint_fences_an_older_one(table: StateTable) -> None:
    base = _commit(table, 1, "a.parquet").content
    _commit(table, 3, "b.parquet", base)
    with pytest.raises(FencedError):
        _commit(table, 2, "c.parquet", base)


def test_a_version_that_an_older_generation_never_completed_is_no_fence(table: StateTable) -> None:
    base = _commit(table, 1, "a.parquet").content
    _commit(table, 3, "lost.parquet", base, generation=1)
    done = _commit(StateTable(table.url, "u"), 2, "b.parquet", base, generation=2)
    assert set(done.content) == {"b.parquet"}


def test_of_two_writers_at_once_both_get_a_version_of_their_own(tmp_path: Path) -> None:
    for round_ in range(5):
        table = StateTable(str(tmp_path / str(round_)), "u")
        table.create_if_absent(SCHEMA, "")
        with ThreadPoolExecutor(2) as pool:
            writers = [pool.submit(_commit, StateTable(table.url, "u"), 1, f"{name}.parquet") for name in ("a", "b")]
            done = [writer.result() for writer in writers]
        assert sorted(commit.version for commit in done) == [1, 2]
        for name, commit in zip(("a", "b"), done, strict=True):
            assert {v for _, v in read_version(table.url, commit.version)} == {f"{name}.parquet"}


def test_creating_at_once_makes_one_table(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda _: StateTable(str(tmp_path / "u"), "u").create_if_absent(SCHEMA, ""), range(4)):
            pass
    assert DeltaTable(str(tmp_path / "u")).version() == 0


def test_files_changed_by_somebody_else_are_noticed(table: StateTable) -> None:
    _commit(table, 1, "a.parquet")
    add = _actions(table, 1, "add")[0]
    DeltaLog(table.folder).put(2, [{"commitInfo": {"operation": "WRITE"}}, {"add": add | {"path": "other.parquet"}}])
    with pytest.raises(CorruptStorageError, match=r"written by someone else.*version 2"):
        _commit(StateTable(table.url, "u"), 2, "b.parquet")


def test_commits_of_somebody_else_that_change_no_files_are_passed_over(table: StateTable) -> None:
    base = _commit(table, 1, "a.parquet").content
    DeltaLog(table.folder).put(2, [{"commitInfo": {"operation": "SET TBLPROPERTIES", "userMetadata": "mine"}}])
    done = _commit(table, 2, "b.parquet", base)
    assert done.version == 3
    assert {v for _, v in read_version(table.url)} == {"b.parquet"}


def test_a_damaged_log_or_content_file_is_named(table: StateTable, tmp_path: Path) -> None:
    _commit(table, 1, "a.parquet")
    commit = tmp_path / "u" / "_delta_log" / f"{1:020d}.json"
    good = commit.read_text()
    commit.write_text(good[:50])
    with pytest.raises(CorruptStorageError, match=commit.name):
        StateTable(table.url, "u").head()
    commit.write_text(good)
    details = json.loads(json.loads(good.splitlines()[0])["commitInfo"]["userMetadata"])
    (content,) = [p for p in (tmp_path / "u" / "_ckpt").iterdir() if p.name == details["spark_ckpt"]["content"]]
    content.unlink()
    with pytest.raises(CorruptStorageError, match=f"{content.name} is missing"):
        StateTable(table.url, "u").head()


def test_content_files_do_not_pile_up(table: StateTable, tmp_path: Path) -> None:
    base = None
    for checkpoint in range(1, 8):
        base = _commit(table, checkpoint, f"{checkpoint}.parquet", base).content
    assert len(list((tmp_path / "u" / "_ckpt").iterdir())) == 2


def test_a_changed_schema_is_refused_and_a_fresh_start_takes_it(table: StateTable) -> None:
    _commit(table, 1, "a.parquet")
    other = SCHEMA.append(pa.field("extra", pa.float64()))
    with pytest.raises(TopologyError, match=r"expected k int64, .*found k int64, .*extra double"):
        StateTable(table.url, "u").create_if_absent(other, "")
    fresh = StateTable(table.url, "u")
    fresh.create_if_absent(other, "", reset=True)
    assert fresh.schema() == other
    assert [field.name for field in DeltaTable(table.url).schema().fields] == other.names
    assert read_version(table.url, 1) == [(1, "a.parquet"), (2, "a.parquet")]


def test_names_that_delta_cannot_store_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="'a b'"):
        StateTable(str(tmp_path / "u"), "u").create_if_absent(pa.schema([("a b", pa.int64())]), "")
    assert not (tmp_path / "u").exists()


def test_rolling_back_makes_the_head_the_completed_checkpoint_again(table: StateTable) -> None:
    first = _commit(table, 1, "a.parquet")
    _commit(table, 2, "lost.parquet", first.content)
    back = table.rollback("job/u", 1, first.content)
    assert (back.version, back.content) == (3, first.content)
    assert table.rollback("job/u", 1, first.content) == back
    assert read_version(table.url) == read_version(table.url, first.version)
    assert "lost.parquet" in table.gc(named_files(first.content))


def test_gc_leaves_young_files_alone_if_told_so(table: StateTable) -> None:
    _file(table, "orphan.parquet", 1)
    assert table.gc(set(), min_age_s=3600) == []
    assert table.gc(set()) == ["orphan.parquet"]


def test_a_state_file_is_never_overwritten(table: StateTable) -> None:
    _file(table, "a.parquet", 1)
    with pytest.raises(ProtocolBugError, match=r"a\.parquet exists"):
        _file(table, "a.parquet", 2)


def test_tables_on_a_file_system_that_delta_readers_do_not_know_work_the_same() -> None:
    table = StateTable(f"memory://{uuid.uuid4().hex}/u", "u")
    table.create_if_absent(SCHEMA, "")
    base: TableContent | None = None
    for checkpoint in range(1, 25):
        base = _commit(table, checkpoint, f"{checkpoint}.parquet", base).content
    assert StateTable(table.url, "u").head() == TableCommit(24, base or {})


def test_a_manifest_reads_back_and_says_if_it_is_missing_or_damaged(table: StateTable, tmp_path: Path) -> None:
    file = _file(table, "a.parquet", *range(9))
    groups = _one_group(8, _run(file)) | {1: GroupManifest((), 0, {"orders": 5})}
    done = table.commit("job/u", 3, None, [Flushed("u", 3, (file,), {"a.parquet": encode_rows([4])})], groups)
    manifest = StateManifest("u", 3, done.version, "{}", done.content, groups)
    store = RecordStore(str(tmp_path / "job"))
    path = write_manifest(store, manifest, "token")
    assert path == "manifests/u/0000000003-token.json"
    assert write_manifest(store, manifest, "token") == path
    assert read_manifest(store, path) == manifest
    assert manifest.keys == 8
    assert manifest.files == set(table.folder.names())
    store.delete(path)
    with pytest.raises(CorruptStorageError, match="missing"):
        read_manifest(store, path)
