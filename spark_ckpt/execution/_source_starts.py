"""Sources that are to begin where ``spark.ckpt.startingFrom`` says. Driver, at start."""

from __future__ import annotations

from typing import Any

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError
from spark_ckpt.execution.lineage import SourceNode
from spark_ckpt.jobs.spec import job_url
from spark_ckpt.sources.base import open_source
from spark_ckpt.storage.job_paths import JobPaths


def check_starting_from(sources: dict[SourceNode, str], config: JobConfig) -> None:
    """Raises ``ConfigError`` for what is none of the query's sources, or a stream that Spark reads."""
    asked, by_uid = config.starting_from or {}, {uid: node for node, uid in sources.items()}
    unknown = sorted(asked.keys() - by_uid)
    if unknown:
        raise ConfigError(f"startingFrom: expected uids of the query's sources, {sorted(by_uid)}, found {unknown}")
    by_spark = sorted(uid for uid in asked if by_uid[uid].by_spark)
    if by_spark:
        raise ConfigError(
            f"startingFrom: {by_spark} is read by Spark, which begins where the function that was given to "
            "readStream.spark says: let that return a stream that begins elsewhere"
        )


def find_offset(sources: dict[SourceNode, str], config: JobConfig, job: str, uid: str, asked: Any) -> Any:
    """The offset of source ``uid`` that ``asked`` stands for now. Raises as
    :meth:`spark_ckpt.sources.base.InnerReader.starting_from`."""
    node = next(node for node, name in sources.items() if name == uid)
    folder = JobPaths(job_url(config, job)).source(uid)
    opened = open_source(node.inner, node.options, node.schema, folder, config.storage_options())
    reader = opened.reader(node.schema or opened.schema())
    try:
        return reader.starting_from(asked)
    finally:
        reader.stop()
