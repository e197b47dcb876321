"""Where Spark keeps its own part of a job whose folder is on an object store."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError
from spark_ckpt.execution._spark_location import HadoopFolder, spark_location
from spark_ckpt.monitoring.folder import look_at
from tests.s3_server import SECRET, shared_s3


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def config(**options: str) -> JobConfig:
    return JobConfig.from_options({"dir": "s3://lake/c", "storage.secret": "hunter2", **options})


def test_what_is_said_comes_first_and_a_folder_of_the_machine_last(spark: SparkSession, home: Path) -> None:
    assert spark_location(spark, "/mine", config(sparkDir="/dir"), "j") == "/mine"
    assert spark_location(spark, None, config(sparkDir="hdfs://n/dir/"), "j") == "hdfs://n/dir/j"
    assert spark_location(spark, None, JobConfig.from_options({"dir": "/jobs"}), "j") == "/jobs/j/spark"
    found = Path(spark_location(spark, None, config(), "j"))
    assert found.is_relative_to(home)
    assert found.name == "j"
    assert found.stat().st_mode & 0o077 == 0
    assert found == Path(spark_location(spark, None, config(), "j"))
    assert found != Path(spark_location(spark, None, config(dir="s3://lake/d"), "j"))


def test_on_a_cluster_it_is_asked_for(spark: SparkSession) -> None:
    conf = SimpleNamespace(get=lambda key, default=None: "spark://host:7077" if key == "spark.master" else default)
    cluster = SimpleNamespace(conf=conf, _jvm=spark._jvm, _jsparkSession=spark._jsparkSession)
    with pytest.raises(ConfigError, match=r"Set spark\.ckpt\.sparkDir .* to a URL of Hadoop's") as error:
        spark_location(cluster, None, config(), "j")
    assert "hunter2" not in str(error.value)


def test_below_dir_where_hadoop_knows_the_scheme(viewfs: str, spark: SparkSession) -> None:
    assert spark_location(spark, None, config(dir=f"{viewfs}/jobs"), "j") == f"{viewfs}/jobs/j/spark"


@pytest.fixture
def viewfs(spark: SparkSession, tmp_path: Path) -> str:
    """A URL that Hadoop knows and fsspec does not, as ``hdfs`` is where its library is missing."""
    (tmp_path / "hadoop").mkdir()
    name = f"m{uuid.uuid4().hex}"  # Hadoop keeps what it opened, by scheme and name
    spark.conf.set(f"fs.viewfs.mounttable.{name}.link./spark", f"file://{tmp_path}/hadoop")
    return f"viewfs://{name}/spark"


def test_a_folder_of_hadoop_is_read_as_spark_wrote_it(viewfs: str, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "hadoop/j/offsets").mkdir(parents=True)
    (tmp_path / "hadoop/j/offsets/0").write_bytes(b"v1\n\xff")
    (tmp_path / "hadoop/j/offsets/.0.crc").write_bytes(b"x")
    folder = HadoopFolder(spark, f"{viewfs}/j")
    assert folder.names("offsets") == ["0"]
    assert folder.read("offsets/0") == b"v1\n\xff"
    assert folder.names("commits") == []
    assert folder.read("metadata") is None


@pytest.mark.soak  # three starts on S3; one with faults: tests/storage/test_job_on_s3.py
def test_a_job_on_s3_goes_on_at_its_location_and_from_its_checkpoints(
    viewfs: str, spark: SparkSession, new_input: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything of the job's is on S3, the sink too; Spark's own part is at a URL that fsspec cannot read."""
    server = shared_s3()
    bucket = server.new_bucket()
    for name, value in {"dir": f"s3://{bucket}/jobs", "sparkDir": viewfs}.items():
        spark.conf.set(f"spark.ckpt.{name}", value)
    for name, value in server.options().items():
        spark.conf.set(f"spark.ckpt.storage.{name}", value)
    given = new_input("in", "k LONG, v LONG")
    ckpt = spark_ckpt.enable(spark)

    def start() -> Any:
        sums = given.stream(ckpt).groupBy("k").agg(F.sum("v").alias("v")).uid("sums")
        written = sums.writeStream.format("delta").option("path", f"s3a://{bucket}/out").option("mergeKeys", "k")
        return written.queryName("j").start()

    def read() -> list[tuple[int, int]]:
        from deltalake import DeltaTable

        from spark_ckpt.storage.object_options import delta_rs_options

        table = DeltaTable(f"s3://{bucket}/out", storage_options=delta_rs_options("s3://x", server.options()))
        return sorted((row["k"], row["v"]) for row in table.to_pyarrow_table().to_pylist())

    given.add((1, 10), (2, 20))
    query = start()
    query.processAllAvailable()
    query.savepoint(f"s3://{bucket}/savepoints/one")
    query.stop()
    assert read() == [(1, 10), (2, 20)]
    assert (tmp_path / "hadoop/j/offsets/0").exists()

    given.add((1, 1))
    query = start()  # goes on there
    query.processAllAvailable()
    query.checkpoint()
    query.stop()
    assert read() == [(1, 11), (2, 20)]

    shutil.rmtree(tmp_path / "hadoop/j")
    given.add((2, 2))
    query = start()  # from the newest checkpoint
    query.processAllAvailable()
    query.checkpoint()
    query.stop()
    assert query.job.verify() == []  # while it runs, clean-up removes what was just listed
    asked = max(look_at(query.job).facts.batches, key=lambda b: b.batch).figures.asked
    assert {"get", "put", "list"} <= set(asked)
    assert read() == [(1, 11), (2, 22)]
    assert SECRET not in caplog.text
