"""Sources that are to begin where ``spark.ckpt.startingFrom`` says, and to end where ``spark.ckpt.endingAt`` says.
Driver, at start."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError
from spark_ckpt.execution.lineage import SourceNode
from spark_ckpt.jobs.spec import job_url
from spark_ckpt.sources.base import InnerReader, open_source
from spark_ckpt.storage.job_paths import JobPaths


def check_starting_from(sources: dict[SourceNode, str], config: JobConfig) -> None:
    """Raises ``ConfigError`` for what is none of the query's sources, or a stream that Spark reads."""
    _check_asked(
        "startingFrom",
        config.starting_from or {},
        sources,
        "which begins where the function that was given to readStream.spark says: let that return a stream that begins "
        "elsewhere",
    )


def find_ends(
    sources: dict[SourceNode, str], config: JobConfig, job: str, available_now: bool
) -> dict[str, dict[str, Any]]:
    """Where sources end in this run, by uid. With ``available_now`` the others end with what is there now. Raises
    ``ConfigError`` for what is no place in a source of the query, and if a source has no end."""
    asked = config.ending_at or {}
    _check_asked("endingAt", asked, sources, "which does not end at a position")
    endless = sorted(set(sources.values()) - asked.keys())
    if asked and endless and not available_now:
        raise ConfigError(
            f"endingAt: expected an end for each source of the query, found none for {endless}; name them too, or use "
            "trigger(availableNow=True), with which they end with what is there now"
        )
    return {uid: _with_reader(sources, config, job, uid, _ending_at(at)) for uid, at in asked.items()}


def _check_asked(setting: str, asked: Collection[str], sources: dict[SourceNode, str], of_spark: str) -> None:
    """``of_spark``: what to say of a stream that Spark reads."""
    by_uid = {uid: node for node, uid in sources.items()}
    unknown = sorted(set(asked) - by_uid.keys())
    if unknown:
        raise ConfigError(f"{setting}: expected uids of the query's sources, {sorted(by_uid)}, found {unknown}")
    by_spark = sorted(uid for uid in asked if by_uid[uid].by_spark)
    if by_spark:
        raise ConfigError(f"{setting}: {by_spark} is read by Spark, {of_spark}")


def _ending_at(asked: str | dict[str, Any]) -> Callable[[InnerReader], dict[str, Any]]:
    return lambda reader: reader.ending_at(asked)


def find_offset(sources: dict[SourceNode, str], config: JobConfig, job: str, uid: str, asked: Any) -> Any:
    """The offset of source ``uid`` that ``asked`` stands for now. Raises as
    :meth:`spark_ckpt.sources.base.InnerReader.starting_from`."""
    return _with_reader(sources, config, job, uid, lambda reader: reader.starting_from(asked))


def open_reader(sources: dict[SourceNode, str], config: JobConfig, job: str, uid: str) -> InnerReader:
    """A reader of source ``uid`` beside that of the query, to ask it for offsets."""
    node = next(node for node, name in sources.items() if name == uid)
    folder = JobPaths(job_url(config, job)).source(uid)
    opened = open_source(node.inner, node.options, node.schema, folder, config.storage_options())
    return opened.reader(node.schema or opened.schema())


def _with_reader(
    sources: dict[SourceNode, str], config: JobConfig, job: str, uid: str, ask: Callable[[InnerReader], Any]
) -> Any:
    """What a reader of source ``uid`` that is made for this says."""
    reader = open_reader(sources, config, job, uid)
    try:
        return ask(reader)
    finally:
        reader.stop()
