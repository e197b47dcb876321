"""Targets that a rollback sets back, and that others have changed meanwhile. No Spark."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks.base import TwoPhaseSink
from spark_ckpt.sinks.delta.sink import DeltaSink
from spark_ckpt.sinks.files import FilesSink
from spark_ckpt.sinks.iceberg.sink import IcebergSink
from spark_ckpt.sinks.noop import NoopSink
from spark_ckpt.sinks.sql.sink import SqlSink
from spark_ckpt.testing.sink_conformance import JOB, SCHEMA, SINK, permit, stage
from spark_ckpt.types import CheckpointId
from tests.sinks.iceberg_harness import catalog_of, catalog_options

ONE = CheckpointId(1)


def written(sink: TwoPhaseSink, *checkpoints: int) -> TwoPhaseSink:
    """One row for each of these."""
    sink.validate(SCHEMA)
    for k in checkpoints:
        sink.commit(permit(k), stage(sink, [(k, "mine")], k, k))
    return sink


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"{tmp_path}/table"


def keys_of(path: str) -> list[int]:
    found: list[int] = sorted(pa.table(DeltaTable(path).to_pyarrow_table())["k"].to_pylist())
    return found


def refused(sink: TwoPhaseSink, why: str) -> None:
    """Nothing is begun: a job whose rollback cannot be finished starts no more."""
    with pytest.raises(InvalidInputError, match=why):
        sink.to_undo(JOB, SINK, ONE)
    with pytest.raises(InvalidInputError, match=why):
        sink.roll_back(JOB, SINK, ONE)


def test_a_delta_table_does_not_go_back_to_files_that_were_vacuumed(path: str) -> None:
    sink = written(DeltaSink({"path": path, "mergeKeys": "k"}), 1)
    sink.commit(permit(2), stage(sink, [(1, "again")], 2, 2))
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    refused(sink, "file.*of version 1.*are gone, as behind a VACUUM")
    with pytest.raises(InvalidInputError, match="are gone"):
        sink.as_of(JOB, SINK, ONE)


def test_a_delta_table_does_not_go_back_to_a_version_whose_log_was_tidied_up(path: str) -> None:
    sink = written(DeltaSink({"path": path}), 1, 2)
    DeltaTable(path).create_checkpoint()
    os.remove(f"{path}/_delta_log/{0:020d}.json")
    refused(sink, "version 1.*cannot be opened any more")
    with pytest.raises(InvalidInputError, match="cannot be opened"):
        sink.as_of(JOB, SINK, ONE)


def test_a_delta_table_that_only_grows_does_not_go_back(path: str) -> None:
    sink = written(DeltaSink({"path": path}), 1, 2)
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"})
    refused(sink, "delta.appendOnly=true, and a rollback removes rows")
    assert keys_of(path) == [1, 2]


def test_columns_that_a_delta_table_loses_are_told(path: str) -> None:
    sink = written(DeltaSink({"path": path}), 1, 2)
    DeltaTable(path).alter.add_columns([Field("note", PrimitiveType("string"))])
    written(sink, 3)
    assert sink.to_undo(JOB, SINK, CheckpointId(2)).endswith("checkpoint(s) 3, back to version 3"), "it keeps them"
    assert "back to version 1, with the columns and properties that" in sink.to_undo(JOB, SINK, ONE)
    sink.roll_back(JOB, SINK, ONE)
    assert keys_of(path) == [1]


def test_a_delta_table_that_was_compacted_goes_back_and_forth(path: str) -> None:
    sink = written(DeltaSink({"path": path}), 1, 2, 3)
    DeltaTable(path).optimize.compact()
    sink.roll_back(JOB, SINK, ONE)
    written(sink, 4, 5)
    DeltaTable(path).optimize.compact()
    sink.roll_back(JOB, SINK, CheckpointId(4))
    assert keys_of(path) == [1, 4]
    assert sink.as_of(JOB, SINK, ONE).read().read_all()["k"].to_pylist() == [1]


@pytest.fixture
def iceberg(tmp_path: Path) -> dict[str, str]:
    return {**catalog_options(tmp_path), "table": "db.t"}


def expire(options: dict[str, str], *which: int) -> None:
    """pyiceberg makes one whose parent expired one without a parent."""
    table = catalog_of(options).load_table("db.t")
    ids = [table.metadata.snapshots[i].snapshot_id for i in which]
    table.maintenance.expire_snapshots().by_ids(ids).commit()


def test_what_an_iceberg_table_showed_before_its_oldest_snapshot_is_not_nothing(iceberg: dict[str, str]) -> None:
    sink = written(IcebergSink(iceberg), 1, 2, 3)
    expire(iceberg, 0)
    refused(sink, "expired, so what it showed at the checkpoint cannot be told")
    with pytest.raises(InvalidInputError, match="expired"):
        sink.as_of(JOB, SINK, ONE)
    assert sorted(sink.as_of(JOB, SINK, CheckpointId(2)).read().read_all()["k"].to_pylist()) == [1, 2]
    sink.roll_back(JOB, SINK, CheckpointId(2))
    assert sink.newest_checkpoint(JOB, SINK) == 2


def test_an_iceberg_table_does_not_go_back_to_files_that_are_gone(iceberg: dict[str, str]) -> None:
    sink = written(IcebergSink({**iceberg, "mergeKeys": "k"}), 1)
    (before,) = catalog_of(iceberg).load_table("db.t").inspect.files()["file_path"].to_pylist()
    sink.commit(permit(2), stage(sink, [(1, "again")], 2, 2))
    os.remove(before.removeprefix("file://"))
    refused(sink, "1 file.*which it had at the checkpoint, are gone")
    with pytest.raises(InvalidInputError, match="are gone"):
        sink.as_of(JOB, SINK, ONE)


def test_files_that_somebody_compacted_are_not_taken_for_removed(path: str) -> None:
    sink = written(FilesSink({"path": path, "fileFormat": "parquet"}), 1, 2, 3)
    found = sorted(Path(path).glob("*.parquet"))
    pq.write_table(pa.concat_tables([pq.read_table(f) for f in found[1:]]), f"{path}/compacted.parquet")
    for file in found[1:]:
        file.unlink()
    refused(sink, "2 file.*not there any more.*which files have their rows now")
    assert sink.as_of(JOB, SINK, ONE).read().read_all()["k"].to_pylist() == [1]
    with pytest.raises(InvalidInputError, match="not there any more"):
        sink.as_of(JOB, SINK, CheckpointId(3))


def test_files_of_a_rollback_that_was_killed_are_removed_by_the_next_one(path: str) -> None:
    sink = written(FilesSink({"path": path, "fileFormat": "parquet"}), 1, 2, 3)

    def killed(step: str) -> None:
        raise KeyboardInterrupt(step)

    sink.on_step = killed
    with pytest.raises(KeyboardInterrupt, match="files removed"):
        sink.roll_back(JOB, SINK, ONE)
    sink.on_step = None
    assert sink.newest_checkpoint(JOB, SINK) == 1
    assert sink.to_undo(JOB, SINK, ONE) == "2 file(s) of 2 checkpoint(s)"
    sink.roll_back(JOB, SINK, ONE)
    assert sink.to_undo(JOB, SINK, ONE) == ""
    assert len(list(Path(path).glob("part-*"))) == len(list(Path(path, "_manifests").iterdir())) == 1


def test_a_manifest_that_is_damaged_is_named(path: str) -> None:
    sink = written(FilesSink({"path": path, "fileFormat": "parquet"}), 1, 2)
    next(Path(path, "_manifests").glob("0000000002-*")).write_text("{torn")
    refused(sink, "_manifests/0000000002-.*is damaged")


@pytest.fixture
def sql(tmp_path: Path) -> dict[str, str]:
    return {"url": f"sqlite:///{tmp_path}/out.db", "table": "t", "checkpointColumn": "at"}


def executed(options: dict[str, str], *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(options["url"].removeprefix("sqlite:///"))) as db, db:
        for statement in statements:
            db.execute(statement)


def test_a_checkpoint_column_of_texts_is_refused_as_texts_have_another_order(sql: dict[str, str]) -> None:
    executed(sql, "CREATE TABLE t (k bigint, v text, at text)")
    with pytest.raises(InvalidInputError, match="'at' of option 'checkpointColumn' to be a bigint, found TEXT"):
        SqlSink(sql).validate(SCHEMA)


def test_rows_that_somebody_else_wrote_do_not_go_in_place_of_the_jobs(sql: dict[str, str]) -> None:
    sink = written(SqlSink(sql), 1, 2, 3)
    executed(sql, "DELETE FROM t WHERE at = 3", "INSERT INTO t VALUES (9, 'theirs', 7)")
    refused(sink, "checkpoint.s. 2, 7.*the ledger has 2 rows of this job, of checkpoint.s. 2, 3")


def test_rows_of_before_the_checkpoint_column_was_added_are_shown(sql: dict[str, str]) -> None:
    executed(sql, "CREATE TABLE t (k bigint, v text)", "INSERT INTO t VALUES (0, 'old')", "ALTER TABLE t ADD at bigint")
    sink = written(SqlSink(sql), 1, 2)
    assert sorted(sink.as_of(JOB, SINK, ONE).read().read_all()["k"].to_pylist()) == [0, 1]


def test_rows_of_later_checkpoints_without_the_column_are_not_taken_for_older_ones(sql: dict[str, str]) -> None:
    before = written(SqlSink({k: v for k, v in sql.items() if k != "checkpointColumn"}), 1, 2)
    executed(sql, "ALTER TABLE t ADD at bigint")
    sink = written(SqlSink(sql), 3)
    with pytest.raises(InvalidInputError, match="somebody else writes there"):
        sink.as_of(JOB, SINK, ONE)
    assert before.newest_checkpoint(JOB, SINK) == 3
    assert len(sink.as_of(JOB, SINK, CheckpointId(2)).read().read_all()) == 2


def test_a_table_without_rows_still_has_its_columns(sql: dict[str, str]) -> None:
    sink = written(SqlSink(sql), 3)
    assert sink.as_of(JOB, SINK, ONE).read().read_all().column_names == SCHEMA.names


def test_a_sink_that_keeps_nothing_is_in_no_rollbacks_way() -> None:
    assert NoopSink({}).to_undo(JOB, SINK, ONE) == ""
    NoopSink({}).roll_back(JOB, SINK, ONE)
