"""A process that writes events into Kafka at an even pace.

    python -m benchmarks.latency.producer '{"brokers": ..., "topic": ..., "pace": {...}}'

It says ``{"began": <seconds since 1970>}`` before the first event, and when all are written how late it was. An event's
time, which is its message's timestamp, too, is when it was due, so what a busy machine delays here counts as latency.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from confluent_kafka import Producer

from benchmarks.answers import say
from benchmarks.latency.events import PARTITIONS, Pace

_TICK_S = 0.005


def run(producer: Any, topic: str, pace: Pace) -> dict[str, Any]:
    """All events of ``pace``; how late the first one of each tick was, in seconds."""
    began, sent, late = time.time(), 0, []
    say({"began": began})
    while sent < pace.events:
        now = time.time() - began
        due = min(pace.events, int(now * pace.rate) + 1)
        late.append(now - sent / pace.rate)
        for event in range(sent, due):
            at_ms = int(1000 * (began + event / pace.rate))
            producer.produce(topic, pace.value(event), partition=event % PARTITIONS, timestamp=at_ms)
        sent = due
        producer.poll(0)
        time.sleep(max(0.0, began + now + _TICK_S - time.time()))
    left = producer.flush(60)
    late.sort()
    return {"events": sent, "unsent": left, "late_p99_s": late[len(late) * 99 // 100], "late_max_s": late[-1]}


def main() -> None:
    asked = json.loads(sys.argv[1])
    conf = {"bootstrap.servers": asked["brokers"], "linger.ms": 1, "queue.buffering.max.messages": 1_000_000}
    producer = Producer(conf)
    producer.list_topics(asked["topic"], timeout=30)  # connected before the first event is due
    say(run(producer, asked["topic"], Pace.from_json(asked["pace"])))


if __name__ == "__main__":
    main()
