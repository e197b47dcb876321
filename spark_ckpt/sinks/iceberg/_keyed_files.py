"""What tasks stage of rows that are merged by key: files that the commit reads and that the table never has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_ckpt.sinks import staging
from spark_ckpt.sinks.base import WriterContext
from spark_ckpt.sinks.iceberg._data_files import KIND, ParquetFile, told_of
from spark_ckpt.sinks.iceberg._types import iceberg_arrow

if TYPE_CHECKING:
    from pyiceberg.table import Table


class KeyedFile(ParquetFile):
    """Rows in their order, with the column of changes."""

    def __init__(
        self, table: Table, stem: str, ctx: WriterContext, shown: str, keys: Sequence[str], change: str | None
    ) -> None:
        location = table.location_provider().new_data_location(f"{stem}.parquet")
        super().__init__(table, location, ctx, iceberg_arrow(ctx.schema), shown)
        self._keys, self._change, self._count = list(keys), change, 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._count += batch.num_rows
        super().write(batch)

    def _finish(self) -> bytes:
        super()._finish()
        what = {"file": self._location, "rows": self._count, **told_of(self._table)}
        return staging.encode(KIND, keys=self._keys, change=self._change, **what)
