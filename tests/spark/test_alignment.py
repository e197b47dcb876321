"""Barriers of two sources that arrive in different batches: what each mode keeps, gives up and repeats.

The leader injects a checkpoint's barrier; the follower, whose poll interval is an hour, takes it up only when the
query is started again. In between both go on reading: rows of the leader are behind the barrier, rows of the follower
are not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from spark_ckpt import agg
from tests.spark.conftest import DEADLINE_S, Input, Job, wait_until

BOTH_ONCE = [("after", 2, 1020), ("before", 2, 11)]
"""Keys, counts and sums of all rows: each is read once."""


class Crossing:
    """Two sources, one keyed sum, and a checkpoint that is half way through."""

    def __init__(self, ckpt: Any, new_input: Callable[[str, str], Input], job: Job) -> None:
        self.ckpt, self.job = ckpt, job
        self.leader, self.follower = new_input("leader", "k string, v int"), new_input("follower", "k string, v int")
        self.leader.add(("before", 1))
        self.follower.add(("before", 10))

    def totals(self) -> Any:
        both = self.leader.stream(self.ckpt, uid="leader").union(self.follower.stream(self.ckpt, uid="follower"))
        return both.groupBy("k").aggregate(n=agg.count(), s=agg.sum("v")).uid("totals")

    def start(self, **options: Any) -> Any:
        options = {"triggerPollInterval": "1h", "initialDelay": "5s", **options}
        return self.job.start(self.totals(), keys="k", now=False, **options)

    def finish(self, **options: Any) -> Any:
        return self.job.run(self.totals(), keys="k", **options)

    def cross(self, query: Any) -> None:
        """Until the leader's barrier 1 is in, and rows came behind it (leader) and ahead of it (follower)."""
        self.inject(query)
        self.leader.add(("after", 1000))
        self.follower.add(("after", 20))
        wait_until(lambda: [end["inner"]["file"] for end in _offsets(query)[-1]] == [2, 2], query)

    def inject(self, query: Any) -> None:
        wait_until(lambda: any(leader["barrier"] == 1 for leader, _ in _offsets(query)), query)

    def state_at(self, query: Any, checkpoint: int) -> list[tuple[Any, ...]]:
        url, version = query.job.state_table("totals", checkpoint)
        rows = QueryBuilder().register("t", DeltaTable(url, version=version)).execute("select * from t").read_all()
        return sorted(tuple(row.values())[:3] for row in pa.table(rows).to_pylist())


@pytest.fixture
def crossing(ckpt: Any, new_input: Callable[[str, str], Input], job: Job) -> Crossing:
    return Crossing(ckpt, new_input, job)


def _offsets(query: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Where leader and follower stood at the end of each batch."""
    found = []
    for progress in query.recentProgress:
        ends = [source["endOffset"] for source in progress["sources"]]
        leader, follower = (json.loads(end) if isinstance(end, str) else end for end in ends)
        found.append((leader, follower))
    return found


def _outcomes(query: Any) -> list[tuple[int, str]]:
    return [(row["id"], row["outcome"]) for row in query.checkpoints()]


def test_exactly_once_holds_rows_back_and_a_restore_repeats_nothing(crossing: Crossing) -> None:
    first = crossing.start()
    crossing.cross(first)
    first.stop()
    assert first.checkpoints() == []

    second = crossing.finish()  # the same Spark location: rows held back are there, the follower takes up barrier 1
    assert _outcomes(second) == [(1, "completed"), (2, "completed")]
    one, two = second.checkpoints()
    assert one["alignment_ms"] > 0
    assert one["held_back_bytes"] > 0
    assert two["held_back_bytes"] == 0
    assert crossing.state_at(second, 1) == [("after", 1, 20), ("before", 2, 11)]
    assert crossing.job.rows() == BOTH_ONCE

    third = crossing.finish(restore="1", checkpointLocation=second.job.url + "/elsewhere")
    assert crossing.job.rows() == BOTH_ONCE
    assert crossing.state_at(third, third.checkpoints()[-1]["id"]) == BOTH_ONCE


def test_at_least_once_holds_nothing_back_and_a_restore_repeats_what_overtook_the_barrier(crossing: Crossing) -> None:
    at_least_once = {"spark.ckpt.mode": "at_least_once"}
    first = crossing.start(**at_least_once)
    crossing.cross(first)
    first.stop()

    second = crossing.finish(**at_least_once)
    assert _outcomes(second) == [(1, "completed"), (2, "completed")]
    assert [row["held_back_bytes"] for row in second.checkpoints()] == [0, 0]
    assert crossing.state_at(second, 1) == BOTH_ONCE, "the leader's later row is in the state of checkpoint 1 already"
    assert crossing.job.rows() == BOTH_ONCE, "without a failure nothing is repeated"

    crossing.finish(restore="1", checkpointLocation=second.job.url + "/elsewhere", **at_least_once)
    assert crossing.job.rows() == [("after", 3, 2020), ("before", 2, 11)], "read again, on top of a state that has it"


@pytest.mark.soak  # one that is declined: test_hooks.py; when: tests/protocol/test_protocol_aligner_table.py
def test_too_many_rows_held_back_decline_the_checkpoint_and_the_query_goes_on(crossing: Crossing) -> None:
    query = crossing.start(alignment__maxBufferedBytes="1", tolerableFailures="0")  # which counts failures only
    crossing.cross(query)
    wait_until(lambda: _outcomes(query) == [(1, "declined")], query)
    (row,) = query.checkpoints()
    assert "held back" in row["reason"]
    assert "more than 1" in row["reason"]
    assert "totals" in row["reason"]
    assert query.isActive
    query.stop()
    assert _outcomes(crossing.finish()) == [(1, "declined"), (2, "completed")]
    assert crossing.job.rows() == BOTH_ONCE


@pytest.mark.soak  # with causes of other kinds: test_failure_tolerance.py
def test_a_failed_checkpoint_fails_the_query_once_if_none_is_tolerated(crossing: Crossing) -> None:
    query = crossing.start(timeout="1s")
    wait_until(lambda: query.job.records.ids("triggers") == [1], query)
    crossing.leader.add(("after", 1000))
    crossing.follower.add(("after", 20))
    with pytest.raises(Exception, match=r"CheckpointFailedError.*tolerableFailures"):
        query.awaitTermination(DEADLINE_S)
    again = crossing.finish(alignment__maxBufferedBytes="1")
    assert _outcomes(again) == [(1, "expired"), (2, "completed")]
    assert crossing.job.rows() == BOTH_ONCE


@pytest.mark.soak  # cancel markers: tests/protocol/test_protocol_scenarios.py; an abort under Spark: test_hooks.py
def test_a_checkpoint_that_takes_too_long_is_cancelled_everywhere_and_nothing_is_lost(crossing: Crossing) -> None:
    query = crossing.start(timeout="1s", tolerableFailures="1")
    crossing.cross(query)
    wait_until(lambda: _outcomes(query) == [(1, "expired")], query)
    assert "timeout 1000 ms" in query.checkpoints()[0]["reason"]
    assert query.isActive
    query.stop()
    done = crossing.finish()
    assert _outcomes(done) == [(1, "expired"), (2, "completed")]
    assert done.checkpoints()[1]["held_back_bytes"] == 0, "the cancel marker released what was held back"
    assert crossing.job.rows() == BOTH_ONCE


@pytest.mark.soak  # some 140 times in test_protocol_simulation.py; when: tests/protocol/test_protocol_aligner.py
def test_several_checkpoints_are_in_flight_while_a_source_lags_and_each_is_exact(crossing: Crossing) -> None:
    """The leader injects three barriers, with rows of both between them, before the follower takes up the first."""
    several = {"maxConcurrent": "3", "interval": "2s"}
    first = crossing.start(**several)
    for n in (1, 2, 3):
        wait_until(lambda n=n: _offsets(first)[-1:] and _offsets(first)[-1][0]["epoch"] > n, first)
        crossing.leader.add(("leader", 10**n), ("both", 10**n))
        crossing.follower.add(("follower", 5 * 10**n), ("both", 5 * 10**n))
        wait_until(lambda n=n: [end["inner"]["file"] for end in _offsets(first)[-1]] == [n + 1, n + 1], first)
    records = first.job.records
    assert (records.ids("triggers"), records.ids("checkpoints"), records.ids("aborted")) == ([1, 2, 3], [], [])
    first.stop()

    second = crossing.finish(**several)
    in_flight, last = second.checkpoints()[:3], second.checkpoints()[-1]
    assert [(row["id"], row["outcome"]) for row in in_flight] == [(1, "completed"), (2, "completed"), (3, "completed")]
    assert max(row["triggered_ms"] for row in in_flight) < min(row["completed_ms"] for row in in_flight)
    read = [[second.job.show(k).sources[s]["inner"]["file"] for s in ("leader", "follower")] for k in (1, 2, 3)]
    assert all(follower == 4 > leader for leader, follower in read), "the follower's barriers came when it had read all"
    for k, (leader, _) in zip((1, 2, 3), read):
        assert {row[0]: row[1:] for row in crossing.state_at(second, k)} == _totals(leader, 4)
    assert (last["kind"], last["outcome"]) == ("final", "completed")
    assert {row[0]: row[1:] for row in crossing.job.rows()} == _totals(4, 4)


def _totals(leader: int, follower: int) -> dict[str, tuple[int, int]]:
    """Count and sum of each key after so many files of each source."""
    rows = [("before", 1), *(row for n in range(1, leader) for row in (("leader", 10**n), ("both", 10**n)))]
    rows += [
        ("before", 10),
        *(row for n in range(1, follower) for row in (("follower", 5 * 10**n), ("both", 5 * 10**n))),
    ]
    return {k: (len(v), sum(v)) for k in {k for k, _ in rows} if (v := [v for key, v in rows if key == k])}
