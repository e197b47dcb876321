"""Static sides of joins in an executor's Python processes: where they come from, and those that are ready to be asked.

A process serves many tasks and batches. What it has made of a static side stays as long as its contents do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import xxhash
from pyspark import SparkFiles

from spark_ckpt.errors import RetryableError
from spark_ckpt.expressions.evaluate import column
from spark_ckpt.expressions.tree import Tree
from spark_ckpt.state.joins.static_index import StaticIndex

_KEPT = 8
"""Static sides that a process keeps: those of the joins of a query, and what a restarted query has anew."""


@dataclass(frozen=True)
class StaticSide:
    """The columns of all rows, each in one piece, and where keys lie."""

    columns: list[pa.Array]
    index: StaticIndex

    @property
    def rows(self) -> int:
        return len(self.columns[0]) if self.columns else 0


_ready: OrderedDict[tuple[str, tuple[Tree, ...]], StaticSide] = OrderedDict()


def static_side(digest: str, keys: tuple[Tree, ...], read: Callable[[], pa.Table]) -> StaticSide:
    """The static side whose contents have this digest; ``read`` is called unless it is ready."""
    place = digest, keys
    if place not in _ready:
        table = read().combine_chunks()
        columns = [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in table.columns]
        _ready[place] = StaticSide(columns, StaticIndex([column(key, columns, table.num_rows) for key in keys]))
    _ready.move_to_end(place)
    while len(_ready) > _KEPT:
        _ready.popitem(last=False)
    return _ready[place]


@dataclass(frozen=True)
class StaticFile:
    """A static side that never changes: a file that Spark brings to each machine. ``digest`` is of its contents."""

    name: str
    digest: str

    def __call__(self, keys: tuple[Tree, ...]) -> StaticSide:
        return static_side(self.digest, keys, self._read)

    def _read(self) -> pa.Table:
        """Mapped, so that the processes of a machine share its memory."""
        with pa.memory_map(str(self._path())) as mapped, pa.ipc.open_file(mapped) as file:
            return file.read_all()

    def _path(self) -> Path:
        own = Path(SparkFiles.get(self.name))
        if own.exists():
            return own
        raise RetryableError(
            f"expected a static side that Spark brings here as {own}, found none: start the query again"
        )


def carried_side(column: pa.ListArray, keys: tuple[Tree, ...], schema: pa.Schema) -> StaticSide:
    """The static side that the first row of ``column`` has, as a list of structs."""
    columns = [c.cast(f.type) for c, f in zip(column.slice(0, 1).flatten().flatten(), schema, strict=True)]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    digest = xxhash.xxh3_128_hexdigest(rows.serialize())
    return static_side(digest, keys, lambda: pa.Table.from_batches([rows]))
