"""Flink-style checkpoints for Spark Structured Streaming, in Python, without jars.

::

    spark.conf.set("spark.ckpt.dir", "/data/checkpoints")
    ckpt = spark_ckpt.enable(spark)
    orders = ckpt.readStream.format("files").option("fileFormat", "json").schema(ddl).load("/data/orders")
    totals = orders.groupBy("customer").aggregate(n=agg.count(), total=agg.sum("amount")).uid("totals")
    writer = totals.writeStream.format("delta").option("path", "/lake/totals").option("mergeKeys", "customer")
    query = writer.queryName("orders").start()

The session, its readers, DataFrames, writers and queries are the classes ``Ckpt...``; :func:`job` finds a job by its
folder, :func:`savepoint` a savepoint. A sink of one's own derives from :class:`TwoPhaseSink`, hooks from
:class:`CheckpointHooks`; a source of one's own is a Python streaming ``DataSource``. All that is raised on purpose is a
:class:`CkptError`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_ckpt import agg, errors
    from spark_ckpt.agg import AggSpec
    from spark_ckpt.api.query import CkptQuery
    from spark_ckpt.api.read import CkptDataStreamReader
    from spark_ckpt.api.session import CkptSession, enable
    from spark_ckpt.api.state import CkptAsOf, CkptState
    from spark_ckpt.api.write import CkptDataStreamWriter
    from spark_ckpt.config import JobConfig
    from spark_ckpt.errors import CkptError
    from spark_ckpt.jobs.checkpoints import Checkpoints
    from spark_ckpt.jobs.hooks import CheckpointHooks
    from spark_ckpt.jobs.job import Job, job
    from spark_ckpt.jobs.requests import Requested
    from spark_ckpt.jobs.rollback import AsOf, Rollback
    from spark_ckpt.jobs.savepoint import Savepoint, savepoint, savepoints
    from spark_ckpt.jobs.state import State
    from spark_ckpt.protocol.restore_plan import RestorePlan
    from spark_ckpt.sinks.base import PastRows, SinkWriter, TwoPhaseSink, WriterContext
    from spark_ckpt.sinks.registry import register_sink
    from spark_ckpt.sources.starting import starting_options
    from spark_ckpt.state.functions.base import CallContext
    from spark_ckpt.types import CONTROL_COLUMNS, CONTROL_ROW, CommitPermit, Committable

__version__ = "0.2.0"

__all__ = [
    "CONTROL_COLUMNS",
    "CONTROL_ROW",
    "AggSpec",
    "AsOf",
    "CallContext",
    "CheckpointHooks",
    "Checkpoints",
    "CkptAsOf",
    "CkptDataStreamReader",
    "CkptDataStreamWriter",
    "CkptError",
    "CkptQuery",
    "CkptSession",
    "CkptState",
    "CommitPermit",
    "Committable",
    "Job",
    "JobConfig",
    "PastRows",
    "Requested",
    "RestorePlan",
    "Rollback",
    "Savepoint",
    "SinkWriter",
    "State",
    "TwoPhaseSink",
    "WriterContext",
    "agg",
    "enable",
    "errors",
    "job",
    "register_sink",
    "savepoint",
    "savepoints",
    "starting_options",
]

# Spark starts half a dozen Python processes for a query, and each imports this package for one part of it. So a name
# brings its module along when it is first asked for.
_MODULES = {
    "CONTROL_COLUMNS": "types",
    "CONTROL_ROW": "types",
    "AggSpec": "agg",
    "AsOf": "jobs.rollback",
    "CkptAsOf": "api.state",
    "PastRows": "sinks.base",
    "Requested": "jobs.requests",
    "Rollback": "jobs.rollback",
    "CallContext": "state.functions.base",
    "CheckpointHooks": "jobs.hooks",
    "Checkpoints": "jobs.checkpoints",
    "CkptDataStreamReader": "api.read",
    "CkptDataStreamWriter": "api.write",
    "CkptQuery": "api.query",
    "CkptSession": "api.session",
    "CkptState": "api.state",
    "CkptError": "errors",
    "CommitPermit": "types",
    "RestorePlan": "protocol.restore_plan",
    "Committable": "types",
    "Job": "jobs.job",
    "JobConfig": "config",
    "Savepoint": "jobs.savepoint",
    "SinkWriter": "sinks.base",
    "State": "jobs.state",
    "TwoPhaseSink": "sinks.base",
    "WriterContext": "sinks.base",
    "enable": "api.session",
    "job": "jobs.job",
    "register_sink": "sinks.registry",
    "savepoint": "jobs.savepoint",
    "savepoints": "jobs.savepoint",
    "starting_options": "sources.starting",
}


if not TYPE_CHECKING:  # or any misspelt name would be one of type Any

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            found = getattr(importlib.import_module(f"spark_ckpt.{_MODULES[name]}"), name)
        elif name in __all__:
            found = importlib.import_module(f"spark_ckpt.{name}")
        else:
            raise AttributeError(f"module 'spark_ckpt' has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return [*globals(), *__all__]
