"""The ``kafka`` source: partitions of topics, read in ranges of offsets.

An offset of this source holds the next offset of every partition and the ids of the topics, so a batch is replayed
from its two offsets alone. Where a fresh job begins is kept in a record of its own: it must be the same when the first
batch is replayed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import BinaryType, StructType

from spark_ckpt.errors import ConfigError
from spark_ckpt.kafka_client import client_options
from spark_ckpt.sources._options import parse_options
from spark_ckpt.sources.base import UsesMetadata
from spark_ckpt.sources.kafka._brokers import Brokers
from spark_ckpt.sources.kafka._options import OPTIONS, check_range, consumer_conf, wanted
from spark_ckpt.sources.kafka._reader import KafkaReader
from spark_ckpt.sources.kafka._rows import schema_of


class KafkaSource(DataSource, UsesMetadata):
    """Options: those of :data:`OPTIONS`, in any case, and ``kafka.*`` for the client.

    ``kafka.bootstrap.servers`` and one of ``subscribe``, ``subscribePattern`` and ``assign`` are needed. Raises
    ``ConfigError`` for what is unknown, malformed or contradictory; connects to nothing.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        client, rest = client_options(options)
        self.parsed = parse_options("kafka", OPTIONS, rest)
        self.wanted = wanted(self.parsed)
        check_range(self.parsed)
        self.conf = consumer_conf(client)

    @classmethod
    def name(cls) -> str:
        return "kafka"

    def schema(self) -> StructType:
        return schema_of(BinaryType(), self.parsed["includeHeaders"])

    def streamReader(self, schema: StructType) -> KafkaReader:
        own = self.schema()
        if [(f.name, f.dataType) for f in own] != [(f.name, f.dataType) for f in schema]:
            raise ConfigError(
                f"Kafka source has a fixed schema and cannot be set with a custom one: expected {own.simpleString()}, "
                f"found {schema.simpleString()}; leave .schema(...) out"
            )
        return KafkaReader(self, schema)

    def brokers(self) -> Brokers:
        return Brokers(self.client_conf(), self.timeout_s)

    def client_conf(self) -> dict[str, str]:
        return {**self.conf, "group.id": self.group}

    @property
    def timeout_s(self) -> float:
        return float(self.parsed["kafkaConsumer.pollTimeoutMs"]) / 1000

    @property
    def group(self) -> str:
        """The consumer group that hears of progress; without ``kafka.group.id`` one for this source of this job."""
        mark = hashlib.sha256(self.metadata_url.encode()).hexdigest()[:16]
        return self.conf.get("group.id") or f"{self.parsed['groupIdPrefix']}-{mark}"

    def range_record(self) -> str:
        """The record of where this job begins and ends: of its own for other topics and other options of the range."""
        o = self.parsed
        names = [name for name in sorted(OPTIONS) if name.startswith(("starting", "ending"))]
        pattern = None if self.wanted.pattern is None else self.wanted.pattern.pattern
        facts = [self.wanted.topics, pattern, self.wanted.assigned, [_plain(o[name]) for name in names]]
        return f"range-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]}"


def _plain(value: Any) -> Any:
    return sorted(value.items()) if isinstance(value, dict) else value
