"""Sources that stand still, and the end of bounded input: what is decided, and what operators hear of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.protocol.events import Watermark
from spark_ckpt.protocol.source_events import announcements
from spark_ckpt.protocol.source_offset import PendingTrigger, SourceOffset, SourcePosition, initial_offset
from spark_ckpt.protocol.source_steps import ManualRequest
from spark_ckpt.protocol.source_time import all_at_end, end_stream, idle_stream, is_idle, turns
from tests.protocol.test_protocol_source import FOLLOWER, LEADER, START, Source, trigger

QUIET = replace(FOLLOWER, idle_ms=1_000, batch_behind_rows=True)


def said(start, end, event_time=False):
    """Watermarks that the source itself says."""
    events = [e for part in announcements("b", start, end, 4, 0, event_time) for e in part]
    return [e for e in events if isinstance(e, Watermark)]


@given(st.lists(st.none() | st.integers(0, 30), max_size=20))
def test_a_source_turns_when_it_was_quiet_for_long_and_when_something_comes_and_never_back(quiet):
    now, idle = 0, False
    for quiet_ms in quiet:
        idle = quiet_ms is not None and (idle or quiet_ms >= 10)
        before, now = now, turns(now, quiet_ms, 10)
        assert now - before in (0, 1)
        assert (now % 2 == 1) == idle
        assert turns(now, quiet_ms, None) == now


def test_a_source_that_nothing_comes_from_falls_idle_once_and_comes_back_with_its_next_rows():
    b = Source(QUIET)
    assert b.next(100_000) is START
    assert b.next(100_999) is START
    idle = b.next(101_000)
    assert (idle.turns, idle.inner, idle.rows) == (1, [5], True)
    assert said(START, idle) == [Watermark(idle_stream("b"), 1, 4)]
    behind = b.next(101_001)
    assert (behind.turns, behind.rows, said(idle, behind)) == (1, None, []), "a batch follows that sees it"
    assert b.next(150_000) is behind
    b.inner = [6]
    back = b.next(150_001)
    assert (back.turns, back.inner) == (2, [6])
    assert said(behind, back) == [Watermark(idle_stream("b"), 2, 4)]
    b.next(150_002)
    assert b.next(151_000).turns == 2
    assert b.next(151_001).turns == 3
    assert SourceOffset.from_json(json.loads(json.dumps(b.start.to_json()))) == b.start


def test_without_the_setting_nothing_turns_and_offsets_are_as_they_were():
    b = Source(replace(QUIET, idle_ms=None))
    for now in (100_000, 200_000, 900_000):
        assert b.next(now) is START
    assert "turns" not in START.to_json()
    assert SourcePosition([5]).to_json() == {"inner": [5], "ended": False}


def test_the_quiet_time_begins_with_the_start_and_a_clock_that_is_set_back_does_not_end_it():
    b = Source(QUIET)
    b.next(500_000)
    assert b.next(100_000) is START
    assert b.next(500_999) is START
    assert b.next(501_000).turns == 1


def test_an_idle_source_is_idle_where_its_checkpoint_is_restored_and_says_so_again():
    kept = SourcePosition.from_json(json.loads(json.dumps(replace(START, turns=3).position().to_json())))
    first = initial_offset(9, 8, 7, kept)
    assert first.turns == 3
    b = Source(QUIET, first)
    end = b.next(100_000)
    assert (end.turns, end.restore) == (3, None)
    assert said(first, end) == [Watermark(idle_stream("b"), 3, 8)]


def test_a_source_that_was_stopped_does_not_turn():
    frozen = replace(START, terminal=2)
    b = Source(QUIET, frozen)
    b.next(100_000)
    assert b.next(200_000) is frozen


@pytest.mark.parametrize("role", [LEADER, FOLLOWER])
@pytest.mark.parametrize("closes", [True, False])
def test_the_barrier_at_the_end_of_bounded_input_says_so_if_it_is_wanted(role, closes):
    source = Source(replace(role, available_now=True, closes_windows=closes))
    source.triggers = [] if role.leader else [trigger(4, "final")]
    end = source.next(100_000)
    assert (end.barrier, end.closes) == (4, True if closes else None)
    assert said(START, end) == ([Watermark(end_stream("b"), 4, 4)] if closes else [])
    assert SourceOffset.from_json(json.loads(json.dumps(end.to_json()))) == end
    source.completed, source.inner = 4, [6]
    assert source.next(100_010).closes is None, "it is said of the barrier only"


def test_a_barrier_behind_rows_or_of_a_drain_or_of_input_that_goes_on_closes_nothing():
    role = replace(LEADER, available_now=True, closes_windows=True)
    rows = Source(replace(role, others=frozenset({"b"})))
    rows.inner = [6]
    assert (rows.next(101_000).barrier, rows.start.closes) == (4, None)
    drain = Source(role)
    drain.requests = [ManualRequest("r1", "final", 1, None, True, 400_000, drain=True)]
    assert (drain.next(100_000).drain, drain.start.closes) == (4, None)
    unbounded = Source(replace(role, available_now=False))
    assert (unbounded.next(101_000).barrier, unbounded.start.closes) == (4, None)
    ended = Source(replace(role, available_now=False))
    ended.finished = True
    ended.next(100_000)
    assert (ended.next(101_000).barrier, ended.start.closes) == (4, True)


def test_operators_wait_for_all_sources_and_for_the_same_checkpoint():
    seen = {end_stream("a"): 4, end_stream("b"): 3, idle_stream("a"): 3, idle_stream("b"): 2}
    assert not all_at_end(seen, ["a", "b"], 4)
    assert not all_at_end(seen, ["a", "c"], 4)
    assert all_at_end({**seen, end_stream("b"): 4}, ["a", "b"], 4)
    assert is_idle(seen, ["a"])
    assert not is_idle(seen, ["a", "b"])
    assert not is_idle(seen, ["c"])


def test_a_pending_checkpoint_does_not_keep_a_source_from_falling_idle():
    b = Source(QUIET, replace(START, epoch=5, pending=(PendingTrigger(4, 99_000),)))
    b.next(100_000)
    assert b.next(101_000).turns == 1
