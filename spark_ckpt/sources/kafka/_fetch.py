"""Ranges of a partition as messages. Executor.

A consumer reads one range at a time and is kept for the next one, by preference the range that begins where this one
ended: what was fetched beyond it is then at hand.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from spark_ckpt.errors import InvalidInputError, RetryableError
from spark_ckpt.kafka_client import without_secrets
from spark_ckpt.sources.kafka._brokers import UNKNOWN, Brokers, refused, what_to_do
from spark_ckpt.sources.kafka._positions import Partition, Range

_logger = logging.getLogger(__name__)

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
_BATCH_BYTES = 16 << 20
_MOST_MESSAGES = 10_000
_WAIT_S = 0.1
_KEPT = 8
"""Consumers that a process keeps without a range to read."""


class DataLossError(Exception):
    """Records of a range are not there any more. Internal: becomes an error or a warning."""


class _Kept:
    """A consumer and where it is."""

    def __init__(self, conf: Mapping[str, Any], timeout_s: float) -> None:
        self.heard: KafkaError | None = None
        self.told = False
        self.consumer = Consumer({**_DEFAULTS, **conf, **_FIXED, "error_cb": self._hear})
        self.brokers = Brokers(conf, timeout_s)
        self.partition: Partition | None = None
        self.at = -1

    def go_to(self, partition: Partition, offset: int) -> None:
        if (self.partition, self.at) != (partition, offset):
            self.assign(partition, offset)

    def assign(self, partition: Partition, offset: int) -> None:
        self.consumer.assign([TopicPartition(partition.topic, partition.number, offset)])
        self.partition, self.at = partition, offset

    def lost(self) -> None:
        """Where it is is not known: the next range assigns it anew."""
        self.partition, self.at = None, -1

    def _hear(self, error: KafkaError) -> None:
        if self.heard is None or not refused(self.heard):
            self.heard = error


_idle: dict[str, list[_Kept]] = {}


def messages(range_: Range, topic_id: str, conf: Mapping[str, Any], timeout_s: float) -> Iterator[list[Message]]:
    """The messages of ``range_`` in pieces, in order, all of the topic that has ``topic_id``.

    Raises ``DataLossError`` where some are gone, which may be noticed behind all that are there, ``InvalidInputError``
    if the brokers refuse, ``RetryableError`` if they are away for longer than ``timeout_s``.
    """
    key = json.dumps([sorted(conf.items()), timeout_s])
    kept = _take(key, range_) or _Kept(conf, timeout_s)
    done = False
    try:
        kept.go_to(range_.partition, range_.start)
        yield from _fetched(kept, range_, timeout_s)
        _same_topic(kept.brokers, range_.partition.topic, topic_id)
        done = True
    finally:
        if not done:
            kept.lost()
        _give_back(key, kept)


def _take(key: str, range_: Range) -> _Kept | None:
    idle = _idle.get(key, [])
    at_hand = [k for k in idle if (k.partition, k.at) == (range_.partition, range_.start)] or idle[:1]
    if not at_hand:
        return None
    idle.remove(at_hand[0])
    return at_hand[0]


def _give_back(key: str, kept: _Kept) -> None:
    idle = _idle.setdefault(key, [])
    idle.append(kept)
    if len(idle) > _KEPT:
        idle.pop(0).consumer.close()


def close_kept() -> None:
    """Close the consumers that wait for a range: at the end of its partition each asks its broker 50 times a second."""
    while _idle:
        for kept in _idle.popitem()[1]:
            kept.consumer.close()


def _fetched(kept: _Kept, range_: Range, timeout_s: float) -> Iterator[list[Message]]:
    """A transaction's markers and what it aborted take offsets and never come, also at the end of the range. So the
    range is over with its last offset, with a message behind it, or with the end of the partition."""
    most, until = 500, time.monotonic() + timeout_s
    while kept.at < range_.end:
        found = kept.consumer.consume(min(most, range_.end - kept.at), 0) or kept.consumer.consume(1, _WAIT_S)
        if not found:
            _still_waiting(kept, range_, until)
            continue
        good, over = _sorted_out(kept, range_, found)
        if good:
            kept.heard, kept.told = None, False
            yield good
            until = time.monotonic() + timeout_s
            most = _next_size(good)
        if over:
            return
        if not good:
            _still_waiting(kept, range_, until)


def _sorted_out(kept: _Kept, range_: Range, found: list[Message]) -> tuple[list[Message], bool]:
    """The messages of the range, and whether it is over."""
    good = [m for m in found if m.error() is None]
    errors = [m for m in found if m.error() is not None] if len(good) < len(found) else []
    over = False
    for message in errors:
        over |= _at_end(kept, range_, message)
    if good:
        kept.at = good[-1].offset() + 1
        if kept.at > range_.end:
            good = [m for m in good if m.offset() < range_.end]
            kept.lost()
            over = True
    return good, over


def _at_end(kept: _Kept, range_: Range, message: Message) -> bool:
    error = message.error()
    if error.code() == KafkaError._PARTITION_EOF:
        if message.offset() < range_.end:
            return False  # a broker that has just become the leader may know of less for a moment
        kept.at = max(kept.at, message.offset())
        return True
    if error.code() == KafkaError._AUTO_OFFSET_RESET and _is_there(kept, range_):
        # Of where the consumer waited before: records went there, and librdkafka tells it whoever goes on elsewhere.
        kept.assign(range_.partition, kept.at)
        return False
    if error.code() == KafkaError._AUTO_OFFSET_RESET or error.code() in UNKNOWN:
        raise DataLossError(f"{range_.partition}, offsets {kept.at} to {range_.end}: {error.str()}")
    kept.heard = error
    if refused(error):
        raise _failure(kept, range_)
    return False


def _is_there(kept: _Kept, range_: Range) -> bool:
    """Whether the brokers have what comes next, or its place, where nothing has come yet."""
    place = range_.partition
    return kept.brokers.earliest([place])[place] <= kept.at <= kept.brokers.latest([place])[place]


def _still_waiting(kept: _Kept, range_: Range, until: float) -> None:
    if kept.heard is not None and refused(kept.heard):
        raise _failure(kept, range_)
    if time.monotonic() < until:
        if kept.heard is not None and not kept.told:
            _logger.warning("Kafka: %s; waiting for %s", _text(kept), range_.partition)
            kept.told = True
        return
    if kept.heard is None:
        end = kept.brokers.latest([range_.partition])[range_.partition]
        if end < range_.end:
            raise DataLossError(f"{range_.partition}: expected offsets up to {range_.end}, found {end} to be the last")
    raise _failure(kept, range_)


def _failure(kept: _Kept, range_: Range) -> Exception:
    text, heard = _text(kept), kept.heard
    kept.heard = None
    if heard is not None and refused(heard):
        return InvalidInputError(f"Kafka refused to send {range_.partition}: {text}; {what_to_do(heard)}")
    return RetryableError(
        f"expected {range_.partition}, offsets {kept.at} to {range_.end}, from Kafka within "
        f"{kept.brokers.timeout_s:g} s, found {text}; nothing is lost: start the query again when the brokers are up"
    )


def _text(kept: _Kept) -> str:
    heard = kept.heard
    return "none" if heard is None else without_secrets(f"{heard.name()} ({heard.str()})", kept.brokers.conf)


def _same_topic(brokers: Brokers, topic: str, topic_id: str) -> None:
    """An id never comes back, so what was read before this answer is of that topic."""
    found = brokers.described([topic], patience_s=0)[0].get(topic)
    if found != topic_id:
        raise DataLossError(f"topic {topic} {'was made again' if found else 'is gone'}, while it was read")


def _next_size(found: list[Message]) -> int:
    size = sum(len(m) for m in found[:: max(1, len(found) // 20)]) * max(1, len(found) // 20)
    return int(max(1, min(_MOST_MESSAGES, _BATCH_BYTES * len(found) // max(size, 1))))
