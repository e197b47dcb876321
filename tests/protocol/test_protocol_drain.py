"""A drain: sources stand still for good behind its barrier, and it is finished whatever is given up on the way."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_ckpt.protocol import aligner
from spark_ckpt.protocol.aligner import AlignerConfig, AlignerState, BatchInput, Snapshot
from spark_ckpt.protocol.coordinator import WaitReason
from spark_ckpt.protocol.events import Barrier, decode, encode
from spark_ckpt.protocol.records import CHECKPOINT, FINAL, SAVEPOINT, TriggerRecord
from spark_ckpt.protocol.source_events import announcements
from spark_ckpt.protocol.source_offset import PendingTrigger, SourceOffset
from spark_ckpt.protocol.source_steps import ManualRequest
from tests.protocol.test_protocol_source import FOLLOWER, LEADER, START, Source, trigger

ASKED = ManualRequest("r1", FINAL, 1, None, True, 400_000, drain=True)
DRAINING = replace(START, epoch=5, pending=(PendingTrigger(4, 100_000, request="r1"),), drain=4, terminal=2)
TOLERANT = replace(LEADER, tolerable_failures=9)


def draining(role=TOLERANT, start=DRAINING):
    source = Source(role, start)
    source.inner = [9]
    source.triggers = [replace(trigger(4, FINAL, terminal=True, request="r1"), drain=True)]
    source.known = replace(source.known, newest_id=4)
    return source


def test_a_drain_is_taken_up_first_and_stops_the_reading_behind_its_barrier():
    a = Source(replace(LEADER, batch_behind_rows=True), replace(START, pending=(PendingTrigger(3, 100_000),)))
    a.requests = [ManualRequest("r0", CHECKPOINT, 0), ASKED]
    a.inner = [7]
    end = a.next(100_500)
    assert (end.inner, end.barrier, end.drain, end.terminal, end.request) == ([7], 4, 4, 2, "r1")
    assert a.triggers[-1] == TriggerRecord(4, FINAL, 100_500, "request", None, True, "r1", 2, 400_000, True)
    assert SourceOffset.from_json(json.loads(json.dumps(end.to_json()))) == end
    a.inner, a.did = [9], []
    assert a.next(101_000) is end
    assert a.did == [], "nothing is read, and no batch follows the rows"


def test_a_drain_with_a_savepoint_keeps_its_target():
    a = Source()
    a.requests = [replace(ASKED, kind=SAVEPOINT, target="s3://there")]
    end = a.next(100_500)
    assert (a.triggers[-1].kind, a.triggers[-1].target, end.drain) == (SAVEPOINT, "s3://there", 4)


def test_a_follower_takes_up_the_drain_without_being_at_its_end_and_whoever_triggered_it():
    for generation in (2, 1):
        b = Source(FOLLOWER)
        b.triggers = [replace(trigger(4, FINAL, generation, terminal=True), drain=True)]
        end = b.next(100_000)
        assert (end.barrier, end.drain) == (4, 4)
        b.inner = [9]
        assert b.next(200_000) is end
    b.triggers = [trigger(5, FINAL)]
    assert Source(FOLLOWER).next(100_000).barrier is None, "another final checkpoint waits for the end"


@pytest.mark.parametrize("cause", ["time-out", "withdrawn", "declined"])
def test_a_drain_whose_checkpoint_is_given_up_takes_another_one_and_reads_nothing_on_the_way(cause):
    a = draining()
    now = 160_001
    if cause == "time-out":
        end = a.next(now)
        assert a.did == ["GiveUp 4 expired"]
    elif cause == "withdrawn":
        a.released, now = {"r1"}, 101_000
        end = a.next(now)
        assert a.did == ["Withdraw r1", "GiveUp 4 withdrawn"]
    else:
        a.aborted, now = {4}, 101_000
        end = a.next(now)
    if end.barrier is None:
        assert (end.cancel, end.inner, end.drain) == ((4,), [5], 4)
        end = a.next(now + 1)
    assert (end.barrier, end.drain, end.inner) == (5, 5, [5])
    again = a.triggers[-1]
    assert (again.kind, again.drain, again.request, again.target, again.by) == (FINAL, True, None, None, "drain")
    a.aborted.add(5)
    assert a.next(now + 60).barrier is None, "the next one waits for the interval"
    assert a.next(now + 20_000).barrier == 6


def test_a_drain_outlives_its_generation_and_is_not_repeated_when_it_is_complete():
    later = replace(TOLERANT, generation=3)
    a = draining(later)
    assert a.next(100_500) is a.start, "its barrier is under way"
    a.completed = 4
    a.next(101_000)
    a.next(500_000)
    assert (a.moved, a.did, a.view.waiting.why) == (False, [], WaitReason.DRAINED)
    looks = a.looks
    a.next(600_000)
    assert a.looks == looks, "a drained job is not looked at for ever"

    done = draining(later, replace(DRAINING, pending=()))
    done.known = replace(done.known, completed=4)
    assert done.next(100_000) is done.start
    lost = draining(later, replace(DRAINING, pending=()))
    assert lost.next(100_000).barrier == 5, "given up by an earlier generation"


def test_a_follower_that_drains_takes_up_the_next_one_too():
    b = draining(FOLLOWER)
    b.triggers.append(replace(trigger(5, FINAL), drain=True))
    b.aborted = {4}
    end = b.next(100_000)
    assert (end.barrier, end.drain, end.cancel, end.inner) == (5, 5, (4,), [5])


def test_the_barrier_of_a_drain_says_so_and_no_other():
    def barriers(end):
        return [e for part in announcements("a", START, end, 5, 2) for e in part if isinstance(e, Barrier)]

    assert all(b.drain for b in barriers(replace(START, epoch=5, barrier=4, drain=4)))
    assert all(b.drain for b in barriers(replace(START, epoch=5, barrier=4, drain=4, ended=True)))
    plain = barriers(replace(START, epoch=5, barrier=4))
    assert not any(b.drain for b in plain)
    assert decode(encode(Barrier(4, 1, 0, True))).drain
    assert not decode(b'{"kind":"barrier","checkpoint":4,"weight":1,"triggered_ms":0}').drain


def test_the_time_ends_when_the_drain_has_come_from_all_inputs():
    config = AlignerConfig(4)
    state, actions = aligner.plan(AlignerState(4), config, BatchInput(0, {4: (2, 9)}, drains=frozenset({4})))
    assert not any(isinstance(a, Snapshot) for a in actions)
    state = AlignerState.from_json(json.loads(json.dumps(state.to_json())))
    assert state.pending[0].drain
    _, actions = aligner.plan(state, config, BatchInput(0, {4: (2, 9)}, drains=frozenset({4})))
    assert [a.drain for a in actions if isinstance(a, Snapshot)] == [True]
    plain, _ = aligner.plan(AlignerState(4), config, BatchInput(0, {4: (2, 9)}))
    assert AlignerState.from_json(plain.to_json()) == plain
