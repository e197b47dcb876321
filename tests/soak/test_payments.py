"""The payments job on a cluster for ten minutes, while its processes and all servers around it are killed at random.

``make soak PYTEST_ARGS="tests/soak/test_payments.py -s" KILLS=100 MINUTES=10 SEED=7`` prints every blow.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import spark_ckpt
from examples.payments.demo import Servers, compare, servers
from examples.payments.generator import payments
from examples.payments.job import IN
from spark_ckpt.sinks.kafka.sink import KafkaSink
from tests.cluster.standalone import EXECUTORS, standalone_cluster
from tests.kill.killed_job import JAVA_OPTIONS
from tests.postgres_server import PASSWORD
from tests.s3_server import SECRET, S3Server
from tests.soak.left_over import collected, objects_with, staged_rows, unnamed_files
from tests.soak.payments_kills import Kills

KILLS = int(os.environ.get("KILLS", "100"))
MINUTES = float(os.environ.get("MINUTES", "10"))
SEED = int(os.environ.get("SEED", "1"))
PER_SECOND = 100
FIRST_PAUSE_S = 6.0
"""Between storms, before something dies while the job is on its way to a checkpoint."""
DEADLINE_S = 900.0
"""For a checkpoint between storms, on a machine that has other work, too."""


class Sending(threading.Thread):
    """Sends payments steadily until told to stop; what it sent is a prefix of what the generator gives."""

    def __init__(self, brokers: str) -> None:
        super().__init__(daemon=True)
        # Behind a broker that is away for a while comes each payment once, and in its order.
        self._producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "message.timeout.ms": 0,
                                   "log_level": 0})  # fmt: skip
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


@contextlib.contextmanager
def everything(folder: Path) -> Iterator[Kills]:
    """MinIO, the broker, PostgreSQL, a cluster of two executors, and the job on them."""
    with contextlib.ExitStack() as stack:
        minio = S3Server("minio").start()
        stack.callback(minio.stop)
        stack.enter_context(minio.in_environment())
        place = f"s3://{minio.new_bucket()}/payments"
        given = stack.enter_context(servers(folder / "payments", place))
        (folder / "cluster").mkdir()
        cluster = stack.enter_context(standalone_cluster(folder / "cluster"))
        conf = {
            **EXECUTORS,
            "spark.executor.extraJavaOptions": JAVA_OPTIONS,
            "spark.master": cluster.url,
            "spark.ckpt.sparkDir": str(folder / "spark"),
        }
        by_name = {"broker": given.kafka, "PostgreSQL": given.postgres, "MinIO": minio}
        kills = Kills(given, cluster, by_name, folder / "job.log", conf, random.Random(SEED))
        stack.callback(kills.end)
        yield kills


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_payments_are_counted_once_in_three_systems_whatever_is_killed(tmp_path: Path) -> None:
    """In storms; behind each, the job gets as far as a further checkpoint: so it is at work when the next one comes.
    To start a driver takes longest, so that drivers die in every second storm only, and what the job does without for a
    while dies between storms, too."""
    with everything(tmp_path) as kills:
        sending = Sending(kills.given.places["brokers"])
        sending.start()
        began, storms = time.monotonic(), 0
        folder = f"{kills.given.places['folder']}/checkpoints"
        job = spark_ckpt.job(folder, "payments", **{"retry.timeout": "300s"})
        while time.monotonic() < began + 60 * MINUTES or kills.counts.total() < KILLS:
            newest, storms = _until_checkpoint(kills, job), storms + 1
            _say(f"{time.monotonic() - began:6.0f} s  checkpoint {newest} is committed; storm {storms}")
            _storm(kills, ending=storms % 2 == 0)
        kills.all_back()
        sent = sending.end()
        kills.finish(1800)
        compare(kills.given, sent)
        _check_left_over(kills.given)
    done = f"{kills.counts.total()} kills: {dict(kills.counts)}; {storms} storms; {kills.starts} starts"
    _say(f"{done}; {len(sent)} payments, 0 lost, 0 doubled")


def _storm(kills: Kills, ending: bool) -> None:
    """Volleys at random times; what they hit is still coming back from the ones before. ``ending``: drivers die."""
    for _ in range(kills.draw.randint(5, 9)):
        until = time.monotonic() + kills.draw.uniform(0, 4)
        while time.monotonic() < until:
            kills.start_again_if_ended()
            time.sleep(0.1)
        _told(kills, kills.volley(ending))


def _until_checkpoint(kills: Kills, job: Any) -> int:
    """Until the job, started again if it ended, has committed a further checkpoint; returns which. Meanwhile something
    dies now and then, and each time the next waits twice as long, so that it gets there."""
    kills.start_again_if_ended()  # while servers are coming back, as its first seconds are Spark's
    before = newest = max(job.records.ids("committed"), default=0)
    began = time.monotonic()
    pause_s, next_s = FIRST_PAUSE_S, began + FIRST_PAUSE_S
    while newest <= before:
        assert time.monotonic() < began + DEADLINE_S, f"no checkpoint after {before}: {kills.log.read_text()[-6000:]}"
        kills.start_again_if_ended()
        kills.raise_if_not_back()
        if kills.counts and time.monotonic() > next_s:
            _told(kills, kills.volley(ending=False, most=1))
            pause_s *= 2
            next_s = time.monotonic() + pause_s
        time.sleep(0.2)
        newest = max(job.records.ids("committed"), default=0)
    return newest


def _told(kills: Kills, struck: list[str]) -> None:
    _say(f"{kills.counts.total():4} {', '.join(struck)}; start {kills.starts}")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


def _check_left_over(given: Servers) -> None:
    """No open transaction, and after ``gc`` no staged row and no file that nothing names."""
    place = given.places["folder"]
    kafka = KafkaSink({"kafka.bootstrap.servers": given.places["brokers"], "topic": "sums"})
    assert sum(kafka.staged_by().values()) == 0
    job = collected(f"{place}/checkpoints", "payments", given.places["database"])
    assert staged_rows(given.places["database"]) == {}
    assert unnamed_files(job, f"{place}/checkpoints/payments", f"{place}/sums") == []
    assert objects_with(SECRET, place) == objects_with(PASSWORD, place) == []
