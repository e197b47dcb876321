"""Session confs that a checkpointed query needs while it starts. Driver."""

from __future__ import annotations

import json
from threading import RLock
from typing import Any

from spark_ckpt.errors import ConfigError
from spark_ckpt.execution.java_classes import java_class
from spark_ckpt.jobs.spark_folder import is_url
from spark_ckpt.spark_versions import spark_version
from spark_ckpt.spark_versions.java_names import FILE_SYSTEM_CHECKPOINT_FILE_MANAGER
from spark_ckpt.storage.filesystem import normalize_url

_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_NAMED_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
_OVERWRITES = {
    # Hive's, which Spark brings along for file://, refuses to rename to a name that is taken, and Spark's manager takes
    # the refusal for done: a repeated batch would leave the state of its first attempt behind, and the next start or
    # executor went on from that. Hadoop keeps one object for all that ask in a process: whoever came first chose it.
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}

_PANDAS = {
    "safecheck": ("spark.sql.execution.pandas.convertToArrowArraySafely", (4, 0)),
    "assign_cols_by_name": ("spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName", (4, 0)),
    "prefer_int_ext_dtype": ("spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype", (4, 2)),
    "int_to_decimal_coercion_enabled": ("spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled", (4, 1)),
}
"""Spark's settings for what a pandas function gets and returns, by PySpark's names of them; since when it has them."""


def all_confs(conf: Any) -> dict[str, str]:
    """What ``conf.getAll`` is: classic PySpark asks the JVM twice for each of them, here it is asked for their text."""
    java = getattr(conf, "_jconf", None)
    if java is None:
        return dict(conf.getAll)
    writer = java_class("com.fasterxml.jackson.databind.ObjectMapper")()
    found: dict[str, str] = json.loads(writer.writeValueAsString(java.getAllAsJava()))
    return found


def pandas_options(conf: Any) -> dict[str, bool]:
    """How the session wants values of pandas functions converted."""
    here = spark_version()
    return {name: here >= since and conf.get(key) == "true" for name, (key, since) in _PANDAS.items()}


def no_data_batches(conf: Any) -> bool:
    """Whether event time goes on without new rows."""
    return bool(conf.get("spark.sql.streaming.noDataMicroBatches.enabled", "true") == "true")


def refuse_named_sources(conf: Any) -> None:
    """Spark refuses a source without a name then, in words that do not say whose source it is."""
    if conf.get(_NAMED_SOURCES, "false") == "true":
        raise ConfigError(
            f"{_NAMED_SOURCES}: expected false for a checkpointed query, found true. Its sources have names of their "
            "own, readStream.name(...), by which checkpoints find them. Set it to false"
        )


def spark_path(location: str) -> str:
    """``location`` as Spark must get it: a path without a scheme could mean HDFS there, never here."""
    return location if is_url(location) else f"file://{normalize_url(location)}"


def session_location(conf: Any, name: str) -> str | None:
    """Where a query called ``name`` has its Spark location if the session says where queries have theirs; as Spark."""
    folder = conf.get("spark.sql.streaming.checkpointLocation", None)
    return f"{folder.rstrip('/')}/{name}" if folder else None


CHANGING = RLock()
"""Of two threads that start queries, one would take the other's confs for the session's and leave them behind."""


class SessionConfs:
    """Sets confs only around Spark's ``start()``, one query at a time: it keeps its own copy of the session's."""

    def __init__(self, spark: Any, location: str) -> None:
        self._conf = spark.conf
        self._wanted = {
            # Several applyInPandasWithState in one query run and recover correctly; Spark's check refuses them.
            "spark.sql.streaming.unsupportedOperationCheck": "false",
            # Adaptive execution asks the source for the partitions of several stages at the same time, which Spark's
            # runner of Python sources does not stand: two stages that begin with one source would end the query.
            "spark.sql.adaptive.streaming.stateless.enabled": "false",
            # Few large batches into Python. Envelopes are large rows, so their bytes are bounded too.
            "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
            "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
        }
        if "://" not in location and self._conf.get(_FILE_MANAGER, None) is None:
            # Hadoop's FileContext, the default, starts a process for every link it looks at: some 100 ms a batch on a
            # local disk. Both managers rename there. On HDFS the default's rename is the safer one.
            self._wanted.update({_FILE_MANAGER: FILE_SYSTEM_CHECKPOINT_FILE_MANAGER, **_OVERWRITES})
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> None:
        CHANGING.acquire()
        try:
            for key, value in self._wanted.items():
                self._before[key] = self._conf.get(key, None)
                self._conf.set(key, value)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: Any) -> None:
        try:
            for key, value in self._before.items():
                if value is None:
                    self._conf.unset(key)
                else:
                    self._conf.set(key, value)
        finally:
            CHANGING.release()
