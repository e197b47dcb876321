"""The Delta source keeps the suite for sources: from the rows that are there, from a version, and as changes."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_ckpt.testing.source_conformance import SourceConformance, SourceTarget
from tests.sources.delta_tables import ID_V, HandMade, id_v


class DeltaTarget(SourceTarget):
    """Versions of two files with three rows each, and one row of the first file is dead."""

    rows_a_batch = 3

    def __init__(self, tmp_path: Path, **options: str) -> None:
        self.table = HandMade(tmp_path / "t")
        super().__init__("delta", {"path": str(tmp_path / "t"), "maxSplitBytes": "400", **options}, str(tmp_path / "m"))
        for _ in range(2):
            self.add()

    def add(self) -> bool:
        first = self.table.files * 3
        one, two = (self.table.add(id_v(range(n, n + 3))) for n in (first, first + 3))
        if self.table.version == 0:
            one = self.table.with_vector(one, [1])
        self.table.commit(one, two)
        self.table.commit(self.table.metadata(*ID_V), operation="SET TBLPROPERTIES")  # a version without rows
        return True

    def expected(self) -> list[tuple[Any, ...]]:
        return [(n, f"text {n}") for n in range(self.table.files * 3) if n != 1]


class TestFromAllRows(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SourceTarget:
        return DeltaTarget(tmp_path, maxFilesPerTrigger="1")


class TestFromAVersion(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SourceTarget:
        return DeltaTarget(tmp_path, startingVersion="0", maxFilesPerTrigger="1")


class TestByBytes(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SourceTarget:
        return DeltaTarget(tmp_path, startingTimestamp="1970-01-01", maxBytesPerTrigger="1")


class TestBehindACheckpoint(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SourceTarget:
        target = DeltaTarget(tmp_path, maxFilesPerTrigger="1")
        DeltaTable(target.table.path).create_checkpoint()
        for version in range(target.table.version):
            target.table.log(version).unlink()
        return target


class ChangesTarget(SourceTarget):
    """A version that adds three rows, one that deletes one of them, one that says that it updated another."""

    rows_a_batch = 3

    def __init__(self, tmp_path: Path, **options: str) -> None:
        self.table = HandMade(tmp_path / "t", enableChangeDataFeed="true")
        given = {"path": str(tmp_path / "t"), "readChangeFeed": "true", "maxFilesPerTrigger": "1", **options}
        super().__init__("delta", given, str(tmp_path / "m"))
        self.told: list[tuple[int, str, str, int]] = []
        self.add()

    def add(self) -> bool:
        table, n = self.table, self.table.files * 3
        there = table.add(id_v([n, n + 1, n + 2]))
        self._tell(table.commit(there), [(k, f"text {k}", "insert") for k in (n, n + 1, n + 2)])
        without = table.with_vector(there, [1])
        self._tell(table.commit(table.remove(there), without), [(n + 1, f"text {n + 1}", "delete")])
        told = [(n, f"text {n}", "update_preimage"), (n, f"new {n}", "update_postimage")]
        change = table.change(pa.Table.from_pylist([dict(zip(("id", "v", "_change_type"), row)) for row in told]))
        self._tell(table.commit(change, table.remove(without), table.add(id_v([n, n + 2], "new"))), told)
        return True

    def _tell(self, version: int, rows: list[tuple[int, str, str]]) -> None:
        self.told += [(*row, version) for row in rows]

    def expected(self) -> list[tuple[Any, ...]]:
        return [(*row, self._time(row[-1])) for row in self.told]

    def _time(self, version: int) -> dt.datetime:
        ms = self.table.log(version).stat().st_mtime_ns // 1_000_000
        return dt.datetime.fromtimestamp(ms / 1000, ZoneInfo("UTC"))


class TestChanges(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SourceTarget:
        return ChangesTarget(tmp_path, startingVersion="1")
