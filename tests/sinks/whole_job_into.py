"""The whole job of :mod:`tests.storage.whole_job`, into sinks of any kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.jobs.spec import SinkSpec
from spark_ckpt.jobs.start import checked_sinks, validate_sinks
from spark_ckpt.types import Committable
from tests.storage.whole_job import KEYS, OUTPUT, TOPOLOGY, WholeJob

Rows = list[tuple[int, int, int]]


class JobInto(WholeJob):
    """It writes to ``given``: (format, options), each with a uid."""

    def __init__(self, root: Path, given: Sequence[tuple[str, Mapping[str, str]]]) -> None:
        self._given = checked_sinks([(kind, dict(options)) for kind, options in given])
        self.topology = replace(TOPOLOGY, sinks=tuple(s.id for s in self._given))
        super().__init__(root, retain="9")
        validate_sinks(self._given, None, OUTPUT)

    def _sinks(self) -> tuple[SinkSpec, ...]:
        return tuple(self._given)

    def _staged(self, spec: SinkSpec, rows: pa.RecordBatch, batch: int) -> list[Committable]:
        """Rejected rows are those that the database refuses when they are committed."""
        return [] if spec.refused_by else super()._staged(spec, rows, batch)

    @property
    def all_rows(self) -> Rows:
        return [(row, row % KEYS, row // KEYS + 1) for row in range(self.position)]


def rows_of(table: pa.Table) -> Rows:
    found = table.select(OUTPUT.names)
    return [tuple(row.values()) for row in found.take(pc.sort_indices(found["row"])).to_pylist()]
