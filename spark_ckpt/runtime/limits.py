"""``limit`` of whole results, in Arrow. Executor."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_ckpt.runtime.stateless import runs_of_tag, split_control
from spark_ckpt.types import epoch_of_tag


class FirstOfResult:
    """The first ``n`` data rows of each epoch in a task, in their order. Control rows pass, all of them.

    An epoch is a result: a batch may have several, where a checkpoint was declined.
    """

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        room: dict[int, int] = {}
        for batch in batches:
            data, control = split_control(batch)
            for tag, rows in runs_of_tag(data):
                epoch = epoch_of_tag(tag)
                left = room.get(epoch, self.n)
                room[epoch] = left - min(left, rows.num_rows)
                if left:
                    yield rows.slice(0, left)
            if control.num_rows:
                yield control
