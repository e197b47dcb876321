"""How far a batch of the ``kafka`` source goes and how it is cut, without a broker: Spark's arithmetic."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.errors import ConfigError
from spark_ckpt.sources.base import open_source
from spark_ckpt.sources.kafka._positions import (
    Partition,
    Position,
    Range,
    bounded,
    cut,
    limited,
    new_records,
    ranges_between,
)
from spark_ckpt.sources.kafka.source import KafkaSource

A, B, C = (Partition("t", n) for n in range(3))
GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
SIZES = st.lists(st.integers(0, 300), min_size=1, max_size=6)


def at(*places: int, topic_id: str = "x") -> Position:
    return Position({Partition("t", n): place for n, place in enumerate(places)}, {"t": topic_id})


def test_an_offset_is_json_and_comes_back() -> None:
    offset = at(3, 10, 7).offset()
    assert offset == {"offsets": {"t": {"0": 3, "1": 10, "2": 7}}, "ids": {"t": "x"}}
    assert Position.of(json.loads(json.dumps(offset))) == at(3, 10, 7)


def test_a_new_partition_and_a_topic_that_was_made_again_begin_at_0() -> None:
    assert ranges_between(at(5), at(8, 2)) == [Range(A, 5, 8), Range(B, 0, 2)]
    assert ranges_between(at(5, 4), at(3, 2, topic_id="y")) == [Range(A, 0, 3), Range(B, 0, 2)]


def test_a_limit_is_divided_by_what_partitions_have_and_none_starves() -> None:
    """What Spark's rateLimit gives for these."""
    assert limited(at(0, 0, 0), at(1000, 100, 1), 110).places == {A: 99, B: 9, C: 1}
    assert limited(at(0, 0), at(4, 5), 9) == at(4, 5)


def test_each_partition_ends_for_itself() -> None:
    end = {A: 5, B: 7, C: 0}
    assert bounded(at(0, 0), at(4, 9), end) == at(4, 7, 0), "a partition of which nothing is there is named"
    assert bounded(at(4, 7, 0), at(9, 9, 9), end) == at(5, 7, 0)
    assert bounded(at(5, 7, 0), at(9, 9, 9, 9), end) == at(5, 7, 0), "one that came later is not read"
    assert bounded(at(4, 8), at(9, 9), end) is None
    assert bounded(at(6, 0), at(6, 0), end) is None, "where nothing is new, too"


@given(SIZES, st.integers(1, 900))
def test_limited_batches_come_to_the_end_and_are_about_as_large_as_allowed(sizes: list[int], most: int) -> None:
    start, end = at(*[0] * len(sizes)), at(*sizes)
    while new_records(start, end):
        step = limited(start, end, most)
        assert 0 < new_records(start, step) <= most + len(sizes)
        start = step
    assert start == end


@given(SIZES, st.integers(1, 20) | st.none(), st.integers(1, 50) | st.none())
def test_pieces_hold_each_offset_once(sizes: list[int], least: int | None, most: int | None) -> None:
    ranges = ranges_between(at(*[0] * len(sizes)), at(*sizes))
    pieces = list(cut(ranges, least, most))
    assert all(p.size > 0 and (most is None or p.size <= most) for p in pieces)
    found = {(p.partition, n) for p in pieces for n in range(p.start, p.end)}
    assert len(found) == sum(sizes) == sum(p.size for p in pieces)


def test_large_ranges_are_cut_and_small_ones_stay_whole() -> None:
    """What Spark's KafkaOffsetRangeCalculator gives for these."""
    assert list(cut([Range(A, 0, 10), Range(B, 0, 1000)], 4, None)) == [
        Range(A, 0, 10), Range(B, 0, 333), Range(B, 333, 666), Range(B, 666, 1000),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": None}, "One of the following options must be specified for Kafka source"),
        ({"assign": '{"t":[0]}'}, "Only one of the following options can be specified for Kafka source"),
        ({"kafka.bootstrap.servers": None}, "Option 'kafka.bootstrap.servers' must be specified"),
        ({"kafka.auto.offset.reset": "earliest"}, "Kafka option 'auto.offset.reset' is not supported"),
        ({"kafka.enable.auto.commit": "true"}, "Kafka option 'enable.auto.commit' is not supported"),
        ({"kafka.key.deserializer": "x"}, "Kafka option 'key.deserializer' is not supported"),
        ({"kafka.fetch.min.byte": "1"}, 'No such configuration property: "fetch.min.byte"'),
        ({"kafka.ssl.truststore.location": "/t.jks"}, "kafka.ssl.truststore.location.*PEM.*found type JKS"),
        ({"startingOffsets": "first"}, "option 'startingOffsets'.*earliest, latest, or JSON.*found 'first'"),
        ({"startingOffsets": '{"t":{"0":"1"}}'}, "option 'startingOffsets'"),
        ({"endingOffsets": "earliest"}, "option 'endingOffsets'.*found earliest"),
        ({"subscribePattern": "(", "subscribe": None}, "option 'subscribePattern'.*regular expression"),
        (
            {"subscribePattern": "a++", "subscribe": None},
            "'subscribePattern'.*found 'a[+][+]': a possessive repetition",
        ),
        ({"subscribePattern": " ", "subscribe": None}, "option 'subscribePattern'.*regular expression"),
        ({"assign": "t", "subscribe": None}, "option 'assign'.*JSON"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, r"minOffsetPerTrigger\(9\) is higher"),
        ({"maxOffsetsPerTriger": "9"}, "has no option 'maxoffsetspertriger'; valid options: .*maxOffsetsPerTrigger"),
    ],
)
def test_what_cannot_work_is_refused_when_the_stream_is_built(options: dict[str, str | None], message: str) -> None:
    given = {k: v for k, v in {**GIVEN, **options}.items() if v is not None}
    with pytest.raises(ConfigError, match=message):
        open_source("kafka", given, None, "")


def test_options_of_javas_client_have_their_meaning() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p;w\'";'
    options = {
        **GIVEN,
        "kafka.sasl.jaas.config": jaas,
        "kafka.Security.Protocol": "SASL_SSL",
        "kafka.max.poll.records": "5",
    }
    conf = KafkaSource({**options, "kafka.sasl.mechanism": "PLAIN", "kafka.fetch.max.wait.ms": "7"}).conf
    assert conf == {
        "bootstrap.servers": "127.0.0.1:1",
        "isolation.level": "read_uncommitted",
        "sasl.username": "u",
        "sasl.password": "p;w'",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "fetch.wait.max.ms": "7",
    }


def test_no_secret_is_in_a_message() -> None:
    jaas = 'org.x.OAuthLoginModule required clientSecret="hunter2";'
    for options in ({"kafka.sasl.jaas.config": jaas}, {"kafka.sasl.password": "hunter2", "kafka.sasl.mechanism": "NO"}):
        with pytest.raises(ConfigError) as refused:
            open_source("kafka", {**GIVEN, "kafka.security.protocol": "SASL_SSL", **options}, None, "")
        assert "hunter2" not in str(refused.value)


def test_a_custom_schema_is_refused() -> None:
    opened = open_source("kafka", GIVEN, None, "")
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert opened.schema().fieldNames() == names
    with pytest.raises(ConfigError, match="Kafka source has a fixed schema"):
        opened.reader(type(opened.schema())(opened.schema().fields[:2]))
