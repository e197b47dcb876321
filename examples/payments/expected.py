"""What the three sinks must hold, by a batch computation over the same payments; and what they hold."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timezone

from confluent_kafka import Consumer, KafkaError, TopicPartition
from deltalake import DeltaTable
from sqlalchemy import create_engine, text

from examples.payments.generator import Payment, merchants
from examples.payments.job import COLUMNS, OUT

Sum = tuple[str, str, int, int]
"""(start of the minute as ISO 8601 in UTC, category, payments, cents)."""


def batch(payments: Iterable[Payment]) -> list[Sum]:
    """Each payment once, joined, summed by minute and category."""
    category_of, once = dict(merchants()), {p.payment: p for p in payments}
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for payment in once.values():
        category = category_of.get(payment.merchant)
        if category is not None:
            minute = datetime.fromisoformat(payment.at).replace(second=0, microsecond=0)
            found[minute.isoformat(), category].append(payment.cents)
    return sorted((start, category, len(cents), sum(cents)) for (start, category), cents in found.items())


def in_delta(folder: str) -> list[Sum]:
    rows = DeltaTable(f"{folder}/sums").to_pyarrow_table(columns=COLUMNS.split(",")).to_pylist()
    return sorted((_iso(r["start"]), r["category"], r["payments"], r["cents"]) for r in rows)


def in_database(url: str) -> list[Sum]:
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            rows = connection.execute(text(f"SELECT {COLUMNS} FROM sums")).all()
    finally:
        engine.dispose()
    return sorted((_iso(start), category, payments, cents) for start, category, payments, cents in rows)


def in_kafka(brokers: str) -> list[Sum]:
    """All that a reader of committed records sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(OUT, 30).topics[OUT].partitions
    consumer.assign([TopicPartition(OUT, p, 0) for p in partitions])
    found, ended = list[Sum](), set[int]()
    while len(ended) < len(partitions):
        message = consumer.poll(30)
        if message is None:
            raise TimeoutError("the broker did not answer")
        if message.error() is None:
            row = json.loads(message.value())
            start = _iso(datetime.fromisoformat(row["start"].replace("Z", "+00:00")))
            found.append((start, row["category"], row["payments"], row["cents"]))
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return sorted(found)


def _iso(time: datetime) -> str:
    return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).astimezone(timezone.utc).isoformat()
