"""Where the time of one checkpoint went."""

from __future__ import annotations

from dataclasses import replace

from spark_ckpt.monitoring.timeline import Bar, timeline_of
from tests.monitoring.facts_harness import row

SUBTASKS = {
    "10": {"start_delay_ms": 5, "alignment_ms": 10, "flush_ms": 0, "write_ms": 20},
    "2": {"start_delay_ms": 50, "alignment_ms": 100, "flush_ms": 30, "write_ms": 20},
}


def _row(took_ms=500):
    triggered_ms = row(7).triggered_ms
    driver = {"commit_state_ms": 100, "commit_sinks_ms": 150}
    phases = {"acknowledged_ms": triggered_ms + 220, "driver": driver, "operators": {"totals": SUBTASKS}}
    return row(7, took_ms=took_ms, phases=phases)


def test_phases_of_a_subtask_follow_each_other_from_the_trigger_on():
    second = timeline_of(_row()).lanes[0]
    assert second.who == "totals 2"
    assert [(bar.phase, bar.from_ms) for bar in second.bars] == [
        ("start_delay_ms", 0), ("alignment_ms", 50), ("flush_ms", 150), ("write_ms", 180),
    ]  # fmt: skip
    assert second.end_ms == 200


def test_subtasks_are_in_the_order_of_their_numbers_and_the_slowest_is_marked():
    lanes = timeline_of(_row()).lanes
    assert [(lane.who, lane.slowest) for lane in lanes] == [("totals 2", True), ("totals 10", False), ("driver", False)]


def test_none_of_subtasks_that_took_equally_long_is_marked():
    alike = {number: {"start_delay_ms": 45} for number in "012"}
    lanes = timeline_of(replace(_row(), phases={**_row().phases, "operators": {"joined": alike}})).lanes
    assert not [lane for lane in lanes if lane.slowest]


def test_the_driver_commits_behind_the_last_acknowledgement():
    driver = timeline_of(_row()).lanes[-1]
    assert driver.bars == (Bar("commit_state_ms", 220, 320), Bar("commit_sinks_ms", 320, 470))


def test_no_bar_ends_behind_the_whole():
    found = timeline_of(_row(took_ms=300))
    assert found.duration_ms == 470
    assert all(lane.end_ms <= found.duration_ms for lane in found.lanes)


def test_a_checkpoint_of_an_older_release_or_one_that_failed_has_no_timeline():
    assert timeline_of(row(7)) is None
    assert timeline_of(row(7, outcome="expired", phases=_row().phases)) is None
