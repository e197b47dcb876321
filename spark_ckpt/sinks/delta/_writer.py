"""The executor's half of the ``delta`` sink: rows into Parquet files of the table's folder, which no version names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from spark_ckpt import clock
from spark_ckpt.arrow_types import delta_schema
from spark_ckpt.expressions.printed_times import Days
from spark_ckpt.sinks import _changes as changes
from spark_ckpt.sinks import _durable as durable
from spark_ckpt.sinks import staging
from spark_ckpt.sinks._arrow_text import refuse_days
from spark_ckpt.sinks._parquet import open_parquet
from spark_ckpt.sinks.base import WriterContext
from spark_ckpt.sinks.delta._fitting import shape
from spark_ckpt.sinks.delta._stats import Seen, file_stats, first_leaves
from spark_ckpt.sinks.rejects import refuse_nulls

KIND = "delta"
DAYS = Days(-96_465_292, 95_026_236)
"""The years -262143 to 262142, which delta-rs has dates of. With one outside in its log it opens the table no more, and
a merge, whose files it writes itself, fails each time."""


def check_rows(
    batch: pa.RecordBatch, not_null: Sequence[str], change: str | None, keyed: bool, partitions: Sequence[str]
) -> None:
    """Raises ``BadRowError`` for what the table cannot hold."""
    refuse_nulls(batch, not_null)
    changes.check_rows(change, batch)
    if keyed:  # delta-rs lays out and writes what is merged
        refuse_days(pa.Table.from_batches([batch]), DAYS, "delta-rs in a merge")
    elif partitions:
        refuse_days(pa.Table.from_batches([batch]).select(partitions), DAYS, "a Delta table's partition")


class DeltaWriter(staging.FileWriter):
    """One Parquet file, row groups of some 128 K rows."""

    def __init__(
        self,
        files: pafs.FileSystem,
        ctx: WriterContext,
        keys: Sequence[str],
        folder: str | None,
        shown: str,
        partition: tuple[int, dict[str, str | None]] | None = None,
        change: str | None = None,
    ) -> None:
        super().__init__(f"staging rows in {shown}", ctx)
        number, self._partition = ("", {}) if partition is None else (f"-{partition[0]:05d}", partition[1])
        self._name = f"{staging.staged_name(ctx)}{number}.parquet"
        self._folder = folder
        self._files, self._keys, self._change = files, list(keys), change
        self._schema = delta_schema(ctx.schema)
        self._footers: list[Any] = []
        self._seen = Seen(self._schema)

    def _open(self, rows: pa.Table) -> tuple[Any, Any]:
        stream = self._files.open_output_stream(self._name)
        return stream, open_parquet(stream, self._schema, rows.cast(self._schema), metadata_collector=self._footers)

    def _put(self, rows: pa.Table) -> None:
        made = rows.cast(self._schema)
        self._seen.add(made)
        self._writer.write_table(made)

    def _finish(self) -> bytes:
        size = self._stream.tell()
        self._stream.close()
        if self._folder is not None:
            durable.sync([f"{self._folder}/{self._name}"])
        seen = self._seen
        stats = file_stats(self._footers[0], self._schema, first_leaves(self._schema), seen.nans, seen.lists)
        place: dict[str, Any] = {"partition": self._partition} if self._partition else {}
        place |= {"change": self._change} if self._change else {}
        columns = {f.name: shape(f.type) for f in changes.without(self._change, self._schema)}
        return staging.encode(
            KIND, file=self._name, size=size, stats=stats, written_ms=clock.now_ms(), keys=self._keys,
            columns=columns, nulls=sorted(seen.nulls), nans=sorted(seen.nans), **place,
        )  # fmt: skip
