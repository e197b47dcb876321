"""Sink ``memory`` as Spark has it: without a folder to name, and a table by the query's name. Driver.

Spark's own keeps rows in the driver. Here they are files, so the table is a temporary view whose one task reads what is
committed whenever somebody asks.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from spark_ckpt.execution.event_time import without_notes
from spark_ckpt.jobs.spec import SinkSpec
from spark_ckpt.runtime.memory_rows import MemoryRows
from spark_ckpt.runtime.stateless import nullable
from spark_ckpt.sinks.memory import FOLDER, MemorySink
from spark_ckpt.sinks.registry import ProjectedSink
from spark_ckpt.storage.filesystem import normalize_url
from spark_ckpt.storage.job_paths import JobPaths

_log = logging.getLogger("spark_ckpt")

Request = tuple[Any, dict[str, str]]


def with_folder(sinks: Sequence[Request], url: str) -> list[Request]:
    """``sinks`` of the job at ``url``; the first has a folder of the job's, if it is ``memory`` and names none."""
    (sink, options), *others = sinks
    named = {name.lower() for name in options} & {"name", "path"}
    if not isinstance(sink, str) or sink.strip().lower() != "memory" or named:
        return list(sinks)
    return [(sink, {**options, "path": _folder(normalize_url(url))}), *others]


def _folder(url: str) -> str:
    """In the job's own folder, so that it goes with that, or on this machine, if that is elsewhere."""
    if "://" not in url:
        return JobPaths(url).memory
    job = f"{url.rsplit('/', 1)[-1]}-{hashlib.sha256(url.encode()).hexdigest()[:12]}"
    return os.path.join(tempfile.gettempdir(), FOLDER, job)


def make_table(spark: Any, name: str, spec: SinkSpec, schema: StructType) -> None:
    """What sink ``spec`` has committed of rows of ``schema``, as the temporary view ``name`` of the session; nothing if
    it is no sink ``memory``."""
    if not issubclass(spec.cls, MemorySink):
        return
    sink: Any = spec.make()
    inner: Any = sink.inner if isinstance(sink, ProjectedSink) else sink
    names = sink.columns if isinstance(sink, ProjectedSink) else schema.fieldNames()
    shown = [n for n in names if n != inner.change_column]
    columns = nullable(without_notes(StructType([schema[n] for n in shown])))
    rows = spark.range(0, 1, 1, 1).mapInArrow(MemoryRows(inner.root, shown), columns)
    try:
        rows.createOrReplaceTempView(name)
    except AnalysisException as error:
        _log.warning(
            "Query %s writes to sink memory, and Spark takes its name for no table's (%s): name the query by letters, "
            "digits and _, or read the rows by spark_ckpt.sinks.memory.read(%r).", name, error, str(inner.root),
        )  # fmt: skip
