"""Functions of the user's process that stand where a sink would: ``foreachBatch`` and ``foreach``. Driver.

Each gets a sink of its own in the job's folder (:mod:`spark_ckpt.sinks.deliveries`), and what that has committed is
delivered by a thread beside the query (:mod:`spark_ckpt.jobs.delivering`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StructType
from pyspark.util import InheritableThread

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError
from spark_ckpt.jobs.delivering import Deliverer, Function
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.spec import RunSpec, SinkSpec, job_url
from spark_ckpt.runtime.datasource import delivered_class_of
from spark_ckpt.sinks.deliveries import SPARK_SCHEMA, Deliveries
from spark_ckpt.storage.job_paths import JobPaths

CALLED = "spark_ckpt.called"
"""What a column whose name another one has, too, notes: the name under which the function gets it."""

_CONDITIONS = {"foreach": "FOREACH_USER_FUNCTION_ERROR"}
_CONDITION = "FOREACH_BATCH_USER_FUNCTION_ERROR"
"""What Spark calls a function's failure, by method, and of all others."""
_FOR_EVERY_SINK = ("columns", "where", "uid")
Request = tuple[Any, dict[str, str]]


@dataclass(frozen=True)
class BatchFunction:
    """``func`` gets a DataFrame of a checkpoint's rows, and its id; ``method`` is what the user called."""

    func: Callable[[Any, int], Any]
    method: str = "foreachBatch"


def with_functions_last(sinks: Sequence[Request]) -> list[Request]:
    """So that a function is called when all other sinks have the checkpoint."""
    return sorted(sinks, key=lambda request: isinstance(request[0], BatchFunction))


def as_sinks(sinks: Sequence[Request], config: JobConfig, job: str, schema: StructType) -> list[Request]:
    """``sinks`` with a sink's format and options in place of each function. Raises ``ConfigError``."""
    storage = {f"storage.{name}": value for name, value in config.storage.items()}
    place = {"path": JobPaths(job_url(config, job)).deliveries, "schema": schema.json(), **storage}
    found = []
    for sink, options in sinks:
        if isinstance(sink, BatchFunction):
            unknown = sorted(o for o in options if o.lower() not in _FOR_EVERY_SINK)
            if unknown:
                raise ConfigError(
                    f"{sink.method}: unknown option(s) {', '.join(unknown)}; valid are {', '.join(_FOR_EVERY_SINK)}"
                )
            found.append((sink.method, {**options, **place}))
        else:
            found.append((sink, options))
    return found


def deliverer_of(
    spark: Any, format_name: str, run: RunSpec, requests: Sequence[Request], sinks: Sequence[SinkSpec]
) -> Deliverer | None:
    """What calls the functions among ``requests``, which are named as ``sinks``; None if there are none."""
    pairs = [(r, s.id) for (r, _), s in zip(requests, sinks, strict=True) if isinstance(r, BatchFunction)]
    if not pairs:
        return None
    records, storage = JobRecords(run.url, run.config), run.config.storage_options()
    functions = []
    for number, (function, sink) in enumerate(pairs):
        waiting = Deliveries(run.paths.deliveries, storage, run.identity, sink)
        name = f"{format_name}_delivered_{number}"
        spark.dataSource.register(delivered_class_of(name, waiting.url, storage, run.identity, sink))
        call = partial(_deliver, spark, name, waiting, function.func)
        functions.append(Function(sink, waiting, call, _CONDITIONS.get(function.method, _CONDITION)))
    return Deliverer(functions, lambda: max(records.ids("generations"), default=0) > run.generation)


def thread_of(spark: Any) -> Callable[..., threading.Thread]:
    """What makes a thread whose jobs belong to the caller's group and have its tags."""
    return partial(InheritableThread, session=spark) if hasattr(spark, "_jsparkSession") else threading.Thread


def delivery_error(deliverer: Deliverer) -> StreamingQueryException | None:
    """What ended the query, in Spark's class, whose cause is what the function raised."""
    if deliverer.failed is None:
        return None
    condition = f"[{deliverer.condition}] " if deliverer.condition else ""
    failed = StreamingQueryException(message=condition + deliverer.failed)
    failed.__cause__ = deliverer.error
    return failed


def _deliver(spark: Any, name: str, waiting: Deliveries, func: Callable[[Any, int], Any], checkpoint: int) -> None:
    files = waiting.files(checkpoint)
    # As the rows were written: an earlier start may have had other columns.
    written = waiting.schema(files[0])
    full = StructType.fromJson(json.loads((written.metadata or {})[SPARK_SCHEMA]))
    schema = StructType([full[column] for column in written.names])
    called = [field.metadata.pop(CALLED, field.name) for field in schema.fields]
    rows = spark.read.format(name).schema(schema).option("checkpoint", str(checkpoint)).load()
    func(rows if called == schema.names else rows.toDF(*called), checkpoint)
