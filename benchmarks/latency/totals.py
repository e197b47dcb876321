"""Whether what came out in the end is what a batch computation gives: each event once."""

from __future__ import annotations

import time

import psycopg

from benchmarks.latency.events import TABLE, Pace

_EVERY_S = 0.1


def check_totals(dsn: str, pace: Pace, limit_s: float) -> None:
    """Wait until PostgreSQL's table counts all events of ``pace``, and compare its sum with theirs.

    Raises ``RuntimeError`` if it counts more, still counts fewer when so many seconds are over, or has another sum.
    """
    expected = pace.events, pace.events * (pace.events - 1) // 2
    until = time.monotonic() + limit_s
    with psycopg.connect(dsn, autocommit=True) as connection:
        while True:
            row = connection.execute(f"SELECT coalesce(sum(n), 0), coalesce(sum(total), 0) FROM {TABLE}").fetchone()
            assert row is not None
            found = int(row[0]), int(row[1])
            if found[0] >= expected[0] or time.monotonic() > until:
                break
            time.sleep(_EVERY_S)
    if found != expected:
        raise RuntimeError(f"expected {expected[0]} events of sum {expected[1]} in PostgreSQL, found {found}")
