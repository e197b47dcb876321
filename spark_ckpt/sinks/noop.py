"""The ``noop`` sink: writes nothing, as Spark's. For measurements of all that is in front of a sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from spark_ckpt.sinks._options import SinkOptions
from spark_ckpt.sinks.base import SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.types import CheckpointId, CommitPermit, Committable


class NoopSink(TwoPhaseSink):
    """No options."""

    CAN_REPLACE = True

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        SinkOptions("noop", options, ())

    def writer(self, ctx: WriterContext) -> SinkWriter:
        return _NoopWriter()

    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        """There is nothing to make visible."""

    def abort(self, committables: Sequence[Committable]) -> None:
        """There is nothing to remove."""

    def to_undo(self, job: str, sink: str, checkpoint: CheckpointId) -> str:
        """Nothing was kept, so it is in no rollback's way."""
        return ""


class _NoopWriter(SinkWriter):
    def write(self, batch: pa.RecordBatch) -> None:
        """Computed, and dropped."""

    def prepare_commit(self) -> Sequence[bytes]:
        return []

    def close(self) -> None:
        """Nothing is held."""
