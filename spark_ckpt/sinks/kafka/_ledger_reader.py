"""The last value of each key in one partition of the ledger topic. Driver."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_ckpt.errors import CorruptStorageError, RetryableError
from spark_ckpt.sinks.kafka._errors import said
from spark_ckpt.sinks.kafka._settings import KafkaSettings
from spark_ckpt.storage.retry import Retry

_ANSWER_S = 10
_AT_ONCE = 1000
Values = dict[tuple[Any, ...], Any]


class LedgerReader:
    """Reads from the beginning once, and from then on what is new. Of no use after an exception. One thread."""

    def __init__(self, settings: KafkaSettings, topic: str, partition: int) -> None:
        self._settings, self._place = settings, f"kafka {settings.servers}: ledger topic {topic}"
        self._partition = TopicPartition(topic, partition, 0)
        conf = {
            "group.id": "spark_ckpt_ledger",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
        }
        self._consumer = Consumer(settings.consumer(**conf))
        self._assigned = False
        self._next = 0
        self._values: Values = {}

    def close(self) -> None:
        self._consumer.close()

    def values(self, wait: bool) -> Values:
        """All that is there when this is called; ``wait`` until open transactions of others have ended, which may be
        in front of it. Raises ``KafkaException``, ``RetryableError`` and ``CorruptStorageError``."""
        retry = Retry(self._settings.patience_s)
        deadline = retry.clock() + retry.timeout_s
        _, end = self._consumer.get_watermark_offsets(self._partition, _ANSWER_S, cached=False)
        if end < self._next:  # somebody made the topic anew: only what is there now counts
            self._assigned, self._next, self._values = False, 0, {}
        if not self._assigned:
            self._consumer.assign([self._partition])
            self._assigned = True
        while self._next < end:
            if self._read_on() and not wait:
                break
            if retry.clock() > deadline:
                raise RetryableError(f"{self._place} was not read to its end within {retry.timeout_s:g} s")
        return dict(self._values)

    def _read_on(self) -> bool:
        """Read what has come; whether that is all there is to read now."""
        at_end = False
        for message in self._consumer.consume(_AT_ONCE, 0) or self._consumer.consume(1, 0.1):
            error = message.error()
            if error is None:
                self._take(message.key(), message.value())
                self._next = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._next, at_end = max(self._next, message.offset()), True
            else:
                raise said(f"{self._place}: reading", self._settings, KafkaException(error))
        return at_end

    def _take(self, key: bytes, value: bytes | None) -> None:
        try:
            place = tuple(json.loads(key))
            body = None if value is None else json.loads(value)
        except ValueError:
            raise CorruptStorageError(
                f"{self._place}: expected keys and values in JSON, found others; give the sink a topic of its own"
            ) from None
        if body is None:
            self._values.pop(place, None)
        else:
            self._values[place] = body
