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

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_ckpt.errors import ConfigError
from spark_ckpt.formats.base import Decoder
from spark_ckpt.formats.formats import FormatSpec, registry_of
from spark_ckpt.kafka_client import client_options
from spark_ckpt.sources._bad_records import FAIL, SKIP
from spark_ckpt.sources._convert import arrow_schema, spark_schema
from spark_ckpt.sources._options import parse_options, storage_options_of
from spark_ckpt.sources.base import UsesMetadata
from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.sources.kafka._brokers import Brokers
from spark_ckpt.sources.kafka._options import (
    OPTIONS,
    check_format,
    check_range,
    consumer_conf,
    wanted,
    with_bad_records,
)
from spark_ckpt.sources.kafka._reader import KafkaReader
from spark_ckpt.sources.kafka._rows import schema_of
from spark_ckpt.sources.kafka._values import Values
from spark_ckpt.storage.filesystem import file_of_option


def value_decoder(parsed: Mapping[str, Any], topics: list[str], storage: Mapping[str, Any]) -> Decoder:
    """Raises ``ConfigError``."""
    name, schema, file = parsed["valueFormat"], parsed["valueSchema"], parsed["valueDescriptorFile"]
    kind = None
    if name == "json" and schema is not None:
        kind = arrow_schema(StructType([StructField("value", parse_ddl(schema))])).field("value").type
    subject = f"{topics[0]}-value" if len(topics) == 1 else ""
    registry = registry_of(parsed)
    if name == "avro" and schema is None and registry is not None and not subject:
        raise ConfigError("valueFormat avro of several topics needs option 'valueSchema'")
    descriptors = None if file is None else file_of_option("valueDescriptorFile", file, storage)
    corrupt = parsed["columnNameOfCorruptRecord"]
    spec = FormatSpec(name, schema, descriptors, parsed["valueMessageName"], registry, subject, corrupt)
    return spec.decoder(kind)


class KafkaSource(DataSource, UsesMetadata):
    """Options: those of :data:`OPTIONS`, in any case, and ``kafka.*`` for the client.

    ``kafka.bootstrap.servers`` and one of ``subscribe``, ``subscribePattern`` and ``assign`` are needed. Raises
    ``ConfigError`` for what is unknown, malformed or contradictory; connects to nothing.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._own_storage, plain = storage_options_of(options)
        client, rest = client_options(plain)
        self.parsed = parse_options("kafka", OPTIONS, with_bad_records(rest))
        self.wanted = wanted(self.parsed)
        check_range(self.parsed)
        check_format(self.parsed)
        self.conf = consumer_conf(client)
        self._decoder: Decoder | None = None

    @classmethod
    def name(cls) -> str:
        return "kafka"

    def schema(self) -> StructType:
        """Spark's columns; ``value`` as the format has it. Raises ``ConfigError`` for a schema that does not fit or is
        missing, and as the registry does where Avro's schema is there."""
        decoder = self._value_decoder()
        kind = BinaryType() if decoder is None else spark_schema(pa.schema([("value", decoder.type)]))["value"].dataType
        return schema_of(kind, self.parsed["includeHeaders"])

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

    def values(self) -> Values | None:
        """How values are read; None where they stay bytes."""
        decoder = self._value_decoder()
        if decoder is None:
            return None
        policy = self.parsed["badRecords"]
        policy = policy.lower() if policy.lower() in (FAIL, SKIP) else policy
        return Values(decoder, policy, self._own_storage or self.storage_options)

    def _value_decoder(self) -> Decoder | None:
        if self._decoder is None and self.parsed["valueFormat"] is not None:
            self._decoder = value_decoder(self.parsed, self.wanted.topics or [], self._own_storage)
        return self._decoder

    def range_record(self) -> str:
        """The record of where this job begins and ends: of its own for other topics and other options of the range."""
        o = self.parsed
        names = [name for name in sorted(OPTIONS) if name.startswith(("starting", "ending"))]
        pattern = None if self.wanted.pattern is None else self.wanted.pattern.java
        facts = [self.wanted.topics, pattern, self.wanted.assigned, [_plain(o[name]) for name in names]]
        return f"range-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]}"


def _plain(value: Any) -> Any:
    return sorted(value.items()) if isinstance(value, dict) else value
