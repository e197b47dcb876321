"""What delta-spark reads on the JVM is what delta-rs reads and what the oracle says."""

from __future__ import annotations

import datetime
import decimal
import functools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from spark_ckpt.protocol.events import Flushed, GroupManifest, Run
from spark_ckpt.storage.deletion_vectors import encode_rows
from spark_ckpt.storage.history import History, HistoryRow, UidSize
from spark_ckpt.storage.run_files import write_run_file
from spark_ckpt.storage.state_table import StateTable
from tests.storage.delta_jars import delta_session
from tests.storage.state_job import new_job, read_version


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with delta_session() as session:
        yield session


def _read(spark: SparkSession, url: str, *versions: int) -> list[list[tuple[int, str]]]:
    """Rows of each version, or of the newest one; all in one query, which is faster by far."""
    whole = spark.read.format("delta")
    tables = [whole.option("versionAsOf", v).load(url) for v in versions] or [whole.load(url)]
    marked = [table.select(lit(i).alias("i"), "k", "v") for i, table in enumerate(tables)]
    rows = functools.reduce(DataFrame.union, marked).collect()
    return [sorted((row.k, row.v) for row in rows if row.i == i) for i in range(len(marked))]


def test_recorded_versions_before_and_after_compactions_read_the_same_on_the_jvm(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = new_job(str(tmp_path / "state" / "u"), seed=7)
    while job.recorded[-1:] == [] or job.recorded[-1].version < 23:  # past a checkpoint of the log
        job.step()
    assert (tmp_path / "state" / "u" / "_delta_log" / "_last_checkpoint").exists()
    some = [*job.recorded[::8], job.recorded[-1]]  # a version costs the JVM seconds; delta-rs reads all elsewhere
    found = _read(spark, job.table.url, *(recorded.version for recorded in some))
    assert found == [recorded.rows for recorded in some]
    for recorded in some:
        assert read_version(job.table.url, recorded.version) == recorded.rows


def test_vectors_survive_in_a_log_checkpoint_when_the_commits_before_it_are_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = new_job(str(tmp_path / "state" / "u"), seed=8)
    while job.recorded[-1:] == [] or job.recorded[-1].version < 20:
        job.step()
    newest = job.recorded[-1]
    assert any(entry.dv for entry in newest.content.values())
    assert job.table.trim_log(newest.version)
    assert not (tmp_path / "state" / "u" / "_delta_log" / f"{0:020d}.json").exists()
    assert _read(spark, job.table.url, newest.version) == [newest.rows]
    assert read_version(job.table.url, newest.version) == newest.rows


def test_a_savepoint_table_reads_the_same_on_the_jvm(spark: SparkSession, tmp_path: Path) -> None:
    job = new_job(str(tmp_path / "state" / "u"), seed=9)
    for _ in range(12):
        job.step()
    done = job.checkpoint()
    job.table.export_savepoint(done.content, done.groups, str(tmp_path / "savepoint"))
    assert _read(spark, str(tmp_path / "savepoint" / "state" / "u")) == [done.rows]


def test_a_table_goes_on_after_the_jvm_set_a_property_on_it(spark: SparkSession, tmp_path: Path) -> None:
    job = new_job(str(tmp_path / "state" / "u"), seed=10)
    job.batch()
    job.checkpoint()
    spark.sql(f"ALTER TABLE delta.`{job.table.url}` SET TBLPROPERTIES ('note' = 'mine')")
    job.restart(job.base)
    job.batch()
    done = job.checkpoint()
    assert _read(spark, job.table.url) == _read(spark, job.table.url, done.version) == [done.rows]


_EVERY_TYPE = pa.table(
    {
        "long": pa.array([1, None, 3], pa.int64()),
        "int": pa.array([1, None, 3], pa.int32()),
        "short": pa.array([1, None, 3], pa.int16()),
        "byte": pa.array([1, None, 3], pa.int8()),
        "double": pa.array([1.5, None, float("nan")], pa.float64()),
        "float": pa.array([1.5, None, float("inf")], pa.float32()),
        "bool": pa.array([True, None, False], pa.bool_()),
        "text": pa.array(["ü", None, ""], pa.string()),
        "bytes": pa.array([b"\0\xff", None, b""], pa.binary()),
        "day": pa.array([datetime.date(2020, 2, 29), None, datetime.date(1, 1, 1)], pa.date32()),
        "instant": pa.array([0, None, 1_600_000_000_123_456], pa.timestamp("us", tz="UTC")),
        "local": pa.array([0, None, 1_600_000_000_123_456], pa.timestamp("us")),
        "money": pa.array([decimal.Decimal("1.23"), None, decimal.Decimal("-9999999.99")], pa.decimal128(9, 2)),
        "big": pa.array([decimal.Decimal(10) ** 37, None, decimal.Decimal(-1)], pa.decimal128(38, 0)),
        "many": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "named": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "nested": pa.array(
            [{"x": 1, "y": ["a"]}, None, {"x": None, "y": None}],
            pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]),
        ),
    }
)


def test_every_type_of_state_reads_back_on_the_jvm_beside_dead_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = StateTable(str(tmp_path / "u"), "u")
    table.create_if_absent(_EVERY_TYPE.schema, "every type")
    twice = pa.concat_tables([_EVERY_TYPE, _EVERY_TYPE])
    file = write_run_file(table.url, "e1.parquet", twice)
    groups = {0: GroupManifest((Run(file.file, 0, 6, 1),), 3)}
    table.commit("job/u", 1, None, [Flushed("u", 1, (file,), {file.file: encode_rows([3, 4, 5])})], groups)
    read = spark.read.format("delta").load(table.url).toArrow()
    assert repr(read.to_pylist()) == repr(_EVERY_TYPE.to_pylist())  # by text: NaN is not equal to itself


def test_the_history_is_readable_with_sql(spark: SparkSession, tmp_path: Path) -> None:
    history = History(str(tmp_path / "history"))
    history.append(
        HistoryRow(1, "checkpoint", "completed", 1000, 1, 4, completed_ms=1500, keys=7, state={"u": UidSize(7, 90, 2)})
    )
    history.append(HistoryRow(2, "savepoint", "expired", 2000, 1, 9, reason="took longer than 10 min"))
    rows = spark.sql(
        f"select id, outcome, reason, duration_ms, unix_millis(triggered) as t, state['u'].size_bytes as bytes"
        f" from delta.`{tmp_path}/history` order by id"
    ).collect()
    assert [tuple(row) for row in rows] == [
        (1, "completed", None, 500, 1000, 90),
        (2, "expired", "took longer than 10 min", None, 2000, None),
    ]
