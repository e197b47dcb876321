"""How two checkpoints differ, from rows of the history."""

from __future__ import annotations

from spark_ckpt.monitoring.comparison import compared
from spark_ckpt.storage.history import UidSize
from tests.monitoring.facts_harness import row

SLOW = {"driver": {"commit_state_ms": 40}, "operators": {"totals": {"0": {"write_ms": 5}, "1": {"write_ms": 90}}}}
QUICK = {"driver": {"commit_state_ms": 30}, "operators": {"totals": {"0": {"write_ms": 7}, "1": {"flush_ms": 3}}}}


def _lines(before, after):
    return {(part.who, line.what): line for part in compared(before, after) for line in part.lines}


def test_sizes_and_the_slowest_subtask_of_each_phase_stand_side_by_side():
    found = _lines(row(1, took_ms=100, phases=QUICK), row(2, took_ms=900, keys=25, phases=SLOW))
    duration, write = found["checkpoint", "duration"], found["totals", "write"]
    assert (duration.before, duration.after, duration.change) == (100, 900, 800)
    assert (write.before, write.after, write.change) == (7, 90, 83)
    assert found["totals", "keys"].change == 15
    assert found["driver", "state committed"].change == 10


def test_what_one_of_them_lacks_has_no_change():
    gone = row(2, outcome="expired")
    found = _lines(row(1, phases=QUICK), gone)
    assert found["checkpoint", "duration"].after is found["checkpoint", "duration"].change is None
    assert found["totals", "flush"].after is None
    came = row(3)
    object.__setattr__(came, "state", {**came.state, "sessions": UidSize(7, 900, 2)})
    keys = _lines(row(1), came)["sessions", "keys"]
    assert (keys.before, keys.after) == (None, 7)
