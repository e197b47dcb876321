"""The checkpoint history table."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import spark_ckpt
from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.storage import history as module
from spark_ckpt.storage.history import LATER, SCHEMA, History, HistoryRow, UidSize
from spark_ckpt.storage.history_repair import rebuild_history
from tests.storage.whole_job import WholeJob


def _row(id_: int, outcome: str = "completed") -> HistoryRow:
    return HistoryRow(
        id_,
        "checkpoint",
        outcome,
        triggered_ms=1_700_000_000_123 + id_,
        generation=2,
        batch=id_ * 3,
        reason=None if outcome == "completed" else "declined by 'totals': buffer full",
        completed_ms=1_700_000_000_623 + id_ if outcome == "completed" else None,
        commit_ms=20,
        alignment_ms=7,
        held_back_bytes=100,
        written_bytes=5000,
        written_rows=40,
        keys=30,
        state={"totals": UidSize(20, 4000, 3), "alerts": UidSize(10, 1000, 1)},
    )


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "history")


def test_nothing_recorded_reads_as_nothing(url: str) -> None:
    assert History(url).read() == []


def test_rows_read_back_in_the_order_of_checkpoints(url: str) -> None:
    history = History(url)
    rows = [_row(2), _row(1, "expired"), _row(3)]
    assert [history.append(row) for row in rows] == [True, True, True]
    assert history.read() == History(url).read() == sorted(rows, key=lambda row: row.id)


def test_a_checkpoint_is_recorded_once(url: str) -> None:
    History(url).append(_row(1))
    assert not History(url).append(_row(1))
    again = History(url)
    again.append(_row(257))  # the same slot
    assert not again.append(_row(1))
    assert not again.append(_row(257))
    assert [row.id for row in again.read()] == [1, 257]


def test_processes_that_take_turns_lose_no_row(url: str) -> None:
    """The commit's process records what completed, the first source's what it gave up."""
    commit, source = History(url), History(url)
    for id_ in range(1, 9, 2):
        commit.append(_row(id_))
        source.append(_row(id_ + 1, "expired"))
    assert [row.id for row in History(url).read()] == list(range(1, 9))
    assert not source.append(_row(7))
    assert DeltaTable(url).version() == 8


def test_a_halted_driver_that_moves_on_does_not_record_what_its_successor_did(url: str) -> None:
    halted, successor = History(url), History(url)
    halted.append(_row(1))
    successor.append(_row(2))
    assert not halted.append(_row(2))
    assert halted.append(_row(3))
    assert [row.id for row in History(url).read()] == [1, 2, 3]


def test_of_two_that_record_a_checkpoint_at_the_same_time_one_does(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = History(url), History(url)
    one.append(_row(1))
    put = one._log.put
    monkeypatch.setattr(one._log, "put", lambda *args, **kwargs: (other.append(_row(2)), put(*args, **kwargs))[1])
    assert not one.append(_row(2))
    assert [row.id for row in History(url).read()] == [1, 2]


def test_a_history_that_was_removed_begins_anew(url: str) -> None:
    history = History(url)
    history.append(_row(1))
    shutil.rmtree(url)
    assert history.append(_row(2))
    assert history.append(_row(3))
    assert [row.id for row in History(url).read()] == [2, 3]


def test_log_entries_of_more_than_an_hour_ago_go_with_the_small_files(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPACT_VERSIONS", 5)
    history = History(url)
    for k in range(1, 7):
        history.append(_row(k))
    two_hours_ago = time.time() - 7_200
    for entry in Path(url, "_delta_log").glob("*.json"):
        os.utime(entry, (two_hours_ago, two_hours_ago))
    for k in range(7, 13):
        history.append(_row(k))
    assert [row.id for row in History(url).read()] == list(range(1, 13))
    assert min(int(entry.stem) for entry in Path(url, "_delta_log").glob("*.json")) >= 5


def test_small_files_become_one_and_nothing_is_lost(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_VERSIONS", 5)
    history = History(url)
    for number in range(1, 13):
        history.append(_row(number))
    assert [row.id for row in History(url).read()] == list(range(1, 13))
    assert not History(url).append(_row(3))
    assert len(DeltaTable(url).file_uris()) < 8


def _damages(url: str) -> dict[str, Callable[[], object]]:
    log, table = Path(url) / "_delta_log", Path(url)
    data = [*sorted(table.glob("*.parquet")), table]
    newest = max(log.glob("*.json"), default=log)
    return {
        "log entry missing": (log / f"{1:020d}.json").unlink,
        "log entry cut": lambda: newest.write_bytes(newest.read_bytes()[:-40]),
        "log entry empty": lambda: newest.write_bytes(b""),
        "log entry other JSON": lambda: newest.write_bytes(b"[1]\n"),
        "log gone": lambda: shutil.rmtree(log),
        "data missing": data[0].unlink,
        "data cut": lambda: data[0].write_bytes(data[0].read_bytes()[:-9]),
        "a file in its place": lambda: (shutil.rmtree(table), table.write_text("")),
    }


@pytest.mark.parametrize("damage", _damages("x"))
def test_a_damaged_history_stops_nothing_and_is_repaired(url: str, damage: str, caplog: Any) -> None:
    writer = History(url)
    for id_ in range(1, 5):
        writer.append(_row(id_))
    _damages(url)[damage]()
    module._warned.clear()
    for job in (writer, History(url)):
        for id_ in range(5, 7):
            job.record(_row(id_))
    assert len([r for r in caplog.records if "repair-history" in r.message]) <= 1
    if damage == "a file in its place":
        Path(url).unlink()
    told = [_row(id_) for id_ in (4, 6)]  # what the records still know
    rows = rebuild_history(url, told)
    repaired = History(url).read()
    assert len(repaired) == rows
    assert {r.id for r in told} <= {r.id for r in repaired} <= set(range(1, 7))
    if damage.startswith("log"):
        assert {1, 2, 3, 4} <= {r.id for r in repaired}
    assert all(row == _row(row.id) for row in repaired)
    assert not History(url).append(_row(6))
    assert History(url).append(_row(7))
    assert [r.id for r in History(url).read()][-1] == 7
    assert rebuild_history(url, told) == rows + 1


def test_a_damaged_history_is_named_when_it_is_read(url: str) -> None:
    History(url).append(_row(1))
    (Path(url) / "_delta_log" / f"{0:020d}.json").write_text("nothing")
    with pytest.raises(CorruptStorageError, match="spark-ckpt repair-history DIR JOB"):
        History(url).read()


def test_a_checkpoint_is_listed_when_it_is_committed_though_its_row_comes_later(tmp_path: Path) -> None:
    job = WholeJob(tmp_path, history="true")
    job.start()
    job.step(checkpoint=True)
    with_row = job.job.checkpoints()
    shutil.rmtree(job.folder / "history")
    for row in (job.job.checkpoints(), spark_ckpt.job(str(tmp_path / "jobs"), job.folder.name).checkpoints()):
        assert [r["id"] for r in row] == [1]
        measured = {"completed_ms": 0, "commit_ms": 0, "duration_ms": 0, "phases": {}}
        assert {**row[0], **measured} == {**with_row[0], **measured}


def test_a_job_that_keeps_no_history_has_none(tmp_path: Path) -> None:
    job = WholeJob(tmp_path, history="false")
    job.start()
    job.step(checkpoint=True)
    assert job.job.checkpoints() == spark_ckpt.job(str(tmp_path / "jobs"), job.folder.name).checkpoints() == []


def test_a_table_of_an_older_release_gets_the_columns_that_it_lacks(tmp_path: Path) -> None:
    older = pa.schema([f for f in SCHEMA if f.name not in LATER])
    DeltaTable.create(str(tmp_path / "history"), older, name="checkpoints")
    history = History(str(tmp_path / "history"))
    row = HistoryRow(1, "checkpoint", "completed", 1000, 1, 7, completed_ms=1500, phases={"driver": {"x_ms": 3}})
    assert history.append(row)
    assert history.append(replace(row, id=2, phases={}))
    assert [r.phases for r in History(str(tmp_path / "history")).read()] == [{"driver": {"x_ms": 3}}, {}]


def test_the_newest_rows_come_by_id_as_all_do(tmp_path: Path) -> None:
    history = History(str(tmp_path / "history"))
    for k in (1, 3, 2, 4):
        history.append(HistoryRow(k, "checkpoint", "completed", 1000 * k, 1, k, completed_ms=1000 * k + 5))
    assert [r.id for r in history.read()] == [1, 2, 3, 4]
    assert [r.id for r in history.read(newest=2)] == [3, 4]
    assert [r.id for r in history.read(checkpoint=2)] == [2]
    assert history.read(checkpoint=9) == []
