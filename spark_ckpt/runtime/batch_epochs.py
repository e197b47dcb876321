"""What the batch that runs says of epochs, for rows that have none of their own: those of a static DataFrame, and those
that Spark's own sources read. Executor.

Spark logs each batch's offsets before it runs the batch, and those of ckpt sources have the epochs in them
(:mod:`spark_ckpt.protocol.source_offset`). Rows of a source are of the epoch that it had when the batch began; rows
that operators held back may be of later ones, up to the one behind the barrier that stands at the batch's end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.protocol.source_offset import SourceOffset
from spark_ckpt.sources.spark_stream import is_control, is_ours
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.offset_log import NOTHING, logged_batch
from spark_ckpt.types import CTL, TAG, make_tag

NEW = 1
"""In place of a stream's number, in the tag of static rows: those whose keys no stream has come with this epoch."""
LABELS = pa.schema([(TAG, pa.int64()), (CTL, pa.binary())])


@dataclass(frozen=True)
class _Source:
    """A ckpt source in the batch: the epoch of its rows, and that behind the batch. ``read``: there may be rows."""

    first: int
    last: int
    read: bool
    control: bool


class EpochsOfBatch:
    """For ``mapInArrow`` of one row. What comes out are the labels that the rows of a static DataFrame have in this
    batch: one of each epoch that rows of the streams may be of.

    ``start_epoch``: of batch 0. ``whole``: the query's output mode is complete, where rows come in front of a barrier
    that has passed all sources."""

    def __init__(self, location: str, storage: dict[str, Any], start_epoch: int, whole: bool) -> None:
        self.location, self.storage, self.start_epoch, self.whole = location, storage, start_epoch, whole

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if sum(batch.num_rows for batch in batches):
            tags = self._tags(*self._logged())
            yield pa.RecordBatch.from_arrays(
                [pa.array(tags, pa.int64()), pa.nulls(len(tags), pa.binary())], schema=LABELS
            )

    def _tags(self, sources: list[_Source], spark_read: bool) -> list[int]:
        first = min(s.first for s in sources)
        if self.whole:
            chosen, there = first, min(s.last for s in sources) > first
        else:
            chosen, there = max(s.first for s in sources), spark_read or any(s.read for s in sources)
        epochs = range(first, max(s.last for s in sources) + 1)
        return [make_tag(epoch, NEW if there and epoch == chosen else 0) for epoch in epochs]

    def _logged(self) -> tuple[list[_Source], bool]:
        """The ckpt sources, and whether one of Spark's own read anything."""
        folder = Folder(self.location, self.storage)
        batch = max((int(n) for n in folder.names("offsets") if n.isdigit()), default=-1)
        lines, before = _lines(folder, batch), _lines(folder, batch - 1)
        before = before if len(before) == len(lines) else [NOTHING] * len(lines)
        found, spark_read = [], False
        for line, old in zip(lines, before, strict=True):
            if is_ours(_offset(line)):
                found.append(self._source(line, old))
            else:
                spark_read = spark_read or line != old
        if not found:
            raise CorruptStorageError(
                f"{folder.shown('offsets')}: expected the offsets of the batch that runs, found none; was the query's "
                "Spark location moved or removed while it runs? Start again"
            )
        return found, spark_read

    def _source(self, line: str, before: str) -> _Source:
        offset, control = SourceOffset.from_json(_offset(line)), is_control(_offset(line))
        first = self.start_epoch if before == NOTHING else SourceOffset.from_json(_offset(before)).epoch
        # One that stands still has the offset of the batch before, with all that it says.
        return _Source(first, offset.epoch, bool(offset.read) and line != before and not control, control)


class EpochOfSparkStreams(EpochsOfBatch):
    """The label of what Spark's own sources read in this batch: that of the source which sends their barriers."""

    def _tags(self, sources: list[_Source], spark_read: bool) -> list[int]:
        return [make_tag(s.first) for s in sources if s.control]


def _lines(folder: Folder, batch: int) -> list[str]:
    """Of each source, in one order."""
    content = folder.read(f"offsets/{batch}") if batch >= 0 else None
    return [] if content is None else list(logged_batch(content).sources.values())


def _offset(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
