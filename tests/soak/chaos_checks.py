"""What the job that is killed at scale must show: at any time nothing wrong, at the end everything and no more."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.dataset as ds
import sqlalchemy as sa
from deltalake import DeltaTable

from tests.kill.killed import JOB, KilledJob
from tests.soak.chaos_data import LATEST, Feed, latest

_BROKEN = re.compile(r".*(?<!except )(?:ProtocolBugError|CorruptStorageError|AssertionError)\b.*")
"""What no kill, pause, full disk or clock may lead to. A traceback may show the line that would have caught it."""


class ChaosJob(KilledJob):
    """All rows go to PostgreSQL, Delta and files; PostgreSQL has the last row of each group and source, too."""

    def __init__(self, folder: Path, database: str, feed: Feed) -> None:
        super().__init__(folder, database, "")
        self.feed = feed
        sql = {"url": database}
        self._sinks = [
            ("sql", {**sql, "table": "out"}),
            ("delta", {"path": f"{folder}/sinks/delta"}),
            ("files", {"path": f"{folder}/sinks/files"}),
            ("sql", {**sql, "table": "latest", "uid": "latest", "mergeKeys": "g,src", "columns": ",".join(LATEST)}),
        ]
        self._plan["sources"] = 2

    @property
    def sinks(self) -> list[tuple[str, dict[str, str]]]:
        return self._sinks

    def committed(self) -> int:
        """The newest committed checkpoint; 0 if there is none."""
        folder = self.folder / "jobs" / JOB / "committed"
        return max((int(p.stem) for p in folder.glob("*.json")), default=0)

    # -- at any time ---------------------------------------------------------------------------------------------

    def check_so_far(self) -> dict[str, int]:
        """Every row that a sink shows is right, and there once. Returns how many each has."""
        everything = self.feed.result().set_index("id", drop=False)
        counts = {}
        for name, rows in self._all_rows().items():
            assert rows["id"].is_unique, f"{name} has rows twice: {rows['id'][rows['id'].duplicated()].tolist()[:20]}"
            strange = set(rows["id"]) - set(everything.index)
            assert not strange, f"{name} has rows of no input: {sorted(strange)[:20]}"
            _same_cells(name, rows, everything.loc[sorted(rows["id"])])
            counts[name] = len(rows)
        return counts

    def check_said(self, said: str) -> None:
        broken = _BROKEN.search(said)
        assert broken is None, broken.group(0)[:2000]

    # -- at the end ----------------------------------------------------------------------------------------------

    def check_end(self) -> dict[str, int]:
        """Every sink equals the batch computation cell by cell, and after ``gc`` nothing else is left."""
        everything = self.feed.result()
        for name, rows in self._all_rows().items():
            _same_cells(name, rows, everything)
        _same_cells("latest", self._table("latest")[LATEST], latest(everything))
        assert self.job.verify() == []
        records = self.job.records
        orphans = set(records.ids("committed")) - set(records.ids("checkpoints"))
        assert not orphans, f"committed/ of checkpoints that are gone: {orphans}"
        self.collected = self.job.gc()
        assert self.job.verify() == []
        assert self.job.gc() == []
        self._check_left_over()
        return {"rows": len(everything), "cells": everything.size}

    def _check_left_over(self) -> None:
        self._delta_link()
        self.check_nothing_unnamed()
        self.check_no_secret()
        folder = self.folder / "sinks/files"
        assert [p.name for p in (folder / ".staging").iterdir()] == []
        manifests = [json.loads(p.read_text()) for p in (folder / "_manifests").iterdir()]
        assert sorted(f["file"] for m in manifests for f in m["files"]) == sorted(p.name for p in folder.glob("part-*"))
        history = Counter(row["id"] for row in self.job.checkpoints())
        assert max(history.values()) == 1, f"checkpoints recorded twice in the history: {history}"
        assert self.job.records.store.names("alive") == [], "heartbeats of drivers that are gone"

    def _delta_link(self) -> None:
        if not (self.folder / "delta").exists():
            (self.folder / "delta").symlink_to(self.folder / "sinks/delta")

    # -- reading -------------------------------------------------------------------------------------------------

    def _all_rows(self) -> dict[str, pd.DataFrame]:
        return {"sql": self._table("out"), "delta": self._delta(), "files": self._files()}

    def _table(self, name: str) -> pd.DataFrame:
        if not sa.inspect(self._engine).has_table(name):
            return _empty(self.feed)
        with self._engine.connect() as connection:
            return pd.read_sql_query(sa.text(f'select * from "{name}"'), connection)

    def _delta(self) -> pd.DataFrame:
        path = self.folder / "sinks/delta"
        if not (path / "_delta_log").exists():
            return _empty(self.feed)
        return DeltaTable(str(path)).to_pyarrow_table().to_pandas()

    def _files(self) -> pd.DataFrame:
        """As a reader of the folder sees it, hidden names left out."""
        parts = sorted((self.folder / "sinks/files").glob("part-*"))
        return ds.dataset(parts, format="parquet").to_table().to_pandas() if parts else _empty(self.feed)


def _empty(feed: Feed) -> pd.DataFrame:
    return feed.result().iloc[:0]


def _same_cells(name: str, rows: pd.DataFrame, want: pd.DataFrame) -> None:
    by: list[Any] = ["id"] if "n" in rows else ["g", "src"]
    found = rows.sort_values(by, ignore_index=True)
    expected = want.reset_index(drop=True).sort_values(by, ignore_index=True)
    assert len(found) == len(expected), f"{name}: expected {len(expected)} rows, found {len(found)}"
    pd.testing.assert_frame_equal(
        found[list(expected.columns)], expected, check_dtype=False, check_exact=True, obj=name
    )
