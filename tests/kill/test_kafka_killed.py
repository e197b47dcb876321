"""A job that reads transactions from a real broker: its driver is killed, then the broker, and nothing counts twice."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import spark_ckpt
from tests.kafka_server import KafkaServer
from tests.kill.processes import REPOSITORY, Session, await_condition, environment, own_defaults

KEYS, PARTITIONS = 5, 3


@pytest.fixture
def kafka() -> Iterator[KafkaServer]:
    """Of its own, as it is killed."""
    server = KafkaServer().start()
    yield server
    server.stop()


def produce(kafka: KafkaServer, topic: str, first: int, last: int) -> None:
    """Numbers in transactions of 100; behind each one that is aborted, with numbers that would show."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for start in range(first, last, 100):
        for numbers, end in ((range(start, start + 100), producer.commit_transaction), ([10**9] * 7, None)):
            producer.begin_transaction()
            for n in numbers:
                producer.produce(topic, str(n), f"k{n % KEYS}", partition=n % PARTITIONS)
            assert producer.flush(60) == 0
            (end or producer.abort_transaction)(60)


def in_database(folder: Path) -> dict[str, tuple[int, int]]:
    try:
        with sqlite3.connect(folder / "totals.db") as connection:
            return {k: (n, total) for k, n, total in connection.execute("SELECT k, n, total FROM totals")}
    except sqlite3.OperationalError:
        return {}


def expected(last: int) -> dict[str, tuple[int, int]]:
    numbers = {f"k{k}": range(k, last, KEYS) for k in range(KEYS)}
    return {k: (len(of_key), sum(of_key)) for k, of_key in numbers.items()}


def counted(folder: Path) -> int:
    return sum(n for n, _ in in_database(folder).values())


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_killed_driver_and_a_killed_broker_leave_each_committed_record_counted_once(
    tmp_path: Path, kafka: KafkaServer
) -> None:
    conf = f"spark.ckpt.dir {tmp_path}/jobs\nspark.sql.streaming.checkpointLocation {tmp_path}/locations\n"
    defaults = own_defaults(tmp_path, f"{conf}spark.ckpt.interval 1s\nspark.ckpt.initialDelay 0s\n")
    topic = kafka.new_topic(PARTITIONS)
    produce(kafka, topic, 0, 3000)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "kafka.isolation.level": "read_committed",
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "200",
        "minPartitions": "4",
    }

    def driver(lanes: int) -> Session:
        command = [sys.executable, str(REPOSITORY / "tests/kill/totals_job.py"), str(tmp_path)]
        arguments = ["kafka", json.dumps({**options, "lanes": str(lanes)})]
        return Session([*command, *arguments], tmp_path / "driver.log", environment(**defaults))

    with driver(lanes=3):
        await_condition("some records are counted", lambda: counted(tmp_path) >= 400)
    killed_at = counted(tmp_path)
    with driver(lanes=2):
        await_condition("more records are counted", lambda: counted(tmp_path) > killed_at)
        kafka.kill()
        kafka.restart()
        produce(kafka, topic, 3000, 4000)
        await_condition("all records are counted", lambda: counted(tmp_path) >= 4000)
    assert in_database(tmp_path) == expected(4000)
    assert 0 < killed_at < 4000
    assert spark_ckpt.job(f"{tmp_path}/jobs", "totals").verify() == []
