"""A job that starts anew under an old name: its ids begin at 1 again, and no sink takes its rows for committed ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.dataset as ds
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

import spark_ckpt.sinks.memory
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.storage.job_paths import id_name
from tests.spark.conftest import DEADLINE_S

Rows = list[tuple[str, int]]


class Everywhere:
    """One query into every kind of sink, appending and merging."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        url = f"sqlite:///{folder}/out.db"
        self._sinks: list[tuple[str, dict[str, str]]] = [
            ("delta", {"path": f"{folder}/appended"}),
            ("delta", {"path": f"{folder}/merged", "mergeKeys": "k", "uid": "merged"}),
            ("sql", {"url": url, "table": "appended"}),
            ("sql", {"url": url, "table": "merged", "mergeKeys": "k", "uid": "upserted"}),
            ("files", {"path": f"{folder}/files"}),
            ("memory", {"path": f"{folder}/memory"}),
        ]

    def run(self, df: Any, **options: str) -> Any:
        (first, own), *others = self._sinks
        writer = df.writeStream.format(first).options(**own).queryName("orders").options(**options)
        for name, more in others:
            writer = writer.alsoTo(name, **more)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S)
        return query

    def check(self, appended: Rows, merged: Rows) -> None:
        assert self._delta("appended") == self._sql("appended") == self._files() == self._memory() == sorted(appended)
        assert self._delta("merged") == self._sql("merged") == sorted(merged)

    def _delta(self, name: str) -> Rows:
        return _sorted(DeltaTable(f"{self.folder}/{name}").to_pyarrow_table().to_pylist())

    def _sql(self, name: str) -> Rows:
        with sa.create_engine(f"sqlite:///{self.folder}/out.db", poolclass=sa.NullPool).connect() as connection:
            return _sorted([dict(r) for r in connection.execute(sa.text(f"select k, v from {name}")).mappings()])

    def _files(self) -> Rows:
        return _sorted(ds.dataset(f"{self.folder}/files", format="parquet").to_table().to_pylist())

    def _memory(self) -> Rows:
        return _sorted(spark_ckpt.sinks.memory.read(f"{self.folder}/memory").to_pylist())


def _sorted(rows: list[dict[str, Any]]) -> Rows:
    return sorted((row["k"], row["v"]) for row in rows)


def _remove(folder: Path) -> None:
    """Again while a process of the query that has ended still says there that it lives."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def out(tmp_path: Path) -> Everywhere:
    return Everywhere(tmp_path)


def test_a_job_whose_folder_was_removed_writes_all_its_rows_again(ckpt: Any, new_input: Any, out: Everywhere) -> None:
    """In the same session, whose Python processes remember the first life."""
    data = new_input("data", "k string, v long")
    data.add(("a", 1), ("b", 2))
    data.add(("a", 3))
    first = out.run(data.stream(ckpt))
    out.check([("a", 1), ("a", 3), ("b", 2)], [("a", 3), ("b", 2)])
    _remove(out.folder / "jobs")
    data.add(("c", 4))
    second = out.run(data.stream(ckpt))
    assert [c["id"] for c in second.checkpoints()] == [1]
    assert second.generation > first.generation
    out.check([*[("a", 1), ("a", 3), ("b", 2)] * 2, ("c", 4)], [("a", 3), ("b", 2), ("c", 4)])
    data.add(("c", 5))
    third = out.run(data.stream(ckpt))
    assert [c["start"] for c in third.checkpoints()] == [1, 2]
    out.check([*[("a", 1), ("a", 3), ("b", 2)] * 2, ("c", 4), ("c", 5)], [("a", 3), ("b", 2), ("c", 5)])


def test_ids_go_on_after_the_checkpoints_were_deleted(ckpt: Any, new_input: Any, out: Everywhere) -> None:
    data = new_input("data", "k string, v long")
    data.add(("a", 1))
    for n in (1, 2, 3):
        query = out.run(data.stream(ckpt), retention="delete")
        query.stop()
        assert not (out.folder / "jobs/orders/state").exists()
        assert [c["id"] for c in query.checkpoints()] == list(range(1, n + 1))
        out.check([("a", 1)] * n, [("a", 1)])


@pytest.mark.soak
def test_two_jobs_of_one_name_in_two_folders_do_not_meet(ckpt: Any, new_input: Any, out: Everywhere) -> None:
    one, two = new_input("one", "k string, v long"), new_input("two", "k string, v long")
    both = {"jobs": one, "other-jobs": two}
    for n in (1, 2):
        for value, (folder, data) in enumerate(both.items()):
            data.add((folder, 10 * n + value))
            out.run(data.stream(ckpt), **{"spark.ckpt.dir": f"{out.folder}/{folder}"})
    appended = [("jobs", 10), ("jobs", 20), ("other-jobs", 11), ("other-jobs", 21)]
    out.check(appended, [("jobs", 20), ("other-jobs", 21)])


def test_a_savepoint_under_the_old_name_in_a_new_folder_goes_on(ckpt: Any, new_input: Any, out: Everywhere) -> None:
    data = new_input("data", "k string, v long")
    data.add(("a", 1))
    query = data.stream(ckpt).writeStream.format("delta").option("path", f"{out.folder}/appended").queryName("orders")
    running = query.start()
    running.checkpoint()
    running.stop(savepoint=f"{out.folder}/savepoint")
    _remove(out.folder / "jobs")
    data.add(("b", 2))
    out.run(data.stream(ckpt), restore=f"{out.folder}/savepoint")
    assert out._delta("appended") == [("a", 1), ("b", 2)]
    assert out._sql("appended") == [("b", 2)]


@pytest.mark.soak  # how it is known: tests/protocol/test_protocol_life.py
def test_a_job_of_before_lives_had_marks_goes_on(
    ckpt: Any, new_input: Any, out: Everywhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = new_input("data", "k string, v long")
    data.add(("a", 1), ("b", 2))
    with monkeypatch.context() as patch:
        patch.setattr("spark_ckpt.jobs.start.uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex="")))
        records = out.run(data.stream(ckpt)).job.records
    forget_lives(records)
    assert records.life() == ""
    records.store.delete(f"committed/{id_name(1)}")  # as if it had been killed in front of that
    data.add(("a", 3))
    second = out.run(data.stream(ckpt))
    assert [(c["id"], c["start"]) for c in second.checkpoints() if c["start"] == 2] == [(2, 2)]
    out.check([("a", 1), ("a", 3), ("b", 2)], [("a", 3), ("b", 2)])
    data.add(("c", 4))
    third = out.run(data.stream(ckpt), checkpointLocation=f"{out.folder}/elsewhere")
    out.check([("a", 1), ("a", 3), ("b", 2), ("c", 4)], [("a", 3), ("b", 2), ("c", 4)])
    assert third.job.records.life() == "", "sinks know what it committed under its bare name"


def forget_lives(records: JobRecords) -> None:
    """Records as they were written before they told of lives."""
    for folder, kind in {"generations": "generation", "checkpoints": "checkpoint"}.items():
        for name in records.store.names(folder):
            body = records.store.read(f"{folder}/{name}", kind)
            assert body is not None
            assert body.pop("life") == ""
            records.store.replace(f"{folder}/{name}", kind, body)
