"""Flink-style checkpoints for Spark Structured Streaming, in Python, without jars."""

from __future__ import annotations

from spark_ckpt.agg import AggSpec
from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CkptError
from spark_ckpt.sinks.base import SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.sinks.registry import register_sink
from spark_ckpt.spark.hooks import CheckpointHooks
from spark_ckpt.spark.job import Job, job
from spark_ckpt.spark.session import enable
from spark_ckpt.state.function import CallContext
from spark_ckpt.types import CommitPermit, Committable

__version__ = "0.1.0"

__all__ = [
    "AggSpec",
    "CallContext",
    "CheckpointHooks",
    "CkptError",
    "CommitPermit",
    "Committable",
    "Job",
    "JobConfig",
    "SinkWriter",
    "TwoPhaseSink",
    "WriterContext",
    "enable",
    "job",
    "register_sink",
]
