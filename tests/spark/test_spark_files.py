"""What a repeated batch writes to Spark's own location takes the place of what its first attempt wrote there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_ckpt.execution.session_confs import SessionConfs

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"

OF_TESTS = ("fs.file.impl", "fs.file.impl.disable.cache")
"""Of Hadoop's, set for all tests (tests/spark_conf) as the library sets them around a start."""


@pytest.fixture
def by_itself(spark: SparkSession) -> Iterator[None]:
    """Without the tests' settings of files, so that only the library's count."""
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    before = {key: hadoop.get(key) for key in OF_TESTS}
    for key in OF_TESTS:
        hadoop.unset(key)
    manager = spark.conf.get(MANAGER)
    spark.conf.unset(MANAGER)
    yield
    spark.conf.set(MANAGER, manager)
    for key, value in before.items():
        hadoop.set(key, value)


@pytest.mark.usefixtures("by_itself")
def test_spark_writes_over_the_files_of_a_first_attempt(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark._jvm
    with SessionConfs(spark, str(tmp_path)):
        conf = spark._jsparkSession.sessionState().newHadoopConf()
    path = jvm.org.apache.hadoop.fs.Path
    # As the state store makes its own.
    managers = getattr(jvm.org.apache.spark.sql.execution.streaming.checkpointing, "CheckpointFileManager$")
    manager = getattr(managers, "MODULE$").create(path(f"file://{tmp_path}"), conf)
    assert manager.getClass().getSimpleName() == "FileSystemBasedCheckpointFileManager"
    for text in (b"first", b"second"):
        stream = manager.createAtomic(path(f"file://{tmp_path}/4.delta"), True)
        stream.write(bytearray(text))
        stream.close()
    assert (tmp_path / "4.delta").read_bytes() == b"second"
    assert [p.name for p in tmp_path.iterdir() if ".tmp" in p.name] == []
    for key in (MANAGER, *OF_TESTS):
        assert spark.conf.get(key, None) is None, "only around the start"
