"""A process that notes when Kafka and PostgreSQL show the row of each probe.

    python -m benchmarks.latency.observers '{"brokers": ..., "topic": ..., "dsn": ... or null, "pace": {...}}'

It says ``{"ready": true}``, and answers a line on standard input when all measured probes were seen everywhere, or
when so many seconds as the line says have passed: ``{"kafka": {probe: seconds since 1970}, "sql": {...}}``. Kafka is
read by a consumer with ``read_committed``; PostgreSQL is asked every 5 ms, by primary key, for probes that it has not
shown yet.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition

from benchmarks.answers import say
from benchmarks.latency.events import PARTITIONS, PROBE_PREFIX, TABLE, Pace

_EVERY_S = 0.005
Seen = dict[int, float]


class Observer(threading.Thread):
    """Calls ``look`` again and again, which adds to ``seen``. ``failed`` says why it ended early."""

    def __init__(self, look: Callable[[Seen], None]) -> None:
        super().__init__(daemon=True)
        self._look = look
        self.seen: Seen = {}
        self.failed: str | None = None

    def run(self) -> None:
        try:
            while True:
                self._look(self.seen)
        except Exception as e:  # noqa: BLE001 - told in the answer
            self.failed = f"{type(e).__name__}: {e}"


def in_kafka(brokers: str, topic: str, pace: Pace) -> Callable[[Seen], None]:
    conf = {"bootstrap.servers": brokers, "group.id": "observer", "enable.auto.commit": False}
    consumer = Consumer({**conf, "isolation.level": "read_committed", "fetch.wait.max.ms": 100})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])

    def look(seen: Seen) -> None:
        messages = consumer.consume(10_000, _EVERY_S)
        now = time.time()
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            value = message.value()
            if value is not None and value.startswith(PROBE_PREFIX):
                row = json.loads(value)
                seen.setdefault(pace.probe_of(row["k"], row["n"], row["total"]), now)

    return look


def in_postgres(dsn: str, pace: Pace) -> Callable[[Seen], None]:
    connection = psycopg.connect(dsn, autocommit=True)
    oldest = 0  # of those that were not seen

    def look(seen: Seen) -> None:
        nonlocal oldest
        began = time.monotonic()
        rows = connection.execute(f"SELECT k, n, total FROM {TABLE} WHERE k <= %s", (-1 - oldest,)).fetchall()
        now = time.time()
        for row in rows:
            seen.setdefault(pace.probe_of(*map(int, row)), now)
        while oldest in seen:
            oldest += 1
        time.sleep(max(0.0, began + _EVERY_S - time.monotonic()))

    return look


def answer(watching: dict[str, Observer], pace: Pace, limit_s: float) -> dict[str, Any]:
    until, wanted = time.monotonic() + limit_s, pace.measured
    while time.monotonic() < until and not any(o.failed for o in watching.values()):
        if all(probe in o.seen for o in watching.values() for probe in wanted):
            break
        time.sleep(0.1)
    failed = {name: o.failed for name, o in watching.items() if o.failed}
    if failed:
        return {"error": f"observers failed: {failed}"}
    return {name: {str(p): o.seen[p] for p in wanted if p in o.seen} for name, o in watching.items()}


def main() -> None:
    asked = json.loads(sys.argv[1])
    pace = Pace.from_json(asked["pace"])
    watching = {"kafka": Observer(in_kafka(asked["brokers"], asked["topic"], pace))}
    if asked["dsn"] is not None:
        watching["sql"] = Observer(in_postgres(asked["dsn"], pace))
    for observer in watching.values():
        observer.start()
    say({"ready": True})
    for line in sys.stdin:
        say(answer(watching, pace, float(line)))


if __name__ == "__main__":
    main()
