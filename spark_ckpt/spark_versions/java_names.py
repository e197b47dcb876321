"""Spark's JVM classes whose packages differ. Spark 4.1 put those of streams into packages of their own."""

from __future__ import annotations

from spark_ckpt.spark_versions import spark_version

_STREAMING = "org.apache.spark.sql.execution.streaming"
_RUNTIME, _CHECKPOINTING = (".runtime", ".checkpointing") if spark_version() >= (4, 1) else ("", "")

STREAMING_RELATION = f"{_STREAMING}{_RUNTIME}.StreamingRelation"
FILE_SYSTEM_CHECKPOINT_FILE_MANAGER = f"{_STREAMING}{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager"
