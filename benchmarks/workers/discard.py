"""A sink that throws rows away, so that the benchmark measures everything but a database."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spark_ckpt.sinks.base import SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.types import CommitPermit, Committable


class _Writer(SinkWriter):
    def __init__(self) -> None:
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows

    def prepare_commit(self) -> Sequence[bytes]:
        return [str(self._rows).encode()]

    def close(self) -> None:
        pass


class DiscardSink(TwoPhaseSink):
    """Counts rows while writing; commits and aborts have nothing to do."""

    def writer(self, ctx: WriterContext) -> SinkWriter:
        return _Writer()

    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        pass

    def abort(self, committables: Sequence[Committable]) -> None:
        pass
