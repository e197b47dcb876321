"""What stands beside the streams that Spark itself reads: no rows, and an offset that follows theirs.

``readStream.spark(df)`` is a union of ``df`` and this source; one does for all such streams of a query. Barriers come
from here; the rows come from Spark's own sources, of which nothing is known in this process but what Spark logs. Spark
writes ``offsets/N`` before it runs batch N, so when the next batch is asked for, the log tells what the last one read.

Offset: ``{"streams": {name: text}, "looks": n}``: the offset of each stream, as Spark logged it with the newest batch
that was seen. So it moves one batch behind the rows: that batch more lets event-time time-outs fire, and an offset that
stands still says that the last batch had no rows, which is the end under ``Trigger.AvailableNow``. Where nobody needs
to know, it stands still. ``looks`` counts the starts that look for the end: each makes a batch, and has its answer with
the next.

The rows have no epochs, so they count as before every barrier of their batch. Beside other sources, which send a
barrier each when it suits them, that is the truth only if this one is the last to send it. Spark's log says that, too:
it has the offsets of all sources.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.sources.base import UsesMetadata
from spark_ckpt.spark_versions.read_limits import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.object_options import scheme_of
from spark_ckpt.storage.offset_log import NOTHING, logged_batch

LOCATION = "location"
"""Option: Spark's own location of the query, set at start."""
FOLLOW = "follow"
"""Option, "true" where time-outs wait for the event time: what was read is followed by one batch more."""
NAMES = "names"
"""Option: the names of Spark's streams in the order of their lines in Spark's log, as JSON. One that stands in the plan
twice is one source, and has two lines."""

_OURS = {"origin", "inner", "epoch"}
"""What an offset of a ckpt source has; see :class:`spark_ckpt.protocol.source_offset.SourceOffset`."""
_CONTROL = {"streams", "looks"}


def followed(location: str, event_time: bool, names: Sequence[str]) -> dict[str, str]:
    """Driver, at start: its options."""
    return {LOCATION: location, FOLLOW: "true" if event_time else "false", NAMES: json.dumps(list(names))}


def position_of(recorded: Mapping[str, Any] | None, name: str) -> Any:
    """What Spark's source of the stream ``name`` said in the log, of what a checkpoint remembers; None if it had said
    nothing, or did not stand in the query."""
    text = ({} if recorded is None else recorded.get("streams", {})).get(name, NOTHING)
    return None if text == NOTHING else json.loads(text)


class SparkStream(UsesMetadata, DataSource):
    """All streams of a query that Spark reads. It has no columns of its own."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._location = options.get(LOCATION, "")
        self._follow = options.get(FOLLOW) == "true"
        self._names = tuple(json.loads(options.get(NAMES, "[]")))

    @classmethod
    def name(cls) -> str:
        return "spark-stream"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        # The job's storage options are for where the job is.
        own = scheme_of(self._location) == scheme_of(self.metadata_url)
        log = _OffsetLog(self._location, dict(self.storage_options) if own else {}, self._names)
        return _Reader(log, self._follow)


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Driver, source process; executors never read anything of it."""

    def __init__(self, log: _OffsetLog, follow: bool) -> None:
        self._log = log
        self._follow = follow
        self._look_for_end = False
        self._begun = False

    def initialOffset(self) -> dict[str, Any]:
        return {"streams": {}, "looks": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        first, self._begun = not self._begun, True
        logged = self._log.newest() if self._follow or self._look_for_end else None
        found = {**start, "streams": start["streams"] if logged is None else logged.streams}
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

    def injected(self) -> int:
        """The newest checkpoint whose barrier all other sources have sent, by the offsets that Spark has logged: 0 if
        there are none. What is logged is run before anything else, so it is so whatever happens then."""
        logged = self._log.newest()
        return 0 if logged is None else logged.injected

    def recorded(self, offset: dict[str, Any]) -> dict[str, Any]:
        """What a checkpoint behind the batch that ends at ``offset`` remembers: where that batch ended."""
        self._log.look_again()
        logged = self._log.newest()
        if logged is None:
            raise CorruptStorageError(
                f"{self._log.shown}: expected the offsets of the batch that Spark is about to run, found none; was the "
                "query's Spark location moved or removed while it runs? Nothing of this batch was read; start again"
            )
        return {**offset, "streams": logged.streams}


@dataclass(frozen=True)
class _Logged:
    """What Spark logged of a batch; see the module and :meth:`_Reader.injected`."""

    streams: dict[str, str]
    injected: int


class _OffsetLog:
    """The newest file of ``offsets/`` in Spark's location. Looks there only when told that there may be a newer one."""

    def __init__(self, location: str, storage: Mapping[str, Any], names: Sequence[str]) -> None:
        self._location, self._storage, self._names = location, storage, names
        self._folder: Folder | None = None
        self._batch: int | None = None
        self._logged: _Logged | None = None
        self._stale = True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_folder": None}

    @property
    def shown(self) -> str:
        return self._opened().shown("offsets")

    def look_again(self) -> None:
        self._stale = True

    def newest(self) -> _Logged | None:
        """None if there was no batch yet."""
        if self._stale:
            batch = self._newest_batch()
            if batch != self._batch:
                self._batch, self._logged = batch, self._read(batch)
            # Before batch 0 nobody says that there is another.
            self._stale = batch is None
        return self._logged

    def _newest_batch(self) -> int | None:
        if self._batch is not None and self._opened().read(f"offsets/{self._batch + 1}") is None:
            return self._batch
        return max((int(n) for n in self._opened().names("offsets") if n.isdigit()), default=None)

    def _read(self, batch: int | None) -> _Logged | None:
        content = None if batch is None else self._opened().read(f"offsets/{batch}")
        if content is None:
            return None
        lines = list(logged_batch(content).sources.values())
        ours = [offset for offset in map(_ours, lines) if offset is not None]
        spark = [line for line in lines if _ours(line) is None]
        streams = dict(zip(self._names, spark))
        if [streams.get(name) for name in self._names] != spark:
            raise CorruptStorageError(
                f"{self._opened().shown(f'offsets/{batch}')}: expected offsets of what Spark reads, "
                f"{', '.join(self._names)}, found {', '.join(spark)}; start the query that the location is of"
            )
        others = [offset["epoch"] - 1 for offset in ours if not is_control(offset)]
        return _Logged(streams, min(others, default=0))

    def _opened(self) -> Folder:
        if self._folder is None:
            self._folder = Folder(self._location, self._storage)
        return self._folder


def _ours(line: str) -> dict[str, Any] | None:
    """The offset of a ckpt source; None of any other."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if is_ours(value) else None


def is_ours(offset: Any) -> bool:
    """Whether Spark has ``offset``, as parsed from JSON, from a source of ours."""
    return isinstance(offset, dict) and offset.keys() >= _OURS


def is_control(offset: Any) -> bool:
    """Whether it has it from a :class:`SparkStream`."""
    return is_ours(offset) and isinstance(offset["inner"], dict) and offset["inner"].keys() >= _CONTROL
