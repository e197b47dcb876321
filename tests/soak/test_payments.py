"""The payments job for ten minutes, while its processes and the servers at both of its ends are killed at random.

``make soak PYTEST_ARGS="tests/soak/test_payments.py -s" KILLS=100 MINUTES=10 SEED=7`` prints every blow.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

import spark_ckpt
from examples.payments.demo import Servers, compare, kill, servers, start_job
from examples.payments.generator import payments
from examples.payments.job import IN
from spark_ckpt.sinks.kafka.sink import KafkaSink

KILLS = int(os.environ.get("KILLS", "100"))
MINUTES = float(os.environ.get("MINUTES", "10"))
SEED = int(os.environ.get("SEED", "1"))
PER_SECOND = 100
BLOWS = ("driver", "JVM", "Python worker", "broker", "PostgreSQL")
WEIGHTS = (3, 2, 3, 1, 2)


class Sending(threading.Thread):
    """Sends payments steadily until told to stop; what it sent is a prefix of what the generator gives."""

    def __init__(self, brokers: str) -> None:
        super().__init__(daemon=True)
        # Behind a broker that is away for a while comes each payment once, and in its order.
        self._producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "message.timeout.ms": 0})
        self._stop_asked = threading.Event()
        self.sent: list[Any] = []

    def run(self) -> None:
        began = time.monotonic()
        for payment in payments(10_000_000, SEED):
            if self._stop_asked.is_set():
                break
            self._producer.produce(IN, payment.json(), str(payment.merchant))
            self.sent.append(payment)
            self._producer.poll(0)
            time.sleep(max(0.0, began + len(self.sent) / PER_SECOND - time.monotonic()))
        self._producer.flush()

    def end(self) -> list[Any]:
        self._stop_asked.set()
        self.join()
        return self.sent


def strike(blow: str, given: Servers, job: subprocess.Popen[bytes], draw: random.Random) -> bool:
    """Kill it; servers come back at once. Returns whether there was anything to kill."""
    if blow == "driver":
        kill(job)
        return True
    if blow == "broker":
        given.kafka.kill()
        given.kafka.restart()
        return True
    if blow == "PostgreSQL":
        given.postgres.kill()
        given.postgres.restart()
        return True
    wanted = "java" if blow == "JVM" else "pyspark"
    found = [p for p in psutil.process_iter(["cmdline"]) if _of(p, job.pid) and _is(p, wanted)]
    if not found:
        return False
    victim = draw.choice(found)
    victim.kill()
    return True


def _of(process: psutil.Process, session: int) -> bool:
    try:
        return os.getsid(process.pid) == session and process.pid != session
    except ProcessLookupError:
        return False


def _is(process: psutil.Process, wanted: str) -> bool:
    command = process.info["cmdline"] or []
    return (wanted == "java" and command[:1] and command[0].endswith("java")) or (
        wanted == "pyspark" and any(part.startswith("pyspark.") for part in command)
    )


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_payments_are_counted_once_in_three_systems_whatever_is_killed(tmp_path: Path) -> None:
    draw, blows, starts = random.Random(SEED), Counter[str](), 0
    with servers(tmp_path / "payments") as given:
        log = tmp_path / "job.log"
        sending = Sending(given.places["brokers"])
        sending.start()
        end = time.monotonic() + 60 * MINUTES
        job = start_job(given, log, now=False)
        while time.monotonic() < end or blows.total() < KILLS:
            time.sleep(draw.uniform(1, 2 * 60 * MINUTES / KILLS - 1))
            if job.poll() is not None:
                kill(job)  # what it left behind
                job, starts = start_job(given, log, now=False), starts + 1
            blow = draw.choices(BLOWS, WEIGHTS)[0]
            if strike(blow, given, job, draw):
                blows[blow] += 1
                print(f"{blows.total():4} {blow}; {len(sending.sent)} payments, start {starts}", flush=True)  # noqa: T201
        kill(job)
        sent = sending.end()
        last = start_job(given, log, now=True)
        assert last.wait(1800) == 0, log.read_text()[-4000:]
        compare(given, sent)
        found = spark_ckpt.job(f"{given.places['folder']}/checkpoints", "payments")
        assert found.verify() == []
        found.gc()
        assert _open_transactions(given) == 0
        assert found.gc() == [], "the first one removed all"
    assert blows.total() >= KILLS


def _open_transactions(given: Servers) -> int:
    return sum(KafkaSink({"kafka.bootstrap.servers": given.places["brokers"], "topic": "sums"}).staged_by().values())
