"""What stands beside a stream that Spark itself reads: no rows, and an offset that follows that stream's.

``readStream.spark(df)`` is a union of ``df`` and this source. Barriers come from here; the rows come from Spark's own
source, of which nothing is known in this process but what Spark logs. Spark writes ``offsets/N`` before it runs batch
N, so when the next batch is asked for, the log tells what the last one read.

Offset: ``{"streams": [text], "looks": n}``: the other source's offset, as Spark logged it with the newest batch that
was seen. So it moves one batch behind the rows: that batch more lets event-time time-outs fire, and an offset that
stands still says that the last batch had no rows, which is the end under ``Trigger.AvailableNow``. Where nobody needs
to know, it stands still. ``looks`` counts the starts that look for the end: each makes a batch, and has its answer with
the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.sources.base import UsesMetadata
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.object_options import scheme_of

LOCATION = "location"
"""Option: Spark's own location of the query, set at start."""
FOLLOW = "follow"
"""Option, "true" where time-outs wait for the event time: what was read is followed by one batch more."""

_NOTHING = "-"
"""In the log: a source that has not had anything yet."""
_OURS = {"origin", "inner", "epoch"}
"""What an offset of a ckpt source has; see :class:`spark_ckpt.protocol.source_offset.SourceOffset`."""


def followed(location: str, event_time: bool) -> dict[str, str]:
    """Driver, at start: its options."""
    return {LOCATION: location, FOLLOW: "true" if event_time else "false"}


def position_of(recorded: Mapping[str, Any] | None) -> Any:
    """What Spark's source said in the log, of what a checkpoint remembers; None if it had said nothing."""
    streams = [] if recorded is None else recorded.get("streams", [])
    if len(streams) > 1:
        raise CorruptStorageError(f"expected the offset of one stream in the checkpoint, found {len(streams)}")
    return json.loads(streams[0]) if streams and streams[0] != _NOTHING else None


class SparkStream(UsesMetadata, DataSource):
    """One stream of Spark's own. The schema is that of its rows, and is the user's."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._location = options.get(LOCATION, "")
        self._follow = options.get(FOLLOW) == "true"

    @classmethod
    def name(cls) -> str:
        return "spark-stream"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        # The job's storage options are for where the job is.
        own = scheme_of(self._location) == scheme_of(self.metadata_url)
        return _Reader(self._location, dict(self.storage_options) if own else {}, self._follow)


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Driver, source process; executors never read anything of it."""

    def __init__(self, location: str, storage: Mapping[str, Any], follow: bool) -> None:
        self._log = _OffsetLog(location, storage)
        self._follow = follow
        self._look_for_end = False
        self._begun = False

    def initialOffset(self) -> dict[str, Any]:
        return {"streams": [], "looks": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        first, self._begun = not self._begun, True
        streams = self._log.newest() if self._follow or self._look_for_end else None
        found = {**start, "streams": start["streams"] if streams is None else streams}
        if first and self._look_for_end:
            found["looks"] += 1
        return found

    def prepareForTriggerAvailableNow(self) -> None:
        self._look_for_end = True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise NotImplementedError("it has no splits")

    def batch_ended(self) -> None:
        """Spark has logged another batch."""
        self._log.look_again()

    def recorded(self, offset: dict[str, Any]) -> dict[str, Any]:
        """What a checkpoint behind the batch that ends at ``offset`` remembers: where that batch ended."""
        self._log.look_again()
        streams = self._log.newest()
        if not streams:
            raise CorruptStorageError(
                f"{self._log.shown}: expected the offsets of the batch that Spark is about to run, found none; was the "
                "query's Spark location moved or removed while it runs? Nothing of this batch was read; start again"
            )
        return {**offset, "streams": streams}


class _OffsetLog:
    """The newest file of ``offsets/`` in Spark's location. Looks there only when told that there may be a newer one."""

    def __init__(self, location: str, storage: Mapping[str, Any]) -> None:
        self._location, self._storage = location, storage
        self._folder: Folder | None = None
        self._batch: int | None = None
        self._streams: list[str] | None = None
        self._stale = True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_folder": None}

    @property
    def shown(self) -> str:
        return self._opened().shown("offsets")

    def look_again(self) -> None:
        self._stale = True

    def newest(self) -> list[str] | None:
        """Of the sources that are not ours, each offset as Spark logged it; None if there was no batch yet."""
        if self._stale:
            batch = self._newest_batch()
            if batch != self._batch:
                self._batch, self._streams = batch, self._read(batch)
            # Before batch 0 nobody says that there is another.
            self._stale = batch is None
        return self._streams

    def _newest_batch(self) -> int | None:
        if self._batch is not None and self._opened().read(f"offsets/{self._batch + 1}") is None:
            return self._batch
        return max((int(n) for n in self._opened().names("offsets") if n.isdigit()), default=None)

    def _read(self, batch: int | None) -> list[str] | None:
        """Behind the version and the batch's metadata stands one line a source."""
        content = None if batch is None else self._opened().read(f"offsets/{batch}")
        if content is None:
            return None
        return [line for line in content.decode().splitlines()[2:] if not _is_ours(line)]

    def _opened(self) -> Folder:
        if self._folder is None:
            self._folder = Folder(self._location, self._storage)
        return self._folder


def _is_ours(line: str) -> bool:
    try:
        value = json.loads(line)
    except ValueError:
        return False
    return isinstance(value, dict) and value.keys() >= _OURS
