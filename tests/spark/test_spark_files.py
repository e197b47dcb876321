"""What a repeated batch writes to Spark's own location takes the place of what its first attempt wrote there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_ckpt.plan.session_confs import SessionConfs


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
    for key in ("fs.file.impl", "fs.file.impl.disable.cache"):
        assert spark.conf.get(key, None) is None, "only around the start"
