"""The checkpoint history table."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_ckpt.storage import history as module
from spark_ckpt.storage.history import History, HistoryRow, UidSize


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


def test_small_files_become_one_and_nothing_is_lost(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_VERSIONS", 5)
    history = History(url)
    for number in range(1, 13):
        history.append(_row(number))
    assert [row.id for row in History(url).read()] == list(range(1, 13))
    assert not History(url).append(_row(3))
    assert len(DeltaTable(url).file_uris()) < 8
