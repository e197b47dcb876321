"""Ranges of a partition as messages. Executor."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaError, Message

from spark_ckpt.errors import InvalidInputError, RetryableError
from spark_ckpt.kafka_client import without_secrets
from spark_ckpt.sources.kafka import _consumers
from spark_ckpt.sources.kafka._brokers import UNKNOWN, Brokers, refused, what_to_do
from spark_ckpt.sources.kafka._consumers import Kept
from spark_ckpt.sources.kafka._positions import Range

_logger = logging.getLogger(__name__)

_BATCH_BYTES = 16 << 20
_MOST_MESSAGES = 10_000
_WAIT_S = 0.1


class DataLossError(Exception):
    """Records of a range are not there any more. Internal: becomes an error or a warning."""


def messages(range_: Range, topic_id: str, conf: Mapping[str, Any], timeout_s: float) -> Iterator[list[Message]]:
    """The messages of ``range_`` in pieces, in order, all of the topic that has ``topic_id``.

    Raises ``DataLossError`` where some are gone, which may be noticed behind all that are there, ``InvalidInputError``
    if the brokers refuse, ``RetryableError`` if they are away for longer than ``timeout_s``.
    """
    key = json.dumps([sorted(conf.items()), timeout_s])
    kept = _consumers.take(key, range_) or Kept(conf, timeout_s)
    done = False
    try:
        kept.go_to(range_.partition, range_.start)
        yield from _fetched(kept, range_, timeout_s)
        _same_topic(kept.brokers, range_.partition.topic, topic_id)
        done = True
    finally:
        if not done:
            kept.lost()
        _consumers.give_back(key, kept)


def _fetched(kept: Kept, range_: Range, timeout_s: float) -> Iterator[list[Message]]:
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


def _sorted_out(kept: Kept, range_: Range, found: list[Message]) -> tuple[list[Message], bool]:
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


def _at_end(kept: Kept, range_: Range, message: Message) -> bool:
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


def _is_there(kept: Kept, range_: Range) -> bool:
    """Whether the brokers have what comes next, or its place, where nothing has come yet."""
    place = range_.partition
    return kept.brokers.earliest([place])[place] <= kept.at <= kept.brokers.latest([place])[place]


def _still_waiting(kept: Kept, range_: Range, until: float) -> None:
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


def _failure(kept: Kept, range_: Range) -> Exception:
    text, heard = _text(kept), kept.heard
    kept.heard = None
    if heard is not None and refused(heard):
        return InvalidInputError(f"Kafka refused to send {range_.partition}: {text}; {what_to_do(heard)}")
    return RetryableError(
        f"expected {range_.partition}, offsets {kept.at} to {range_.end}, from Kafka within "
        f"{kept.brokers.timeout_s:g} s, found {text}; nothing is lost: start the query again when the brokers are up"
    )


def _text(kept: Kept) -> str:
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
