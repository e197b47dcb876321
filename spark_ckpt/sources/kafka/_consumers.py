"""Kafka consumers between the ranges that they read. Executor.

A consumer reads one range at a time and is kept for the next one, by preference the range that begins where this one
ended: what was fetched beyond it is then at hand. It asks its broker 50 times a second for more of its partition; so
one without a range for some seconds leaves the partition, and goes there anew with its next range.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_ckpt.sources.kafka._brokers import Brokers, refused
from spark_ckpt.sources.kafka._positions import Partition, Range

_DEFAULTS = {
    # At the end of a partition the answer waits that long for more; a range may end with a transaction's marker.
    "fetch.wait.max.ms": "20",
    # By default, one byte: then whatever a producer has just sent is an answer of its own, to each consumer that waits,
    # those that are kept included. More would let a task wait that begins with a range of less.
    "fetch.min.bytes": "16384",
    # What a consumer fetches ahead of what is asked for, and keeps.
    "queued.max.messages.kbytes": "32768",
    "log_level": "0",
}
_FIXED: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
}
_MOST = 8
"""Consumers that a process keeps without a range to read, for each configuration."""
_REST_S = 5.0
"""Without a range for that long, a consumer asks for nothing. Longer than a batch takes: to go to a partition anew
costs the next range some 30 ms."""


class Kept:
    """A consumer and where it is."""

    def __init__(self, conf: Mapping[str, Any], timeout_s: float) -> None:
        self.heard: KafkaError | None = None
        self.told = False
        self.consumer = Consumer({**_DEFAULTS, **conf, **_FIXED, "error_cb": self._hear})
        self.brokers = Brokers(conf, timeout_s)
        self.partition: Partition | None = None
        self.at = -1
        self.resting = True
        self.idle_since = 0.0

    def go_to(self, partition: Partition, offset: int) -> None:
        if (self.partition, self.at) != (partition, offset):
            self.assign(partition, offset)

    def assign(self, partition: Partition, offset: int) -> None:
        self.consumer.assign([TopicPartition(partition.topic, partition.number, offset)])
        self.partition, self.at, self.resting = partition, offset, False

    def rest(self) -> None:
        """Ask for nothing until the next range."""
        with suppress(KafkaException):  # of a consumer that is broken, which its next range is told as well
            self.consumer.unassign()
        self.resting = True
        self.lost()

    def lost(self) -> None:
        """Where it is is not known: the next range assigns it anew."""
        self.partition, self.at = None, -1

    def _hear(self, error: KafkaError) -> None:
        if self.heard is None or not refused(self.heard):
            self.heard = error


_idle: dict[str, list[Kept]] = {}
_change = threading.Condition()
"""Held by who looks at ``_idle``; told when a consumer comes in."""
_thread: threading.Thread | None = None


def take(key: str, range_: Range) -> Kept | None:
    """A consumer of the configuration ``key`` that is kept, by preference one that is at the range's start."""
    with _change:
        idle = _idle.get(key, [])
        at_hand = [k for k in idle if (k.partition, k.at) == (range_.partition, range_.start)] or idle[:1]
        if not at_hand:
            return None
        idle.remove(at_hand[0])
        return at_hand[0]


def give_back(key: str, kept: Kept) -> None:
    global _thread
    with _change:
        idle = _idle.setdefault(key, [])
        kept.idle_since = time.monotonic()
        idle.append(kept)
        too_many = idle.pop(0) if len(idle) > _MOST else None
        if _thread is None or not _thread.is_alive():  # a process that was forked has none
            _thread = threading.Thread(target=_rest, name="kafka-consumers-rest", daemon=True)
            _thread.start()
        _change.notify()
    if too_many is not None:
        too_many.consumer.close()


def _rest() -> None:
    """For ever: those without a range for long enough rest."""
    while True:
        with _change:
            _change.wait_for(_awake)
            now = time.monotonic()
            for kept in _awake():
                if now - kept.idle_since >= _REST_S:
                    kept.rest()
        time.sleep(_REST_S / 10)


def _awake() -> list[Kept]:
    return [kept for idle in _idle.values() for kept in idle if not kept.resting]
