"""What a sink ``memory`` has committed, as the rows of a task. Executor, on the machine that has the folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from spark_ckpt.sinks.memory import read


class MemoryRows:
    """Pickled into a view: it reads each time that the view is."""

    def __init__(self, root: Path, columns: Sequence[str]) -> None:
        self.root, self.columns = str(root), list(columns)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:  # the one row says when to read
            table = read(self.root)
            if table.num_rows:
                yield from table.select(self.columns).to_batches()
