"""The ``kafka`` source against a real broker: where it begins and ends, what it notices, and brokers that are away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from spark_ckpt.api._spark_import import spark_offset_options
from spark_ckpt.api._written_state import positions
from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError, InvalidInputError, RetryableError
from spark_ckpt.execution.lineage import SourceNode
from spark_ckpt.sources.base import InnerReader, open_source
from spark_ckpt.sources.kafka import _consumers
from spark_ckpt.sources.kafka._reader import KafkaReader
from spark_ckpt.sources.kafka.source import KafkaSource
from spark_ckpt.testing.source_harness import batches, read
from tests.kafka_server import PASSWORD, USER, KafkaServer, shared_kafka

LOST = "Some data may have been lost because they are not available in Kafka any more"
HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}
"""Records of that time are removed without it."""

Open = Callable[..., InnerReader]


@pytest.fixture
def open_(tmp_path: Path) -> Open:
    """A reader as a (re)started driver makes it, of the same job for the same ``name``."""

    def made(topic: str | None, name: str = "a", kafka: KafkaServer | None = None, **options: str) -> InnerReader:
        given = {"kafka.bootstrap.servers": (kafka or shared_kafka()).bootstrap, "startingOffsets": "earliest"}
        subscribed = {} if topic is None else {"subscribe": topic}
        opened = open_source("kafka", {**given, **subscribed, **options}, None, str(tmp_path / name))
        return opened.reader(opened.schema())

    return made


def produce(topic: str, count: int, partitions: int = 1, kafka: KafkaServer | None = None, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": (kafka or shared_kafka()).bootstrap})
    failed: list[Any] = []

    def told(error: Any, _: Any) -> None:
        failed.append(error)

    for n in range(first, first + count):
        at = NOW_MS + n * HOUR_MS
        producer.produce(topic, f"v{n}", f"k{n}", n % partitions, timestamp=at, on_delivery=told)
    assert producer.flush(60) == 0
    assert not any(failed)


def values(reader: InnerReader, start: Any, end: Any) -> list[str]:
    return sorted(row[1].decode() for split in reader.splits(start, end) for row in read(reader, split))


def new_topic(count: int, partitions: int = 1) -> str:
    topic = shared_kafka().new_topic(partitions, KEPT)
    produce(topic, count, partitions)
    return topic


def places(offset: Any) -> list[int]:
    return [at for topic in offset["offsets"].values() for at in topic.values()]


def made_again(topic: str, count: int) -> None:
    admin = shared_kafka().admin()  # it must outlive what it was asked for
    admin.delete_topics([topic])[topic].result(60)
    while topic in admin.list_topics(timeout=60).topics:
        pass
    shared_kafka().new_topic(1, KEPT, topic)
    produce(topic, count)


# -- where it begins and ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest"}, [0, 0]),
        ({"startingOffsets": "latest"}, [5, 5]),
        ({"startingOffsets": '{"T":{"0":3,"1":-1}}'}, [3, 5]),
        ({"startingOffsets": '{"T":{"0":-2,"1":5}}'}, [0, 5]),
        ({"startingTimestamp": str(NOW_MS + 4 * HOUR_MS)}, [2, 2]),
        ({"startingTimestamp": str(NOW_MS + 4 * HOUR_MS), "startingOffsets": "latest"}, [2, 2]),
        ({"startingOffsetsByTimestamp": f'{{"T":{{"0":{NOW_MS + 1},"1":{NOW_MS}}}}}'}, [1, 0]),
        ({"startingTimestamp": str(NOW_MS + 99 * HOUR_MS), "startingOffsetsByTimestampStrategy": "latest"}, [5, 5]),
    ],
)
def test_it_begins_where_the_options_say_and_again_there(open_: Open, options: dict[str, str], expected: Any) -> None:
    topic = new_topic(10, 2)
    given = {k: v.replace('"T"', f'"{topic}"') for k, v in options.items()}
    first = open_(topic, **given).initial()
    assert places(first) == expected
    produce(topic, 4, 2)
    assert open_(topic, **given).initial() == first


def test_offsets_in_the_checkpoint_of_a_plain_spark_query_are_where_its_import_goes_on(tmp_path: Path) -> None:
    topic = new_topic(10, 2)
    options = {"kafka.bootstrap.servers": shared_kafka().bootstrap, "subscribe": topic, "startingTimestamp": "5"}
    node = SourceNode("kafka", options, KafkaSource(options).schema(), "orders")
    config = JobConfig.from_options({"dir": str(tmp_path)})

    def goes_on(offset: Any) -> list[int]:
        given = spark_offset_options("orders", node, offset)
        return places(positions(node, config, "orders", None, given)(str(tmp_path / "made")))

    assert goes_on({topic: {"0": 3, "1": 5}}) == [3, 5]
    with pytest.raises(InvalidInputError, match=r"specify all TopicPartitions\. Use -1 for latest, -2 for earliest"):
        goes_on({topic: {"0": 3}})
    assert goes_on({topic: {"0": 3, "1": -2}}) == [3, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": '{"T":{"0":3}}'}, "If startingOffsets contains specific offsets, you must specify all"),
        ({"startingOffsets": '{"T":{"0":3,"1":99}}'}, "expected an offset from 0 to 5 for .*-1, found 99"),
        ({"startingTimestamp": str(NOW_MS + 99 * HOUR_MS)}, "No offset matched from request of topic-partition .*-0"),
        ({"subscribe": "", "assign": '{"T":[0,7]}'}, "found no .*-7; create what is missing"),
        ({"subscribe": "no-such-topic"}, "expected topics no-such-topic, found no no-such-topic"),
    ],
)
def test_a_start_that_cannot_be_is_refused(open_: Open, options: dict[str, str], message: str) -> None:
    topic = new_topic(10, 2)
    given = {k: v.replace('"T"', f'"{topic}"') for k, v in {"subscribe": topic, **options}.items()}
    with pytest.raises(InvalidInputError, match=message):
        open_(None, **{k: v for k, v in given.items() if v}).initial()


def test_a_source_that_is_sent_elsewhere_begins_there_as_it_is_now(open_: Open) -> None:
    """Also ``none``, where the options say: not where the job began by them."""
    topic = new_topic(4, partitions=2)
    open_(topic, startingOffsets="latest").initial()
    produce(topic, 4, partitions=2)
    given = {topic: {"0": 1, "1": -2}}
    for asked, expected in (("earliest", [0, 0]), ("latest", [4, 4]), ("none", [4, 4]), (given, [1, 0])):
        found = open_(topic, startingOffsets="latest").starting_from(asked)
        assert places(found) == expected
        assert open_(topic).starting_from(found) == found, "as checkpoints keep it"
    for wrong, message in (
        ({topic: {"0": 1}}, "you must specify all TopicPartitions"),
        ({topic: {"0": 9, "1": 0}}, "expected an offset from 0 to 4"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            open_(topic).starting_from(wrong)
    with pytest.raises(ConfigError, match="startingFrom: expected an offset of source 'kafka'"):
        open_(topic).starting_from({"nothing": 1})


def test_with_an_end_it_is_finished_there_whatever_comes_later(open_: Open) -> None:
    topic = new_topic(10, 2)
    reader = open_(topic, endingOffsets="latest", maxOffsetsPerTrigger="4")
    start = reader.initial()
    produce(topic, 6, 2, first=10)
    ranges = batches(reader, start)
    assert [v for r in ranges for v in values(reader, *r)] != []
    assert sorted(v for r in ranges for v in values(reader, *r)) == sorted(f"v{n}" for n in range(10))
    assert [reader.finished(end) for _, end in ranges] == [False, False, True]
    assert open_(topic, endingOffsets="latest").finished(ranges[-1][1])


def test_a_run_ends_at_an_offset_or_in_front_of_a_time_and_the_next_goes_on_from_there(open_: Open) -> None:
    topic = new_topic(8, 2)  # record n is of hour n, in partition n % 2
    third = datetime.fromtimestamp((NOW_MS + 3 * HOUR_MS) / 1000, timezone.utc).isoformat()
    later = datetime.fromtimestamp((NOW_MS + 99 * HOUR_MS) / 1000, timezone.utc).isoformat()
    end = open_(topic).ending_at(third)
    assert end == {"offsets": {topic: {"0": 2, "1": 1}}}
    assert open_(topic).ending_at(later) == {"offsets": {topic: {"0": 4, "1": 4}}}
    assert open_(topic).ending_at({topic: {"0": 2, "1": -2}}) == {"offsets": {topic: {"0": 2, "1": 0}}}
    reader = open_(topic, maxOffsetsPerTrigger="2")
    reader.end_at(end)
    ranges = batches(reader, start := reader.initial())
    there = ranges[-1][1]
    assert {**there, **end} == there
    assert values(open_(topic), start, there) == ["v0", "v1", "v2"]
    assert values(open_(topic), there, open_(topic).latest(there, True)) == ["v3", "v4", "v5", "v6", "v7"]
    waits = open_(topic)
    waits.end_at(waits.ending_at({topic: {"0": 6, "1": 4}}))
    short = waits.latest(start, True)
    assert places(short) == [4, 4], "what is missing is still to come"
    produce(topic, 6, 2, first=8)
    assert places(waits.latest(short, True)) == [6, 4]
    with pytest.raises(InvalidInputError, match="you must specify all TopicPartitions"):
        open_(topic).ending_at({topic: {"0": 2}})


def test_fewer_than_the_least_wait_for_more_or_for_the_delay(tmp_path: Path) -> None:
    topic, now = new_topic(10), [0.0]
    given = {"kafka.bootstrap.servers": shared_kafka().bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    source = KafkaSource({**given, "minOffsetsPerTrigger": "10", "maxTriggerDelay": "1m"})
    source.metadata_url = str(tmp_path)
    reader = KafkaReader(source, source.schema(), lambda: now[0])
    limit, at = reader.getDefaultReadLimit(), reader.initialOffset()
    at = reader.latestOffset(at, limit)
    produce(topic, 3, first=10)
    assert (places(at), reader.latestOffset(at, limit)) == ([10], at)
    assert (reader.behind(at), reader.behind(reader.initialOffset())) == (3, 13)
    now[0] += 61
    later = reader.latestOffset(at, limit)
    produce(topic, 10, first=13)
    assert (places(later), places(reader.latestOffset(later, limit))) == ([13], [23])


def test_available_now_reads_the_rest_although_it_is_less_than_the_least(open_: Open) -> None:
    reader = open_(new_topic(3), minOffsetsPerTrigger="10")
    reader.prepare_available_now()
    ranges = batches(reader, reader.initial())
    assert [values(reader, *r) for r in ranges] == [["v0", "v1", "v2"]]


# -- what it notices ---------------------------------------------------------------------------------------------------


def test_new_partitions_and_new_topics_of_a_pattern_are_read_from_their_beginning(open_: Open) -> None:
    topic = new_topic(2)
    reader = open_(None, subscribePattern=f"{topic[2:-1]}[{topic[-1]}&&[^x]]")  # found in a name, as in Spark
    (start, end), *_ = batches(reader, reader.initial())
    admin = shared_kafka().admin()
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
    more = shared_kafka().new_topic(1, KEPT, f"{topic}-more")
    produce(more, 2, first=10)
    while len(admin.list_topics(topic, timeout=60).topics[topic].partitions) < 2:
        pass
    produce(topic, 2, 2, first=20)
    found = [v for r in batches(reader, end) for v in values(reader, *r)]
    assert sorted(found) == ["v10", "v11", "v20", "v21"]
    assert values(reader, start, end) == ["v0", "v1"]


def test_records_that_aged_out_are_never_passed_over_in_silence(open_: Open, caplog: Any) -> None:
    topic = new_topic(100)
    reader = open_(topic)
    (start, end), *_ = batches(reader, reader.initial())
    planned = reader.splits(start, end)
    place = TopicPartition(topic, 0, 40)
    admin = shared_kafka().admin()
    admin.delete_records([place])[place].result(60)
    with pytest.raises(InvalidInputError, match=rf"{topic}-0: offsets 0 to 40 are gone.*{LOST}"):
        reader.splits(start, end)
    with pytest.raises(InvalidInputError, match=LOST):
        list(read(reader, planned[0]))
    lax = open_(topic, failOnDataLoss="false")
    assert len(values(lax, start, end)) == len([row for split in planned for row in read(lax, split)]) == 60
    assert "goes on without what is gone" in caplog.text


def test_records_that_went_where_a_consumer_waits_take_no_others_with_them(open_: Open) -> None:
    topic, waiting = new_topic(20), {"failOnDataLoss": "false", "kafka.isolation.level": "read_committed"}
    reader = open_(topic, **waiting)
    (start, end), *_ = batches(reader, reader.initial())
    assert len(values(reader, start, end)) == 20
    producer = Producer({"bootstrap.servers": shared_kafka().bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(30):  # the consumer is not sent them
        producer.produce(topic, "open", timestamp=NOW_MS)
    assert producer.flush(60) == 0
    place, admin = TopicPartition(topic, 0, 50), shared_kafka().admin()
    admin.delete_records([place])[place].result(60)
    producer.abort_transaction(60)
    produce(topic, 40, first=20)
    while places(later := reader.latest(end, False)) != [91]:  # behind the transaction's marker, too
        pass
    assert values(reader, end, later) == sorted(f"v{n}" for n in range(20, 60))


def test_a_consumer_without_a_range_leaves_its_partition_and_goes_there_again(
    open_: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_consumers, "_REST_S", 0.05)
    made: list[Any] = []
    monkeypatch.setattr(_consumers, "Consumer", lambda conf: made.append(Consumer(conf)) or made[-1])
    topic, own = new_topic(5), {"kafka.client.id": "rests"}
    reader = open_(topic, **own)
    (start, end), *_ = batches(reader, reader.initial())
    assert values(reader, start, end) == [f"v{n}" for n in range(5)]
    [consumer] = made
    while consumer.assignment():
        time.sleep(0.01)
    produce(topic, 5, first=5)
    later = reader.latest(end, False)
    assert values(reader, end, later) == [f"v{n}" for n in range(5, 10)]
    assert made == [consumer]


def test_a_topic_that_was_made_again_is_another_one(open_: Open) -> None:
    topic = new_topic(5)
    reader = open_(topic)
    (start, end), *_ = batches(reader, reader.initial())
    planned = reader.splits(start, end)
    made_again(topic, 9)
    for ask in (lambda: reader.latest(end, False), lambda: reader.splits(start, end)):
        with pytest.raises(InvalidInputError, match=f"made again.*{LOST}"):
            ask()
    with pytest.raises(InvalidInputError, match="made again, while it was read"):
        list(read(reader, planned[0]))
    lax = open_(topic, failOnDataLoss="false")
    assert len(values(lax, end, lax.latest(end, False))) == 9
    assert values(lax, start, end) == []


def test_partitions_and_topics_that_are_not_named_any_more_are_not_left_out_in_silence(open_: Open) -> None:
    topic, other = new_topic(10, 2), new_topic(1)
    (_, end), *_ = batches(*_begun(open_(None, assign=f'{{"{topic}":[0,1]}}')))
    fewer = {"assign": f'{{"{topic}":[0]}}'}
    with pytest.raises(InvalidInputError, match=f"Partition {topic}-1 is gone, or the options do not name it any more"):
        open_(None, **fewer).latest(end, False)
    with pytest.raises(InvalidInputError, match=f"topic {topic} was deleted, or the options do not name it any more"):
        open_(other).latest(end, False)
    produce(topic, 4, 2, first=10)
    lax = open_(None, **fewer, failOnDataLoss="false")
    assert values(lax, end, lax.latest(end, False)) == ["v10", "v12"]


def _begun(reader: InnerReader) -> tuple[InnerReader, Any]:
    return reader, reader.initial()


def test_the_group_is_told_how_far_the_job_is_and_nothing_is_read_from_there(open_: Open) -> None:
    topic = new_topic(5)
    reader = open_(topic, **{"kafka.group.id": f"watch-{topic}"})
    (_, end), *_ = batches(reader, reader.initial())
    reader.commit({"offsets": {topic: {"0": 3}}, "ids": end["ids"]})
    reader.commit(end)  # while the broker has not answered yet
    reader.stop()
    group = Consumer({"bootstrap.servers": shared_kafka().bootstrap, "group.id": f"watch-{topic}"})
    told = group.committed([TopicPartition(topic, 0)], 60)
    group.close()
    assert [p.offset for p in told] == [5]
    assert places(open_(topic, "b", **{"kafka.group.id": f"watch-{topic}"}).initial()) == [0]


# -- credentials, and brokers that are away ----------------------------------------------------------------------------


def test_wrong_credentials_are_said_without_the_password_and_right_ones_work(open_: Open) -> None:
    topic, kafka = new_topic(3), shared_kafka()

    def login(user: str, password: str) -> dict[str, str]:
        jaas = (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="{password}";'
        )
        sasl = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
        return {**sasl, "kafka.sasl.jaas.config": jaas, "kafka.bootstrap.servers": kafka.sasl_bootstrap}

    with pytest.raises(InvalidInputError, match=r"refused to tell topics.*correct the credentials") as refused:
        open_(topic, **login("somebody", "hunter2")).initial()
    assert "hunter2" not in str(refused.value)
    reader = open_(topic, **login(USER, PASSWORD))
    start = reader.initial()
    assert values(reader, start, reader.latest(start, False)) == ["v0", "v1", "v2"]


@pytest.fixture
def killed(open_: Open) -> Iterator[tuple[KafkaServer, str, InnerReader]]:
    """A broker of its own with a topic, and a reader that has begun; then the broker is killed."""
    kafka = KafkaServer().start()
    try:
        topic = kafka.new_topic(1, KEPT)
        produce(topic, 50, kafka=kafka)
        reader = open_(topic, kafka=kafka)
        reader.initial()
        kafka.kill()
        yield kafka, topic, reader
    finally:
        kafka.stop()


@pytest.mark.soak  # of the sink: tests/kafka/test_kafka_sink.py
def test_brokers_that_are_away_are_waited_for_and_then_the_query_may_be_started_again(
    killed: tuple[KafkaServer, str, InnerReader], open_: Open, caplog: Any
) -> None:
    kafka, topic, reader = killed
    start = reader.initial()
    hasty = open_(topic, kafka=kafka, **{"kafkaConsumer.pollTimeoutMs": "700"})
    with pytest.raises(RetryableError, match=r"to tell topics .* within 0.7 s.*nothing is lost: start the query again"):
        hasty.latest(start, False)

    def restart_when_missed() -> None:
        # One request waits for some seconds, in which a quick machine would have the broker back.
        while f"asking for topics {topic} again" not in caplog.text and not over.is_set():
            time.sleep(0.05)
        kafka.restart()

    over, back = threading.Event(), threading.Thread(target=restart_when_missed)
    back.start()
    try:
        end = reader.latest(start, False)
    finally:
        over.set()
        back.join()
    assert places(end) == [50]
    planned = reader.splits(start, end)
    assert f"asking for topics {topic} again" in caplog.text
    kafka.kill()
    with pytest.raises(RetryableError, match=f"expected {topic}-0, offsets 0 to 50, from Kafka.*nothing is lost"):
        list(read(hasty, planned[0]))
    back = threading.Timer(1, kafka.restart)
    back.start()
    found = [row[1].decode() for row in read(reader, planned[0])]
    back.join()
    assert found == [f"v{n}" for n in range(50)]
