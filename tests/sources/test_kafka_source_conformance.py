"""The ``kafka`` source keeps the shipped suite, against a real broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_ckpt.testing.source_conformance import SourceConformance, SourceTarget
from tests.kafka_server import shared_kafka

PARTITIONS = 3


class KafkaTarget(SourceTarget):
    """Three partitions; rows without the times that the broker gives them."""

    def __init__(self, tmp_path: Path, **options: str) -> None:
        self.kafka = shared_kafka()
        self.topic = self.kafka.new_topic(PARTITIONS, {"retention.ms": "-1"})
        self.count = 0
        given = {
            "kafka.bootstrap.servers": self.kafka.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            **options,
        }
        super().__init__("kafka", given, str(tmp_path / "metadata"))
        for _ in range(3):
            self.add()

    def add(self) -> bool:
        producer = self.producer()
        self.begin(producer)
        for n in range(self.count, self.count + 8):
            producer.produce(self.topic, f"value {n}", f"key {n}", partition=n % PARTITIONS, timestamp=1000 + n)
        self.end(producer)
        self.count += 8
        return True

    def producer(self) -> Producer:
        return Producer({"bootstrap.servers": self.kafka.bootstrap})

    def begin(self, producer: Producer) -> None:
        """Nothing to begin without transactions."""

    def end(self, producer: Producer) -> None:
        assert producer.flush(30) == 0

    def expected(self) -> list[tuple[Any, ...]]:
        return [(b"key %d" % n, b"value %d" % n, self.topic, n % PARTITIONS) for n in range(self.count)]

    def rows(self, reader: Any, start: Any, end: Any) -> list[tuple[Any, ...]]:
        return [row[:4] for row in super().rows(reader, start, end)]


class TransactionsTarget(KafkaTarget):
    """Behind each transaction one that is aborted; both leave markers, which take offsets, too."""

    def __init__(self, tmp_path: Path, **options: str) -> None:
        super().__init__(tmp_path, **{"kafka.isolation.level": "read_committed", **options})

    def producer(self) -> Producer:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "transactional.id": self.topic})
        producer.init_transactions(30)
        return producer

    def begin(self, producer: Producer) -> None:
        producer.begin_transaction()

    def end(self, producer: Producer) -> None:
        producer.commit_transaction(30)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(self.topic, b"aborted", b"aborted", partition=partition)
        assert producer.flush(30) == 0
        producer.abort_transaction(30)


class TestKafka(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SourceTarget:
        target = KafkaTarget(tmp_path, maxOffsetsPerTrigger="10", minPartitions="4")
        target.rows_a_batch = 10
        return target


class TestKafkaTransactions(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SourceTarget:
        target = TransactionsTarget(tmp_path, maxOffsetsPerTrigger="27")
        target.rows_a_batch = 27
        return target
