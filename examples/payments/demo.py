"""Start a Kafka broker and PostgreSQL, run the job, kill its driver, start it again, and compare all three sinks.

make payments        (or: python -m examples.payments.demo)
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from deltalake import write_deltalake
from rich.console import Console
from rich.table import Table

import spark_ckpt
from examples.flights.demo import kill_session
from examples.payments import expected
from examples.payments.generator import Payment, merchants, payments
from examples.payments.job import IN, OUT
from tests.kafka_server import KafkaServer
from tests.postgres_server import PostgresServer

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".demo" / "payments"
COUNT = 20_000

console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)


@dataclass
class Servers:
    """Both, on loopback, with the two topics, a database and the table of merchants."""

    folder: Path
    kafka: KafkaServer
    postgres: PostgresServer
    places: dict[str, Any]

    def write_places(self, **more: Any) -> Path:
        path = self.folder / "places.json"
        path.write_text(json.dumps({**self.places, **more}))
        path.chmod(0o600)  # the database's password is in it
        return path


@contextlib.contextmanager
def servers(folder: Path, url: str = "") -> Iterator[Servers]:
    """``url``: where the job and its Delta tables are, if not in ``folder``; credentials are in the environment."""
    folder.mkdir(parents=True)
    place = url or str(folder)
    with contextlib.ExitStack() as stack:
        kafka, postgres = KafkaServer().start(), PostgresServer()
        stack.callback(kafka.stop)
        postgres.start()
        stack.callback(postgres.stop)
        for topic in (IN, OUT):
            kafka.new_topic(2, name=topic)
        table = pa.Table.from_pylist([{"merchant": m, "category": c} for m, c in merchants()])
        table = table.cast(pa.schema([("merchant", pa.int32()), ("category", pa.string())]))
        write_deltalake(f"{place}/merchants", table)
        places = {"folder": place, "brokers": kafka.bootstrap, "database": postgres.new_database()}
        yield Servers(folder, kafka, postgres, places)


def produce(brokers: str, found: Iterable[Payment]) -> int:
    """All of them, by merchant into partitions; those of one merchant keep their order. Some others are no payments."""
    producer, count = Producer({"bootstrap.servers": brokers, "linger.ms": 20}), 0
    for count, payment in enumerate(found, 1):
        producer.produce(IN, payment.json(), str(payment.merchant))
        if count % 1000 == 0:
            producer.produce(IN, b'{"payment": "broken', "nobody")
            producer.flush()
    producer.flush()
    return count


def start_job(given: Servers, log: Path, **more: Any) -> subprocess.Popen[bytes]:
    """The job's process, in a session of its own."""
    command = [sys.executable, "-m", "examples.payments.job", str(given.write_places(**more))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "python_datasource")])}
    with log.open("ab") as out:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out, start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> int:
    """SIGKILL for the driver, its JVM and its Python workers; returns how many there were."""
    killed = kill_session(process.pid)
    process.wait()
    return killed


def committed(given: Servers) -> int:
    """Windows that are in the Delta table."""
    with contextlib.suppress(Exception):
        return len(expected.in_delta(given.places["folder"]))
    return 0


def compare(given: Servers, sent: Iterable[Payment]) -> Table:
    """A table for people. Raises ``AssertionError`` if a sink has other sums than the batch computation."""
    wanted, places = expected.batch(sent), given.places
    found = {
        "Kafka, read_committed": expected.in_kafka(places["brokers"]),
        "PostgreSQL": expected.in_database(places["database"]),
        "Delta": expected.in_delta(places["folder"]),
    }
    table = Table("", "windows", "payments", "cents", "against the batch")
    for name, rows in {"batch computation": wanted, **found}.items():
        verdict = "" if rows is wanted else "equal" if rows == wanted else "DIFFERENT"
        table.add_row(name, *(f"{n:,}" for n in (len(rows), sum(r[2] for r in rows), sum(r[3] for r in rows))), verdict)
    console.print(table)
    assert all(rows == wanted for rows in found.values()), "a sink differs from the batch computation"
    return table


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    console.print("[bold]1. A Kafka broker, PostgreSQL, a Delta table of merchants[/]")
    with servers(FOLDER) as given:
        log, sent = FOLDER / "job.log", list(payments(COUNT))
        console.print(f"[bold]2. {produce(given.places['brokers'], sent):,} payments, 5 % of them twice, 10 % late[/]")
        console.print(f"[bold]3. The job, killed when a third is committed[/]   (log: {log})")
        process = start_job(given, log, now=False, maxOffsetsPerTrigger=1500)
        third = len(expected.batch(sent)) // 3
        while committed(given) < third and process.poll() is None:
            time.sleep(0.5)
        console.print(f"  killed {kill(process)} processes with {committed(given)} windows committed")
        console.print("[bold]4. The same command again, until all is taken[/]")
        process = start_job(given, log, now=True)
        if process.wait() != 0:
            raise SystemExit(f"the job failed; see {log}")
        console.print("[bold]5. What the three sinks hold[/]")
        compare(given, sent)
        problems = spark_ckpt.job(f"{FOLDER}/checkpoints", "payments").verify()
        console.print(f"spark-ckpt verify: {problems or 'nothing is wrong'}")


if __name__ == "__main__":
    main()
