"""The latency section of the benchmarks, but for the engines: what is an event, who notes what, what comes of it."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable, write_deltalake

from benchmarks import report
from benchmarks.aims import AIMS
from benchmarks.latency import observers, producer, shown
from benchmarks.latency.delta_log import seen_in_delta
from benchmarks.latency.events import INTERVALS, KEYS, PARTITIONS, RATES, Pace, cell
from benchmarks.latency.figures import EVERYWHERE, figures, latencies
from benchmarks.latency.totals import check_totals
from tests.kafka_server import shared_kafka
from tests.postgres_server import shared_server

PACE = Pace(rate=1000, seconds=0.3, warm_up=0.1)
PROBES = range(15)


def message(probe: int, count: int = 1) -> bytes:
    return b'{"k":%d,"n":%d,"total":%d}' % (-1 - probe, count, probe * PACE.stride)


def test_a_probe_has_a_key_that_no_other_event_has() -> None:
    keys = Counter(PACE.key(event) for event in range(PACE.events))
    assert {k: n for k, n in keys.items() if k < 0} == {-1 - p: 1 for p in PROBES}
    assert all(0 <= k < KEYS for k in keys if k >= 0)
    assert json.loads(PACE.value(20)) == {"k": -2, "v": 20}
    assert (PACE.due_s(1), PACE.measured) == (0.02, range(5, 15))


def test_a_row_of_more_than_its_probe_is_refused() -> None:
    assert PACE.probe_of(-3, 1, 40) == 2
    for count, total in ((2, 80), (1, 60)):
        with pytest.raises(ValueError, match="probe 2: expected count 1 and sum 40"):
            PACE.probe_of(-3, count, total)


def test_an_event_is_there_when_the_last_sink_shows_it() -> None:
    times = {p: 100 + PACE.due_s(p) for p in PACE.measured}
    seen = {"kafka": {p: at + 0.5 for p, at in times.items()}, "sql": {p: at + p / 10 for p, at in times.items()}}
    found = latencies(PACE, 100, seen)
    assert found["kafka"]["p50_s"] == pytest.approx(0.5)
    assert found[EVERYWHERE]["p50_s"] == found["sql"]["p50_s"] == pytest.approx(0.9)
    assert found[EVERYWHERE]["p99_s"] == found[EVERYWHERE]["max_s"] == pytest.approx(1.4)
    del seen["sql"][7]
    with pytest.raises(RuntimeError, match=r"of 10 probes, so many were never seen: \{'kafka': 0, 'sql': 1\}"):
        latencies(PACE, 100, seen)


def test_percentiles_are_values_that_were_measured() -> None:
    found = figures([float(n) for n in range(1, 101)])
    assert (found["p50_s"], found["p99_s"], found["max_s"]) == (50, 99, 100)
    assert found["halves_p50_s"] == [25, 75]
    assert figures([3.0])["p99_s"] == 3


def test_the_producer_writes_each_event_once_with_the_time_it_was_due() -> None:
    sent: list[tuple[int, int, Any]] = []

    class Recorded(Producer):
        def produce(self, topic: str, value: bytes, partition: int, timestamp: int) -> None:
            sent.append((partition, timestamp, json.loads(value)["v"]))

    said = producer.run(Recorded({"bootstrap.servers": "127.0.0.1:1"}), "events", PACE)
    assert said["events"] == 300
    assert [v for _, _, v in sent] == list(range(300))
    assert {at - sent[0][1] - v for _, at, v in sent} <= {-1, 0, 1}
    assert Counter(p for p, _, _ in sent) == dict.fromkeys(range(PARTITIONS), 150)


def watched(observer: observers.Observer, probe: int) -> None:
    while probe not in observer.seen and observer.failed is None:
        observer.join(0.01)


def test_kafka_shows_a_probe_when_its_transaction_is_committed() -> None:
    kafka = shared_kafka()
    topic = kafka.new_topic(PARTITIONS)
    observer = observers.Observer(observers.in_kafka(kafka.bootstrap, topic, PACE))
    observer.start()
    writer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(topic, message(1), partition=0)
    writer.flush(30)
    other = Producer({"bootstrap.servers": kafka.bootstrap})
    other.produce(topic, message(0), partition=1)
    other.produce(topic, b'{"k":5,"n":9,"total":9}', partition=1)
    other.flush(30)
    watched(observer, 0)
    assert set(observer.seen) == {0}
    writer.commit_transaction(30)
    watched(observer, 1)
    assert set(observer.seen) == {0, 1}
    assert observer.seen[0] < observer.seen[1]
    other.produce(topic, message(2, count=2), partition=1)
    other.flush(30)
    watched(observer, 2)
    assert "probe 2: expected count 1" in str(observer.failed)


def test_postgresql_shows_a_probe_when_its_transaction_is_committed() -> None:
    server = shared_server()
    dsn = server.dsn(server.new_database().rpartition("/")[2])
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE totals (k bigint PRIMARY KEY, n bigint, total numeric)")
        connection.commit()
        observer = observers.Observer(observers.in_postgres(dsn, PACE))
        observer.start()
        # Not in their order, and among others.
        for group in ((-3, 1, 40), (7, 3, 9)), ((-1, 1, 0), (-2, 1, 20)):
            for row in group:
                connection.execute("INSERT INTO totals VALUES (%s, %s, %s)", row)
            connection.commit()
            watched(observer, -1 - group[0][0])
        watched(observer, 1)
    assert set(observer.seen) == {0, 1, 2}
    assert observer.seen[2] < observer.seen[0] == observer.seen[1]


def test_a_run_whose_totals_are_not_those_of_its_events_has_failed() -> None:
    server = shared_server()
    dsn = server.dsn(server.new_database().rpartition("/")[2])
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE totals (k bigint PRIMARY KEY, n bigint, total numeric)")
        with pytest.raises(RuntimeError, match=r"expected 300 events of sum 44850 in PostgreSQL, found \(0, 0\)"):
            check_totals(dsn, PACE, 0)
        connection.execute("INSERT INTO totals VALUES (1, 299, 44551), (2, 1, 299)")
        check_totals(dsn, PACE, 0)
        connection.execute("UPDATE totals SET n = 2 WHERE k = 2")
        with pytest.raises(RuntimeError, match=r"found \(301, 44850\)"):
            check_totals(dsn, PACE, 60)


def test_a_delta_table_shows_a_probe_with_its_version(tmp_path: Path) -> None:
    for probe in range(3):
        rows = pa.table({"k": [-1 - probe, 4], "n": [1, 2], "total": [probe * PACE.stride, 3]})
        write_deltalake(str(tmp_path), rows, mode="append")
    seen = seen_in_delta(tmp_path, PACE)
    committed = {h["version"]: h["timestamp"] / 1000 for h in DeltaTable(str(tmp_path)).history()}
    assert seen == {p: pytest.approx(committed[p], abs=5) for p in range(3)}
    assert seen[0] < seen[1] < seen[2]


def test_an_answer_waits_for_every_observer_and_tells_of_one_that_failed() -> None:
    watching = {name: observers.Observer(lambda seen: None) for name in ("kafka", "sql")}
    watching["kafka"].seen.update(dict.fromkeys(PROBES, 1.0))
    assert observers.answer(watching, PACE, 0.1) == {"kafka": dict.fromkeys(map(str, PACE.measured), 1.0), "sql": {}}
    later = threading.Timer(0.2, watching["sql"].seen.update, [dict.fromkeys(PROBES, 2.0)])
    later.start()
    assert observers.answer(watching, PACE, 60)["sql"] == dict.fromkeys(map(str, PACE.measured), 2.0)
    watching["kafka"].failed = "RuntimeError: away"
    assert observers.answer(watching, PACE, 60) == {"error": "observers failed: {'kafka': 'RuntimeError: away'}"}


def measured(p50: float, *sinks: str) -> dict[str, Any]:
    one = {"probes": 9, "p50_s": p50, "p99_s": 2 * p50, "max_s": 3 * p50, "halves_p50_s": [p50, p50]}
    return {"sinks": dict.fromkeys(sinks, one), "producer": {"late_p99_s": 0.006}, "checkpoints_per_s": 0.93}


def test_the_report_shows_each_sink_and_compares_all_three_with_flinks_one() -> None:
    data: dict[str, Any] = {}
    for interval in INTERVALS:
        for rate in RATES:
            data[cell("ours", interval, rate)] = measured(0.4, EVERYWHERE, "kafka", "sql", "delta")
            data[cell("Flink SQL", interval, rate)] = measured(0.5, "kafka")
    data[cell("Flink SQL", "1s", 50_000)] = {"failed": "killed | late\nmore"}
    lines = report.table(shown.HEAD, shown.rows(data)).splitlines()
    assert lines[2] == "| spark_ckpt | 1s | 10,000 | all three | 0.40 | 0.80 | 1.20 | 0.9 | 0.006 |"
    assert "| Flink SQL | 1s | 50,000 | failed: killed / late | - | - | - | - | - |" in lines
    assert len(lines) == 2 + 4 * 4 + 4
    values = {(a.group, a.what): a.measure({"latency": data}) for a in AIMS}
    flink = "Flink SQL into Kafka, exactly once"
    assert values["seconds from an event's time to all three sinks", "interval 100ms, 50 K events/s, p99"] == 0.8
    assert values[flink, "ours into all three, interval 1s, 10 K events/s, p50"] == pytest.approx(0.8)
    assert values[flink, "ours into all three, interval 1s, 50 K events/s, p50"] is None
