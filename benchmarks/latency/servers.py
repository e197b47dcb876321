"""A Kafka broker and PostgreSQL for one section: on loopback, stopped and removed when it is over."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.latency.events import IN, OUT, PARTITIONS
from tests.kafka_server import KafkaServer
from tests.postgres_server import PostgresServer

_JAVA = ("-Xmx512m", "-Xms512m", "-XX:+UseSerialGC")


@dataclass(frozen=True)
class Places:
    """What one run reads and writes. Nothing of it was there before."""

    brokers: str
    events: str
    totals: str
    database: str
    """SQLAlchemy URL, password included."""
    dsn: str


@dataclass(frozen=True)
class Servers:
    kafka: KafkaServer
    postgres: PostgresServer

    def places(self) -> Places:
        mark = uuid.uuid4().hex[:8]
        events, totals = (self.kafka.new_topic(PARTITIONS, name=f"{name}-{mark}") for name in (IN, OUT))
        url = self.postgres.new_database()
        return Places(self.kafka.bootstrap, events, totals, url, self.postgres.dsn(url.rpartition("/")[2]))


@contextmanager
def servers() -> Iterator[Servers]:
    """PostgreSQL waits for its disk, as it does by default (the tests' does not)."""
    with ExitStack() as stack:
        kafka, postgres = KafkaServer(java=_JAVA), PostgresServer({"fsync": "on"})
        stack.callback(kafka.stop)
        kafka.start()
        stack.callback(postgres.stop)
        yield Servers(kafka, postgres.start())
