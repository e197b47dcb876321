"""A sink with option ``rejects``, and the one for what it refuses, as a start makes them and a task writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from spark_ckpt.jobs.spec import JobPlace
from spark_ckpt.jobs.start import checked_sinks, validate_sinks
from spark_ckpt.protocol.steps import Tried
from spark_ckpt.sinks.base import Part, SinkWriter, TwoPhaseSink
from spark_ckpt.sinks.rejects import rejected
from spark_ckpt.sinks.together import commit_sinks, try_sinks
from spark_ckpt.storage.retry import Retry
from spark_ckpt.testing.sink_harness import context, permit
from spark_ckpt.types import Committable


class Rejecting:
    """``specs``: the sink's and that of its rejects. Each call makes both anew, as another process would."""

    def __init__(self, kind: str, options: Mapping[str, str], schema: pa.Schema, place: JobPlace | None = None) -> None:
        self.specs, self.schema = checked_sinks([(kind, {"uid": "s", **options})]), schema
        validate_sinks(self.specs, place, schema)  # type: ignore[arg-type]

    def make(self) -> dict[str, TwoPhaseSink]:
        return {s.id: s.make() for s in self.specs}

    def stage(self, rows: pa.Table | Sequence[tuple[Any, ...]], epoch: int = 1, batch: int = 1) -> list[Committable]:
        """One task's, which Spark gives the rows in one batch."""
        table = rows if isinstance(rows, pa.Table) else pa.table(list(map(list, zip(*rows))), schema=self.schema)
        sinks, elsewhere = self.make(), []
        ctx = context(epoch, batch, sink="s-rejects", schema=self.specs[1].rows(self.schema))
        beside = sinks["s-rejects"].writer(ctx)

        def refused(row: pa.Table, error: Any) -> None:
            elsewhere.append(row)
            beside.write(rejected(row, [error], "s", ctx.epoch))

        writer = sinks["s"].writer(replace(context(epoch, batch, sink="s", schema=self.schema), refused=refused))
        try:
            for part in table.to_batches():
                writer.write(part)
            return [*_prepared(writer, "s", epoch), *_prepared(beside, "s-rejects", epoch)]
        finally:
            writer.close()
            beside.close()

    def parts(self, staged: Sequence[Committable]) -> dict[str, Part]:
        made = self.make()
        found = {n: Part(sink, [c for c in staged if c.sink == n]) for n, sink in made.items()}
        return {n: p for n, p in found.items() if p.committables}

    def tried(self, staged: Sequence[Committable]) -> Tried:
        return try_sinks(self.parts(staged), Retry(1))

    def commit(self, staged: Sequence[Committable], checkpoint: int = 1) -> None:
        for error in commit_sinks(permit(checkpoint), list(self.parts(staged).values()), Retry(1)):
            if error is not None:
                raise error


def _prepared(writer: SinkWriter, sink: str, epoch: int) -> list[Committable]:
    ctx = context(epoch, 1, sink=sink)
    return [Committable(sink, ctx.epoch, data) for data in writer.prepare_commit()]
