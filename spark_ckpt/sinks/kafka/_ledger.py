"""What was committed, in a compacted topic: the sink's memory, beside the rows and for all jobs.

Partition 0 has ``["commit", job, sink, K]`` with a digest of what K commits and the transactions' ids, written before
the first of them is committed; and ``["reproduced", job, sink, K]`` with the ids of those that were lost and produced
again, written in the very transaction that did so. Partition 1 has ``["transaction", id]``, written by each task within
its transaction: visible if and only if that was committed, and asked for when the broker has forgotten the id (after
``transactional.id.expiration.ms``, 7 days). It is a partition of its own because open transactions hide what is behind
them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks.kafka._errors import patiently
from spark_ckpt.sinks.kafka._ledger_reader import LedgerReader, Values
from spark_ckpt.sinks.kafka._settings import KafkaSettings

COMMITS, MARKERS = 0, 1
_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.ms": "3600000",  # what is in the newest segment is not compacted
    "min.cleanable.dirty.ratio": "0.1",
}
_ANSWER_S = 10
_AT_ONCE = 500


@dataclass(frozen=True)
class Entry:
    """What is remembered of one checkpoint."""

    digest: str
    transactions: tuple[str, ...]


@dataclass(frozen=True)
class Memory:
    """What the ledger has of one job's sink, or, with ``sink`` None, of a job."""

    entries: Mapping[tuple[str, int], Entry] = field(default_factory=dict)
    reproduced: Mapping[tuple[str, int], frozenset[str]] = field(default_factory=dict)

    def before(self, oldest: int) -> list[tuple[str, int]]:
        """(sink, checkpoint) of what may be forgotten."""
        return sorted((s, k) for s, k in {*self.entries, *self.reproduced} if k < oldest)


class Ledger:
    """One topic. Cheap to make; its clients are made at first use, and used again. One thread."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings, self.topic = settings, settings.ledger
        self._place = f"kafka {settings.servers}: ledger topic {self.topic}"
        self._readers: dict[int, LedgerReader] = {}
        self._producer: Producer | None = None

    def close(self) -> None:
        """It may be used again, and reads from the beginning then."""
        readers, self._readers, self._producer = list(self._readers.values()), {}, None
        for reader in readers:
            reader.close()

    def ensure(self, admin: AdminClient) -> None:
        """Make it, if it is missing. Raises ``InvalidInputError`` if it is not compacted, or may not be made."""
        # As many replicas as the brokers' default.replication.factor says.
        wanted = NewTopic(self.topic, num_partitions=2, replication_factor=-1, config=_SETTINGS)
        try:
            admin.create_topics([wanted], operation_timeout=_ANSWER_S)[self.topic].result(2 * _ANSWER_S)
        except KafkaException as error:
            code = error.args[0].code()
            if code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
                settings = ", ".join(f"{k}={v}" for k, v in _SETTINGS.items())
                raise InvalidInputError(
                    f"{self._place} is missing and the user may not make it: have it made, with 2 partitions and "
                    f"{settings}"
                ) from None
            if code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def read(self, job: str, sink: str | None = None) -> Memory:
        """What it has of ``job``: everything that was committed before this was called."""
        entries: dict[tuple[str, int], Entry] = {}
        reproduced: dict[tuple[str, int], frozenset[str]] = {}
        for (kind, *names), value in self._values(COMMITS).items():
            if kind == "transaction" or names[0] != job or sink not in (None, names[1]):
                continue
            place = str(names[1]), int(names[2])
            if kind == "commit":
                entries[place] = Entry(value["digest"], tuple(value["transactions"]))
            elif kind == "reproduced":
                reproduced[place] = frozenset(value["transactions"])
        return Memory(entries, reproduced)

    def committed(self, transactions: Collection[str]) -> set[str]:
        """Those of ``transactions``, which no coordinator knows any more, that were committed."""
        known = {names[0] for (_, *names) in self._values(MARKERS, wait=False)} if transactions else set()
        return known & set(transactions)

    def remember(self, job: str, sink: str, checkpoint: int, entry: Entry) -> None:
        body = {"digest": entry.digest, "transactions": entry.transactions}
        self._write([(COMMITS, commit_key(job, sink, checkpoint), encoded(body))])

    def forget(self, job: str, memory: Memory, places: Sequence[tuple[str, int]]) -> None:
        """Of what ``memory`` has, remove ``places``: first the marks, whose names only the entries know."""
        for start in range(0, len(places), _AT_ONCE):
            part = places[start : start + _AT_ONCE]
            gone = [memory.entries[p].transactions for p in part if p in memory.entries]
            self._write([(MARKERS, marker_key(i), None) for ids in gone for i in ids])
            # Stopped here: the entries are still there, and the next one does it again.
            keys = [k for s, c in part for k in (commit_key(job, s, c), reproduced_key(job, s, c))]
            self._write([(COMMITS, key, None) for key in keys])

    def _write(self, records: Sequence[tuple[int, bytes, bytes | None]]) -> None:
        if records:
            patiently(f"{self._place}: writing", self._settings, lambda: self._send(records))

    def _send(self, records: Sequence[tuple[int, bytes, bytes | None]]) -> None:
        # Only one that everything went well with is used again.
        producer, self._producer = self._producer or Producer(self._settings.ledger_producer(1000 * _ANSWER_S)), None
        failed: list[KafkaError] = []
        for partition, key, value in records:
            producer.produce(
                self.topic, value, key, partition, on_delivery=lambda e, _: failed.append(e) if e else None
            )
        producer.flush()
        if failed:
            raise KafkaException(failed[0])
        self._producer = producer

    def _values(self, partition: int, wait: bool = True) -> Values:
        """The last value of each key. ``wait`` until open transactions of others have ended, which may be in front."""
        return patiently(f"{self._place}: reading", self._settings, lambda: self._read(partition, wait))

    def _read(self, partition: int, wait: bool) -> Values:
        reader = self._readers.pop(partition, None) or LedgerReader(self._settings, self.topic, partition)
        try:
            found = reader.values(wait)
        except BaseException:
            reader.close()
            raise
        self._readers[partition] = reader
        return found


def commit_key(job: str, sink: str, checkpoint: int) -> bytes:
    return encoded(["commit", job, sink, checkpoint])


def reproduced_key(job: str, sink: str, checkpoint: int) -> bytes:
    return encoded(["reproduced", job, sink, checkpoint])


def marker_key(transaction: str) -> bytes:
    return encoded(["transaction", transaction])


def encoded(what: Any) -> bytes:
    return json.dumps(what, separators=(",", ":")).encode()
