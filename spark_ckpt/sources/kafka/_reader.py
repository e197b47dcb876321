"""The stream reader of the ``kafka`` source. Driver: offsets, plans, the consumer group. Executor: ``read``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import KafkaException, Message
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sources._convert import arrow_schema, pieces
from spark_ckpt.sources.kafka._brokers import Brokers
from spark_ckpt.sources.kafka._fetch import DataLossError, messages
from spark_ckpt.sources.kafka._limits import ends_of, first_places, last_places
from spark_ckpt.sources.kafka._options import starting_offsets
from spark_ckpt.sources.kafka._positions import (
    KafkaSplit,
    Places,
    Position,
    Range,
    as_json,
    bounded,
    cut,
    limited,
    new_records,
    ranges_between,
)
from spark_ckpt.sources.kafka._rows import rows
from spark_ckpt.spark_versions.read_limits import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from spark_ckpt.storage.record_store import Exists, RecordStore

if TYPE_CHECKING:
    from spark_ckpt.sources.kafka.source import KafkaSource

_logger = logging.getLogger(__name__)

_ASKED_AT_MOST = 5
"""Of this part of the time, one: Spark asks for the latest offset every 10 ms."""
_LONGEST_PAUSE_S = 0.5
_COMMIT_S = 15.0


class KafkaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offset: ``{"offsets": {topic: {partition: next offset}}, "ids": {topic: id}}``."""

    def __init__(self, source: KafkaSource, schema: StructType, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._schema = arrow_schema(schema)
        self._clock = clock
        self._conf = source.client_conf()
        self._values = source.values()
        self._connected: Brokers | None = None
        self._pinned: Position | None = None
        self._newest: Position | None = None
        self._end: Places | None = None
        self._knows_end = False
        self._ask_again_at = float("-inf")
        self._last_batch_at = float("-inf")
        self._commit: Future[Any] | None = None
        self._untold: dict[str, Any] | None = None
        self._warned: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connected": None, "_commit": None}

    # -- where it is (driver) --------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        return Position.of(self._range()["start"]).offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark knows one limit; any but ReadAllAvailable stands for all of this source's options here.
        return ReadMaxRows(self._source.parsed["maxOffsetsPerTrigger"] or 2**31 - 1)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Whatever the trigger, what was read and what is still to be read is looked for first."""
        at, everything = Position.of(start), isinstance(limit, ReadAllAvailable)
        now = self._now()
        self._check_there(at, now)
        if self._pinned is not None:
            self._check_there(self._pinned, now)
        end = self._not_back(at, self._bounded(self._pinned or now))
        new, o, self._newest = new_records(at, end), self._source.parsed, end
        if not new or (not everything and self._pinned is None and self._put_off(new)):
            return start
        self._last_batch_at = self._clock()
        most = o["maxOffsetsPerTrigger"]
        return (end if everything or most is None else limited(at, end, most)).offset()

    def prepareForTriggerAvailableNow(self) -> None:
        self._pinned = self._now()

    def starting_from(self, asked: str | dict[str, Any]) -> dict[str, Any]:
        """Offsets as option ``startingOffsets`` takes them, or as checkpoints keep them. Of now: :meth:`initialOffset`
        is where the job began."""
        brokers, parsed = self._brokers(), dict(self._source.parsed)
        ids, partitions = brokers.topics(self._source.wanted)
        brokers.require_read(ids)
        if asked != "none":
            parsed |= {name: None for name in parsed if name.startswith("startingTimestamp")}
            parsed |= {"startingOffsetsByTimestamp": None, "startingOffsets": starting_offsets(asked)}
        return Position(first_places(brokers, parsed, partitions), ids).offset()

    def ending_at(self, asked: str | dict[str, Any]) -> dict[str, Any]:
        """Of each partition an offset, or that of the first record of a time or later."""
        brokers = self._brokers()
        _, partitions = brokers.topics(self._source.wanted)
        return {"offsets": as_json(ends_of(brokers, asked, partitions))}

    def clipped(self, start: dict[str, Any], found: dict[str, Any], end: dict[str, Any]) -> dict[str, Any] | None:
        at, now = Position.of({"ids": {}, **start}), Position.of({"ids": {}, **found})
        stop = bounded(at, now, Position.of({**end, "ids": {}}).places)
        return None if stop is None else stop.offset()

    def behind(self, offset: dict[str, Any]) -> int | None:
        """Records, up to where the last look found an end."""
        return None if self._newest is None else new_records(Position.of(offset), self._newest)

    def finished(self, offset: dict[str, Any]) -> bool:
        """At the end that the options give; never without one."""
        end = self._ending()
        places = Position.of(offset).places
        return end is not None and all(places.get(p, 0) >= at for p, at in end.items())

    def commit(self, end: dict[str, Any]) -> None:
        """Tells the consumer group, for tools that show how far behind it is; nothing is ever read from there."""
        if self._commit is not None and self._commit.done():
            self._told()
        self._untold = end
        if self._commit is None:
            self._tell()

    def stop(self) -> None:
        """Waits some seconds at most until the group has heard of the last offset that was committed."""
        self._told()
        self._tell()
        self._told()
        self._connected = None

    def _tell(self) -> None:
        end, self._untold = self._untold, None
        places = Position.of(end).places if end is not None else {}
        if places:  # of a pattern that no topic matches yet there are none, and the client refuses an empty list
            self._commit = self._brokers().commit(self._source.group, places)

    def _told(self) -> None:
        commit, self._commit = self._commit, None
        try:
            if commit is not None:
                commit.result(_COMMIT_S)
        except (KafkaException, TimeoutError) as error:
            _logger.warning(
                "consumer group %s was not told how far the job is (%s); the job itself goes on",
                self._source.group,
                error,
            )

    # -- plans (driver) ------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        at, behind, o = Position.of(start), Position.of(end), self._source.parsed
        there = self._still_there(at, behind)
        return [
            KafkaSplit(r, behind.ids[r.partition.topic])
            for r in cut(there, o["minPartitions"], o["maxRecordsPerPartition"])
        ]

    def _still_there(self, start: Position, end: Position) -> list[Range]:
        """The ranges of a batch without what is gone. What goes from now on is noticed when it is read."""
        ranges = ranges_between(start, end)
        ids, partitions = self._brokers().described({r.partition.topic for r in ranges})
        gone = [
            r
            for r in ranges
            if ids.get(r.partition.topic) != end.ids[r.partition.topic] or r.partition not in partitions
        ]
        for r in gone:
            self._lost(f"{r.partition}, offsets {r.start} to {r.end}: the topic was deleted or made again")
        rest = [r for r in ranges if r not in gone]
        first = self._brokers().earliest(r.partition for r in rest)
        for r in rest:
            if first[r.partition] > r.start:
                self._lost(f"{r.partition}: offsets {r.start} to {min(first[r.partition], r.end)} are gone")
        kept = (r._replace(start=max(r.start, first[r.partition])) for r in rest)
        return [r for r in kept if r.size > 0]

    # -- reading (executor) ----------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, KafkaSplit)
        at = partition.range.start
        try:
            for found in messages(partition.range, partition.topic_id, self._conf, self._source.timeout_s):
                at = found[-1].offset() + 1
                yield from pieces(self._rows(found, partition))
        except DataLossError as loss:
            self._lost(str(loss))
            yield from self._rest(partition, at)

    def _rows(self, found: list[Message], split: KafkaSplit) -> pa.RecordBatch:
        headers, partition = self._source.parsed["includeHeaders"], split.range.partition
        if self._values is None:
            return rows(found, partition, headers)
        good, values = self._values.decoded(found, partition, split.topic_id)
        return rows(good, partition, headers, values)

    def _rest(self, split: KafkaSplit, at: int) -> Iterator[pa.RecordBatch]:
        """What is still there of a range whose records went while it was read; only without ``failOnDataLoss``."""
        partition = split.range.partition
        brokers = Brokers(self._conf, self._source.timeout_s)
        ids, there = brokers.described([partition.topic])
        if ids.get(partition.topic) != split.topic_id or partition not in there:
            return
        first = brokers.earliest([partition])[partition]
        rest = Range(partition, max(first, at), min(split.range.end, brokers.latest([partition])[partition]))
        if rest.start > at and rest.size > 0:
            yield from self.read(KafkaSplit(rest, split.topic_id))

    # -- helpers (driver) ------------------------------------------------------------------------------------------

    def _range(self) -> dict[str, Any]:
        """Where this job begins and ends, decided once: a crash before the record is there decides anew, as nothing
        was read; behind it everybody finds the record."""
        store = RecordStore(self._source.metadata_url, self._source.storage_options)
        name = self._source.range_record()
        known = store.read(name, "kafka-range")
        if known is not None:
            return known
        brokers, parsed = self._brokers(), self._source.parsed
        ids, partitions = brokers.topics(self._source.wanted)
        brokers.require_read(ids)
        end = last_places(brokers, parsed, partitions)
        start = Position(first_places(brokers, parsed, partitions), ids)
        body = {"start": start.offset(), "end": None if end is None else as_json(end)}
        created = store.create(name, "kafka-range", body)
        return created.body if isinstance(created, Exists) else body

    def _ending(self) -> Places | None:
        if not self._knows_end:
            bounded = any(
                self._source.parsed[name] is not None for name in self._source.parsed if name.startswith("ending")
            )
            found = self._range()["end"] if bounded else None
            self._end = None if found is None else Position.of({"offsets": found, "ids": {}}).places
            self._knows_end = True
        return self._end

    def _bounded(self, end: Position) -> Position:
        last = self._ending()
        if last is None:
            return end
        return Position({p: min(at, last[p]) for p, at in end.places.items() if p in last}, end.ids)

    def _now(self) -> Position:
        """Behind the newest records. Does not come back sooner than is fair to the brokers."""
        time.sleep(min(_LONGEST_PAUSE_S, max(0.0, self._ask_again_at - self._clock())))
        began = self._clock()
        ids, partitions = self._brokers().topics(self._source.wanted)
        found = Position(self._brokers().latest(partitions), ids)
        ended = self._clock()
        self._ask_again_at = ended + (_ASKED_AT_MOST - 1) * (ended - began)
        return found

    def _check_there(self, start: Position, now: Position) -> None:
        """What the job has read from is there, and not shorter, as after an unclean leader election."""
        for topic, known in start.ids.items():
            found = now.ids.get(topic)
            if found is None:
                self._lost(f"topic {topic} was deleted, or the options do not name it any more")
            elif found != known:
                self._lost(f"topic {topic} was deleted and made again (id {known}, now {found})")
        for p, at in start.places.items():
            same = start.ids.get(p.topic) == now.ids.get(p.topic)
            if same and p not in now.places:
                self._lost(f"Partition {p} is gone, or the options do not name it any more")
            elif same and now.places[p] < at:
                self._lost(f"Partition {p}'s offset was changed from {at} to {now.places[p]}")

    def _not_back(self, start: Position, end: Position) -> Position:
        """An end that was decided before may be behind where the job is."""
        if self._pinned is None and self._ending() is None:
            return end
        return Position({p: max(at, start.start_of(p, end)) for p, at in end.places.items()}, end.ids)

    def _put_off(self, new: int) -> bool:
        least = self._source.parsed["minOffsetsPerTrigger"]
        waited = self._clock() - self._last_batch_at
        return least is not None and new < least and waited < self._source.parsed["maxTriggerDelay"]

    def _lost(self, what: str) -> None:
        if self._source.parsed["failOnDataLoss"]:
            raise InvalidInputError(
                f"{what}. Some data may have been lost because they are not available in Kafka any more; either the"
                " data was aged out by Kafka or the topic may have been deleted before all the data in the topic was"
                " processed. If you don't want your streaming query to fail on such cases, set the source option"
                " 'failOnDataLoss' to 'false'"
            )
        if what not in self._warned:  # once: it is looked for again before every batch
            self._warned.add(what)
            _logger.warning("%s; the job goes on without what is gone (failOnDataLoss=false)", what)

    def _brokers(self) -> Brokers:
        if self._connected is None:
            self._connected = self._source.brokers()
        return self._connected
