"""One transaction of a librdkafka producer: filled here, ended elsewhere or here."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from spark_ckpt.errors import RetryableError
from spark_ckpt.sinks.kafka._errors import Heard, patiently, said
from spark_ckpt.sinks.kafka._rows import HEADERS, messages
from spark_ckpt.sinks.kafka._settings import KafkaSettings

_CHUNK_ROWS = 20_000
_CHUNK_BYTES = 8 * 1024 * 1024
_ANSWER_S = 10
_NOT_WHY = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._STATE)
_ASKED_AT_MOST = 10
"""A client that stays with the connection it began with can use that."""
_QUEUE = {"queue.buffering.max.messages": 4 * _CHUNK_ROWS, "queue.buffering.max.kbytes": 1024 * 1024}


class OpenTransaction:
    """Begun when made. Memory is bounded: some 16 MiB of messages wait in the client, beside the largest row.

    What Kafka refuses, and what it does not acknowledge within ``kafka.delivery.timeout.ms``, is raised by :meth:`send`
    or :meth:`flush`, and nothing of it can be committed then.
    """

    def __init__(self, settings: KafkaSettings, name: str, doing: str) -> None:
        self._settings, self._doing = settings, f"kafka {settings.servers}: {doing}"
        self._failed: list[KafkaError] = []
        self._heard = Heard()
        conf = settings.producer(**{"transactional.id": name, **_QUEUE, "error_cb": self._heard})
        self._producer = Producer(conf)
        try:
            patiently(self._doing, settings, self._begin)
        except BaseException:
            self.leave()
            raise

    def _begin(self) -> None:
        try:
            self._connect()
            self._producer.init_transactions(self._settings.answer_s)
        except KafkaException as error:
            self._producer.poll(0)
            raise self._heard.reason(error) from None
        self._producer.begin_transaction()

    def _connect(self) -> None:
        """Until a broker of the cluster has answered, and not one as it stands in ``bootstrap.servers``: librdkafka
        leaves that connection when it knows the brokers. Where it has none it looks for the transaction's coordinator
        again after half a second."""
        for _ in range(_ASKED_AT_MOST):
            if self._producer.list_topics(self._settings.ledger, self._settings.answer_s).orig_broker_id >= 0:
                return

    def send(self, rows: pa.RecordBatch, topic: str | None) -> None:
        """Messages of :func:`spark_ckpt.sinks.kafka._rows.message_rows`."""
        step = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES * rows.num_rows // max(1, rows.nbytes)))
        for start in range(0, rows.num_rows, step):
            part = rows.slice(start, step)
            self._wait(step)
            for name, partition, found in messages(part, topic):
                self._produce(name, partition, found)

    def record(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        self._produce(topic, partition, [{"key": key, "value": value}])

    def flush(self) -> None:
        """Everything sent is in Kafka. Nothing lingers for others to go with."""
        while len(self._producer):
            self._producer.flush(0.1)
            self._check()

    def commit(self) -> None:
        """End it here; raises ``RetryableError`` where it is unknown whether it was."""
        try:
            patiently(self._doing, self._settings, lambda: self._producer.commit_transaction(_ANSWER_S))
        finally:
            self.leave()

    def abort(self) -> None:
        """End it here if that is possible; the broker does when its time is over. Does not raise."""
        with contextlib.suppress(KafkaException):
            self._producer.purge()
            self._producer.abort_transaction(_ANSWER_S)
        self.leave()

    def leave(self) -> None:
        """Without ending it: a transaction stays as it is when its producer goes."""
        del self._producer

    def _produce(self, topic: str, partition: int, found: list[dict[str, Any]]) -> None:
        if any(HEADERS in message for message in found):  # which librdkafka's batches cannot have
            for message in found:
                with self._errors():
                    self._producer.produce(topic, partition=partition, on_delivery=self._delivered, **message)
        else:
            with self._errors():
                self._producer.produce_batch(topic, found, partition, on_delivery=self._delivered)
            self._failed += [m["_error"] for m in found if "_error" in m]
        self._producer.poll(0)
        self._check()

    def _wait(self, most: int) -> None:
        while len(self._producer) > most:
            self._producer.poll(0.01)
            self._check()

    def _delivered(self, error: KafkaError | None, _: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def _check(self) -> None:
        # The first one is the reason; the others are purged because of it.
        if self._failed:
            raise said(self._doing, self._settings, self._reason(self._failed[0]))

    def _reason(self, error: KafkaError) -> KafkaException:
        """Where the transaction as such has failed, librdkafka only says that it purged the messages, or takes no more.
        To commit tells why: it never does that where one message has failed."""
        if error.code() in _NOT_WHY:
            try:
                self._producer.commit_transaction(_ANSWER_S)
            except KafkaException as why:
                return why
        return KafkaException(error)

    @contextlib.contextmanager
    def _errors(self) -> Any:
        try:
            yield
        except KafkaException as error:
            raise said(self._doing, self._settings, error) from None
        except BufferError as error:
            raise RetryableError(f"{self._doing} failed ({error}): raise kafka.queue.buffering.max.kbytes") from None
