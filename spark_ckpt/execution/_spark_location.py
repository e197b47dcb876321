"""Where Spark keeps its own part of a query, its offsets and the operators' memtables: found or asked for. Driver.

Spark writes it by Hadoop's file systems, which may know other places than fsspec does.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError
from spark_ckpt.execution.session_confs import session_location
from spark_ckpt.jobs.spark_folder import SparkFolder, is_url, local_location, one_spelling
from spark_ckpt.jobs.spec import job_url
from spark_ckpt.redaction import redact_url
from spark_ckpt.runtime.operator.spec import EventTime
from spark_ckpt.storage.job_paths import JobPaths
from spark_ckpt.storage.object_options import scheme_of

_log = logging.getLogger("spark_ckpt")
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


def spark_location(spark: Any, given: str | None, config: JobConfig, job: str) -> str:
    """The location of ``job`` as Spark is to get it: ``given`` for the query, by the session, by
    ``spark.ckpt.sparkDir``, or a default. Raises ``ConfigError`` if it has to be given."""
    said = given or session_location(spark.conf, job)
    return said or _default(spark, config, job)


def own_location(spark: Any, given: str, config: JobConfig, job: str, generation: int) -> str:
    """Where Spark keeps its part of ``generation``, whose query is another one than that at the location ``given``:
    where it does by default, with a name of its own; beside ``given`` if Spark writes to no such place."""
    try:
        base = _default(spark, config, job)
    except ConfigError:
        base = given
    return one_spelling(f"{base.rstrip('/')}-{generation}")


def as_spark_writes(spark: Any, location: str, config: JobConfig, job: str) -> str:
    """``location``, which :func:`own_location` made and records have, spelled so that Spark can write there."""
    if not location.startswith("s3://"):
        return location
    default = _default(spark, config, job)
    return default.split("://")[0] + location.removeprefix("s3") if scheme_of(default) == "s3" else location


def _default(spark: Any, config: JobConfig, job: str) -> str:
    if config.spark_dir:
        return f"{config.spark_dir.rstrip('/')}/{job}"
    below = JobPaths(job_url(config, job)).spark
    if scheme_of(below) == "file":
        return below
    found = _writable(spark, below) or _on_this_machine(spark, config, job)
    if found:
        return found
    raise ConfigError(
        f"Job {job!r} needs a place for Spark's own checkpoint location: expected one that Spark on this cluster can "
        f"write, found spark.ckpt.dir {redact_url(config.dir)}, for which Hadoop's file systems do not work there. Set"
        " spark.ckpt.sparkDir (or option checkpointLocation) to a URL of Hadoop's that the driver and all executors "
        "reach: hdfs://, s3a:// (with the jars of hadoop-aws), abfss://, dbfs:/, or a shared folder."
    )


class HadoopFolder:
    """A folder at a URL of Hadoop's, read as Spark reads it. Driver; not on Spark Connect."""

    def __init__(self, spark: Any, url: str) -> None:
        self._path = spark._jvm.org.apache.hadoop.fs.Path
        self._root = self._path(url)
        self._fs = self._root.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def names(self, folder: str = "") -> list[str]:
        """Names of the files in ``folder``, sorted; hidden ones left out. Empty if it is absent."""
        try:
            found = list(self._fs.listStatus(self._path(self._root, folder) if folder else self._root))
        except Py4JJavaError as error:
            if _is_absent(error):
                return []
            raise
        names = [str(status.getPath().getName()) for status in found if status.isFile()]
        return sorted(name for name in names if not name.startswith("."))

    def read(self, name: str) -> bytes | None:
        """All of ``name``, or None if there is no such file."""
        try:
            stream = self._fs.open(self._path(self._root, name))
        except Py4JJavaError as error:
            if _is_absent(error):
                return None
            raise
        with contextlib.closing(stream):
            return bytes(stream.readAllBytes())

    def remove_all(self, name: str) -> None:
        """Remove file or folder ``name``. Nothing happens if it is not there. Raises ``Py4JJavaError``."""
        self._fs.delete(self._path(self._root, name), True)

    def make(self) -> None:
        """Make the folder. Raises ``Py4JJavaError``."""
        self._fs.mkdirs(self._root)


def files_at(spark: Any, location: str) -> HadoopFolder | None:
    """How to read ``location``, as Spark got it; None: by fsspec."""
    return HadoopFolder(spark, location) if is_url(location) and not _is_connect(spark) else None


def _writable(spark: Any, url: str) -> str | None:
    """``url`` in the spelling by which Spark can write there, if it can."""
    if _is_connect(spark):
        return None
    scheme, rest = url.split("://", 1)
    for spelling in [scheme, "s3a"] if scheme == "s3" else [scheme]:
        try:
            HadoopFolder(spark, f"{spelling}://{rest}").make()
        except Py4JError as error:
            _log.debug("Spark cannot write to %s: %s", redact_url(url), type(error).__name__)
        else:
            return f"{spelling}://{rest}"
    return None


def _on_this_machine(spark: Any, config: JobConfig, job: str) -> str | None:
    if _is_connect(spark) or not str(spark.conf.get("spark.master", "")).startswith("local"):
        return None
    location = local_location(config, job)
    try:
        os.makedirs(location, mode=0o700, exist_ok=True)
    except OSError:
        return None
    _log.warning(
        "Job %s: Spark cannot write to %s, so its own location is on this machine: %s. If that is lost, the next start "
        "goes on from the newest checkpoint. spark.ckpt.sparkDir sets another one.",
        job, redact_url(config.dir), location,
    )  # fmt: skip
    return location


def _is_connect(spark: Any) -> bool:
    return not hasattr(spark, "_jsparkSession")


def _is_absent(error: Py4JJavaError) -> bool:
    return str(error.java_exception.getClass().getName()) == "java.io.FileNotFoundException"


def event_time_rule(conf: Any, location: SparkFolder | None = None) -> EventTime:
    """As the session has it when the query starts; which of several watermarks counts, as when it first did: Spark
    keeps that at its ``location``."""
    kept = None if location is None else location.kept_conf(_POLICY)
    return EventTime(
        (kept or conf.get(_POLICY, "min")).lower(),
        conf.get("spark.sql.streaming.statefulOperator.allowMultiple", "true") == "true",
    )
