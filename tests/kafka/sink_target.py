"""What tests of the Kafka sink share: a topic of its own for each, and how to look at it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from spark_ckpt.sinks.base import SinkWriter, WriterContext
from spark_ckpt.sinks.kafka._committing import staged_of
from spark_ckpt.sinks.kafka._ledger import COMMITS
from spark_ckpt.sinks.kafka._transactions import Transactions
from spark_ckpt.sinks.kafka.sink import KafkaSink
from spark_ckpt.testing.sink_harness import SCHEMA, SinkTarget
from spark_ckpt.types import Committable
from tests.kafka_server import PASSWORD, KafkaServer


class RowsInKafka(KafkaSink):
    """Any rows, each as the bytes of an Arrow stream in column value; those of ``SCHEMA`` as JSON."""

    def validate(self, schema: pa.Schema) -> None:
        super().validate(_MESSAGES)

    def writer(self, ctx: WriterContext) -> SinkWriter:
        inner = super().writer(WriterContext(**{**vars(ctx), "schema": _MESSAGES}))
        return _Encoding(inner)


_MESSAGES = pa.schema([("key", pa.string()), ("value", pa.binary())])


class _Encoding(SinkWriter):
    def __init__(self, inner: SinkWriter) -> None:
        self._inner = inner

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.schema.names == SCHEMA.names:
            rows = zip(*(c.to_pylist() for c in batch.columns), strict=True)
            values = [json.dumps(row).encode() for row in rows]
        else:
            values = [_stream(batch.slice(i, 1)) for i in range(batch.num_rows)]
        self._inner.write(pa.record_batch([["k"] * len(values), values], schema=_MESSAGES))

    def prepare_commit(self) -> Sequence[bytes]:
        return self._inner.prepare_commit()

    def close(self) -> None:
        self._inner.close()


def _stream(row: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as stream:
        stream.write_batch(row)
    return sink.getvalue().to_pybytes()


class KafkaTarget(SinkTarget):
    """A new topic with ``partitions`` of ``server``, and a ledger of its own."""

    secrets = (PASSWORD,)

    def __init__(
        self, server: KafkaServer, folder: str, partitions: int = 1, sink: type[KafkaSink] = RowsInKafka, **more: str
    ) -> None:
        self.server, self.topic, self.ledger = server, server.new_topic(partitions), f"ledger-{uuid.uuid4().hex[:12]}"
        options = {f"kafka.{k}": v for k, v in server.sasl.items()}
        options |= {"topic": self.topic, "stagingPath": folder, "ledgerTopic": self.ledger}
        super().__init__(sink, {**options, **more})
        # Tests are one job, and what one leaves open is not the next one's.
        for who in self.make().staged_by():
            self.make().discard(who)

    def read(self, schema: pa.Schema) -> pa.Table:
        values = [m.value() for m in committed(self.server, self.topic)]
        if schema.names == SCHEMA.names:
            rows = [json.loads(v) for v in values]
            return pa.table([[r[0] for r in rows], [r[1] for r in rows]], schema=SCHEMA)
        read = [pa.ipc.open_stream(v).read_all() for v in values]
        return pa.concat_tables(read) if read else schema.empty_table()

    def leftovers(self) -> list[str]:
        sink = self.make()
        assert isinstance(sink, KafkaSink)
        copies = [] if sink._copies is None else sink._copies.names()
        return [*copies, *sink.staged_by()]

    def remembered(self) -> int | None:
        return len(ledger_of(self.server, self.ledger))


def committed(server: KafkaServer, topic: str) -> list[Message]:
    """What any consumer with ``read_committed`` gets, by partition and offset."""
    conf = {"bootstrap.servers": server.bootstrap, "group.id": "g", "isolation.level": "read_committed"}
    consumer = Consumer({**conf, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    try:
        partitions = consumer.list_topics(topic, 60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        found, ended = [], 0
        while ended < len(partitions):
            message = consumer.poll(60)
            assert message is not None
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended += 1
    finally:
        consumer.close()
    return sorted(found, key=lambda m: (m.partition(), m.offset()))


def ledger_of(server: KafkaServer, ledger: str) -> Mapping[bytes, bytes]:
    """What a ledger topic has of checkpoints."""
    found: dict[bytes, bytes] = {}
    for message in committed(server, ledger):
        if message.partition() == COMMITS:
            found[message.key()] = message.value()
    return {key: value for key, value in found.items() if value is not None}


def lose(target: KafkaTarget, staged: list[Committable]) -> None:
    """What the broker does when the time of transactions is over."""
    sink = target.make()
    assert isinstance(sink, KafkaSink)
    with Transactions(sink._settings) as transactions:
        states = transactions.settle([s.transaction for s in staged_of(staged)], False, lambda _: None)
    assert set(states.values()) == {"CompleteAbort"}
