"""What the ``kafka`` source says of lost records: each trigger, what happened to the topic, ``failOnDataLoss``, and a
query that runs on or is started again. Against a real broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sources.base import InnerReader, open_source
from spark_ckpt.sources.kafka import _brokers
from spark_ckpt.testing.source_harness import batches, read
from tests.kafka_server import shared_kafka

TRIGGERS = ("processingTime", "once", "availableNow")
LOST = "Some data may have been lost"
GONE = "was deleted, or the options do not name it any more"


def produce(topic: str, numbers: range, partitions: int = 2) -> None:
    producer = Producer({"bootstrap.servers": shared_kafka().bootstrap})
    for n in numbers:
        producer.produce(topic, str(n), partition=n % partitions)
    assert producer.flush(60) == 0


def deleted(topic: str) -> None:
    admin = shared_kafka().admin()  # it must outlive what it was asked for
    admin.delete_topics([topic])[topic].result(60)
    while topic in admin.list_topics(timeout=60).topics:
        pass


def made_again(topic: str, count: int, partitions: int = 2) -> None:
    deleted(topic)
    shared_kafka().new_topic(partitions, name=topic)
    produce(topic, range(100, 100 + count), partitions)


def aged_out(topic: str, before: int) -> None:
    places, admin = [TopicPartition(topic, n, before) for n in range(2)], shared_kafka().admin()
    for done in admin.delete_records(places).values():
        done.result(60)


class Happened(NamedTuple):
    """To a topic of 20 records that were read and 20 that were not, half of each in either partition."""

    ways: tuple[str, ...]
    do: Callable[[str], None]
    says: str
    rest: list[int]
    """What there is to read, without ``failOnDataLoss``, by a reader that is made afterwards."""
    live_rest: list[int]
    """The same by one for ``availableNow`` that was made before."""


BOTH = ("subscribe", "subscribePattern")
UNREAD, NEW = list(range(20, 40)), list(range(100, 200))
TABLE = {
    "made again with less": Happened(BOTH, lambda t: made_again(t, 6), "was deleted and made again", NEW[:6], []),
    "made again with more": Happened(
        ("subscribe",), lambda t: made_again(t, 60), "was deleted and made again", NEW[:60], []
    ),
    "made again with fewer partitions": Happened(
        ("subscribePattern",), lambda t: made_again(t, 6, 1), "was deleted and made again", NEW[:6], []
    ),
    "deleted": Happened(("subscribePattern",), deleted, GONE, [], []),
    "aged out": Happened(
        (*BOTH, "assign"), lambda t: aged_out(t, 15), "offsets 10 to 15 are gone", UNREAD[10:], UNREAD[10:]
    ),
}


class Case:
    """A topic, and readers of it that know nothing of what comes."""

    def __init__(self, folder: Path, way: str) -> None:
        self.topic = shared_kafka().new_topic(2)
        self.way, self._folder = way, folder
        produce(self.topic, range(20))
        begun = self.open("true")
        self.at = begun.latest(begun.initial(), True)
        produce(self.topic, range(20, 40))

    def open(self, fail: str, way: str = "", value: str = "", trigger: str = "") -> InnerReader:
        values = {"subscribe": self.topic, "subscribePattern": f"{self.topic}.*", "assign": f'{{"{self.topic}":[0,1]}}'}
        way = way or self.way
        named = {way: value or values[way]}
        given = {"kafka.bootstrap.servers": shared_kafka().bootstrap, "startingOffsets": "earliest", **named}
        opened = open_source("kafka", {**given, "failOnDataLoss": fail}, None, str(self._folder / self.topic))
        reader = opened.reader(opened.schema())
        if trigger == "availableNow":
            reader.prepare_available_now()
        return reader


def rest(reader: InnerReader, at: Any, trigger: str) -> list[int]:
    """All that comes behind ``at``, as Spark reads it for this trigger."""
    ranges = batches(reader, at, limit_all=trigger == "once")
    return sorted(int(row[1]) for r in ranges for split in reader.splits(*r) for row in read(reader, split))


@pytest.fixture(autouse=True)
def _unknown_topics_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_brokers, "_UNKNOWN_FOR_S", 0.3)


@pytest.mark.parametrize(("what", "way"), [(what, way) for what, found in TABLE.items() for way in found.ways])
def test_lost_records_are_told_for_each_trigger_by_a_query_that_runs_and_one_that_is_started_again(
    tmp_path: Path, what: str, way: str
) -> None:
    happened, case = TABLE[what], Case(tmp_path, way)
    lax_rest = {"live": happened.live_rest, "restarted": happened.rest}
    live = {(t, fail): case.open(fail, trigger=t) for t in TRIGGERS for fail in ("true", "false")}
    happened.do(case.topic)
    for (trigger, fail), before in live.items():
        for when, reader in (("live", before), ("restarted", case.open(fail, trigger=trigger))):
            if fail == "true":
                with pytest.raises(InvalidInputError, match=f"{happened.says}.*{LOST}"):
                    rest(reader, case.at, trigger)
            else:
                expected = lax_rest[when if trigger == "availableNow" else "restarted"]
                assert rest(reader, case.at, trigger) == expected, (trigger, when)


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_topic_that_is_not_named_any_more_and_an_offset_behind_the_end_are_told_at_a_start(
    tmp_path: Path, trigger: str
) -> None:
    case, other = Case(tmp_path, "subscribe"), shared_kafka().new_topic(1)
    beyond = {**case.at, "offsets": {case.topic: {"0": 10, "1": 99}}}
    starts = [
        (("subscribe", other), case.at, f"topic {case.topic} {GONE}", []),
        (("subscribePattern", f"{other}.*"), case.at, f"topic {case.topic} {GONE}", []),
        (("assign", f'{{"{case.topic}":[0]}}'), case.at, f"Partition {case.topic}-1 is gone", UNREAD[::2]),
        ((), beyond, f"Partition {case.topic}-1's offset was changed from 99 to 20", None),
    ]
    for named, at, says, lax in starts:
        with pytest.raises(InvalidInputError, match=f"{says}.*{LOST}"):
            rest(case.open("true", *named, trigger=trigger), at, trigger)
        if lax is not None:
            assert rest(case.open("false", *named, trigger=trigger), at, trigger) == lax


@pytest.mark.parametrize("way", ["subscribe", "assign"])
def test_a_named_topic_that_is_gone_is_told_and_without_its_name_the_job_goes_on(tmp_path: Path, way: str) -> None:
    case, other = Case(tmp_path, way), shared_kafka().new_topic(2)
    produce(other, range(3))
    live = {trigger: case.open("true", trigger=trigger) for trigger in TRIGGERS}
    deleted(case.topic)
    for trigger, reader in live.items():
        for when in ("live", "restarted"):
            with pytest.raises(InvalidInputError, match=rf"found no {case.topic}.*failOnDataLoss"):
                rest(reader if when == "live" else case.open("true", trigger=trigger), case.at, trigger)
        named = (way, other if way == "subscribe" else f'{{"{other}":[0,1]}}')
        assert rest(case.open("false", *named, trigger=trigger), case.at, trigger) == [0, 1, 2]


def test_what_is_gone_is_warned_of_once_and_not_before_every_batch(tmp_path: Path, caplog: Any) -> None:
    case = Case(tmp_path, "subscribePattern")
    deleted(case.topic)
    reader = case.open("false")
    for _ in range(3):
        assert reader.latest(case.at, False) == case.at
    assert caplog.text.count("goes on without what is gone") == 1


def test_a_topic_that_goes_while_it_is_read_is_told_by_the_task(tmp_path: Path) -> None:
    case = Case(tmp_path, "subscribe")
    reader = case.open("true", trigger="availableNow")
    planned = reader.splits(case.at, reader.latest(case.at, False))
    made_again(case.topic, 60)
    with pytest.raises(InvalidInputError, match=f"made again, while it was read.*{LOST}"):
        [row for split in planned for row in read(reader, split)]


# -- a pattern without a topic -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_pattern_without_a_topic_has_no_rows_and_goes_on_when_one_appears(tmp_path: Path, trigger: str) -> None:
    case = Case(tmp_path, "subscribePattern")
    later = f"{case.topic}-later"

    def opened() -> InnerReader:
        return case.open("true", value=f"{later}.*", trigger=trigger)

    reader = opened()
    start = reader.initial()
    assert start == {"offsets": {}, "ids": {}}
    assert rest(reader, start, trigger) == []
    reader.commit(start)
    reader.stop()
    shared_kafka().new_topic(2, name=later)
    produce(later, range(5))
    again = opened()
    assert again.initial() == start
    assert rest(again, start, trigger) == list(range(5))
