"""The examples' own functions and sink under crash schedules, without Spark."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from examples.flights.job import FLIGHT, STATE, TURNAROUND, turnarounds
from examples.own_sink import OutboxSink, documents
from spark_ckpt import agg
from spark_ckpt.testing.jobs import Frame, JobUnderTest, Rows
from tests.how_many import some

MORNING = datetime(2013, 1, 1, 6, tzinfo=timezone.utc)


def flight(number: int) -> tuple[Any, ...]:
    """Two aircraft, one of which is back after half an hour now and then."""
    begin = MORNING + timedelta(minutes=45 * number)
    tail, carrier, to = ("N1", "UA", "BOS") if number % 3 else ("N2", "AA", "IAD")
    times = (begin, begin, begin + timedelta(minutes=20 + number % 4 * 10))
    return number, carrier, number, tail, "JFK", to, *times, 20 + number % 5 * 5, number % 7, 0


def flagged(flights: Frame) -> Frame:
    """The query of examples/flights/job.py, behind its filter."""
    routes = flights.groupBy("carrier", "origin", "dest").aggregate(
        emit="rows",
        orderBy="id",
        flights=agg.count(),
        mean_delay=agg.mean("dep_delay"),
        max_delay=agg.max("dep_delay"),
    )
    by_aircraft = routes.uid("routes").groupBy("tailnum")
    return by_aircraft.applyInPandasWithState(turnarounds, TURNAROUND, STATE, "append", "NoTimeout").uid("turnarounds")


@pytest.mark.more
def test_turnarounds_of_the_flights_are_the_same_whatever_dies() -> None:
    job = JobUnderTest(flagged, {"flights": Rows(FLIGHT, [flight(i) for i in range(16)])})
    rows = job.run()
    assert {row["short"] for row in rows} == {False, True}
    assert max(row["trips"] for row in rows if row["tailnum"] == "N1") == 10
    job.check(some(6))


@pytest.mark.more
def test_the_outbox_shows_each_row_once_whatever_dies() -> None:
    def sink(folder: Path) -> Any:
        path = f"{folder}/outbox.db"
        return OutboxSink, {"path": path}, lambda: documents(path)

    payments = Rows("id long, customer string, amount double", [(i, "abc"[i % 3], i / 4) for i in range(24)], 2)
    job = JobUnderTest(lambda payments: payments, {"payments": payments}, sink, options={"interval": "1ms"})
    assert sorted(row["id"] for row in job.run()) == list(range(24))
    job.check(some(8))
