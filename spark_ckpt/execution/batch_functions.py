"""Functions of the user's process that stand where a sink would: ``foreachBatch`` and ``foreach``. Driver.

Each gets a sink of its own in the job's folder (:mod:`spark_ckpt.sinks.deliveries`), and what that has committed is
delivered by a thread beside the query (:mod:`spark_ckpt.jobs.delivering`).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import StructType
from pyspark.util import InheritableThread

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError
from spark_ckpt.execution._job_descriptions import described
from spark_ckpt.jobs.delivering import Deliverer, Function
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.spec import RunSpec, SinkSpec, asked_for, job_url
from spark_ckpt.runtime.datasource import delivered_class_of
from spark_ckpt.sinks.deliveries import AMONG, FUNCTION, SPARK_SCHEMA, Deliveries, left_waiting
from spark_ckpt.storage.job_paths import JobPaths

CALLED = "spark_ckpt.called"
"""What a column whose name another one has, too, notes: the name under which the function gets it."""

_log = logging.getLogger("spark_ckpt")

_CONDITIONS = {"foreach": "FOREACH_USER_FUNCTION_ERROR"}
_CONDITION = "FOREACH_BATCH_USER_FUNCTION_ERROR"
"""What Spark calls a function's failure, by method, and of all others."""
_FOR_EVERY_SINK = ("columns", "where", "uid")
Request = tuple[Any, dict[str, str]]
Given = TypeVar("Given")


@dataclass(frozen=True)
class BatchFunction:
    """``func`` gets a DataFrame of a checkpoint's rows, and its id; ``method`` is what the user called."""

    func: Callable[[Any, int], Any]
    method: str = "foreachBatch"

    @property
    def name(self) -> str:
        """What tells it from others, as far as names do."""
        func: Any = self.func.args[0] if isinstance(self.func, partial) and self.func.args else self.func
        made = func if hasattr(func, "__qualname__") else type(func)
        own = "" if made.__qualname__.endswith(made.__name__) else f" ({made.__name__})"
        return f"{made.__module__}.{made.__qualname__}{own}"


def copied(given: Given) -> Given:
    """A function of the user's as it is when it is given to a method, as executors get it. Raises as PySpark does for
    what cannot be pickled."""
    pickled = CloudPickleSerializer()
    made: Given = pickled.loads(pickled.dumps(given))
    return made


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
            by = _place(sink, options, sinks)
            told = {} if by is None else {"function": by.function, "among": str(by.among)}
            found.append((sink.method, {**options, **place, **told}))
        else:
            found.append((sink, options))
    return found


@dataclass(frozen=True)
class _Place:
    """A function's name, and how many of its method are known by their places alone: one that is may be renamed."""

    function: str
    among: int


def _place(function: BatchFunction, options: Mapping[str, str], sinks: Sequence[Request]) -> _Place | None:
    """None: checkpoints know it by a uid."""
    if _has_uid(options):
        return None
    others = (r for r, given in sinks if isinstance(r, BatchFunction) and not _has_uid(given))
    return _Place(function.name, sum(other.method == function.method for other in others))


def _has_uid(options: Mapping[str, str]) -> bool:
    return any(name.lower() == "uid" for name in options)


def deliverer_of(
    spark: Any, format_name: str, run: RunSpec, requests: Sequence[Request], sinks: Sequence[SinkSpec]
) -> Deliverer | None:
    """What calls the functions among ``requests``, which are named as ``sinks``; None if there are none.

    Raises ``ConfigError`` where rows wait for a function, and another one has its place now."""
    pairs = [
        (function, sink.id, _place(function, options, requests))
        for (function, options), sink in zip(requests, asked_for(sinks), strict=True)
        if isinstance(function, BatchFunction)
    ]
    storage = run.config.storage_options()
    _tell_left(run, [sink.id for sink in sinks], storage)
    if not pairs:
        return None
    records = JobRecords(run.url, run.config)
    functions = []
    for number, (function, sink, place) in enumerate(pairs):
        waiting = Deliveries(run.paths.deliveries, storage, run.identity, sink)
        for checkpoint in waiting.waiting():
            with suppress(FileNotFoundError):  # the delivery says what is missing
                _waiting_schema(waiting, checkpoint, place)
        name = f"{format_name}_delivered_{number}"
        spark.dataSource.register(delivered_class_of(name, waiting.url, storage, run.identity, sink))
        call = partial(_deliver, spark, name, waiting, function.func, place)
        functions.append(Function(sink, waiting, call, _CONDITIONS.get(function.method, _CONDITION)))
    return Deliverer(functions, lambda: max(records.ids("generations"), default=0) > run.generation)


def thread_of(spark: Any) -> Callable[..., threading.Thread]:
    """What makes a thread whose jobs belong to the caller's group and have its tags."""
    return partial(InheritableThread, session=spark) if hasattr(spark, "_jsparkSession") else threading.Thread


def error_of(query: Any, deliverer: Deliverer | None) -> Exception | None:
    """What an ended query ended with, a function of ``foreachBatch`` or ``foreach`` included."""
    if deliverer is not None:
        deliverer.wait()
    found: Exception | None = query.exception()
    return found if found is not None or deliverer is None else delivery_error(deliverer)


def delivery_error(deliverer: Deliverer) -> StreamingQueryException | None:
    """What ended the query, in Spark's class, whose cause is what the function raised."""
    if deliverer.failed is None:
        return None
    condition = f"[{deliverer.condition}] " if deliverer.condition else ""
    given = {"id": "", "runId": "", "message": condition + deliverer.failed}
    failed = StreamingQueryException(given["message"], "STREAM_FAILED", given)
    failed.__cause__ = deliverer.error
    return failed


def _tell_left(run: RunSpec, sinks: Sequence[str], storage: Mapping[str, Any]) -> None:
    """Of functions that the query has no more."""
    for function, checkpoints in left_waiting(run.paths.deliveries, storage, run.identity, sinks).items():
        _log.warning(
            "Job %s: rows of checkpoint(s) %s wait for %s, which the query has no more. Whoever wants them starts once "
            "with that function in the place, or under the uid, that it had",
            run.job,
            ", ".join(map(str, checkpoints)),
            f"the function {function}" if function else "a function",
        )


def _waiting_schema(waiting: Deliveries, checkpoint: int, place: _Place | None) -> pa.Schema:
    """As the rows were written: an earlier start may have had other columns.

    Raises ``ConfigError`` if they are for another function than that in its ``place`` now; None: it is known by a uid.
    """
    written = waiting.schema(waiting.files(checkpoint)[0])
    noted = written.metadata or {}
    wanted, among = noted.get(FUNCTION, b"").decode(), int(noted.get(AMONG, b"1"))
    if place is not None and wanted not in ("", place.function) and max(among, place.among) > 1:
        raise ConfigError(
            f"rows of checkpoint {checkpoint} wait for the function {wanted}, in whose place is {place.function} now "
            f"({waiting.sink!r}): of several functions each is known by its place. Start with the functions in the "
            f"places that they had, or say which of them these rows are for: alsoTo(..., uid={waiting.sink!r})"
        )
    return written


def _deliver(
    spark: Any,
    name: str,
    waiting: Deliveries,
    func: Callable[[Any, int], Any],
    place: _Place | None,
    checkpoint: int,
) -> None:
    written = _waiting_schema(waiting, checkpoint, place)
    full = StructType.fromJson(json.loads((written.metadata or {})[SPARK_SCHEMA]))
    schema = StructType([full[column] for column in written.names])
    called = [field.metadata.pop(CALLED, field.name) for field in schema.fields]
    rows = spark.read.format(name).schema(schema).option("checkpoint", str(checkpoint)).load()
    with described(spark, f"{waiting.sink}: rows of checkpoint {checkpoint}"):
        func(rows if called == schema.names else rows.toDF(*called), checkpoint)
