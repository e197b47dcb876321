"""What a source injects, takes up, gives up and says, and when it stands still: the decisions, step by step."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from unittest.mock import ANY

import pytest

from spark_ckpt.errors import CheckpointFailedError, CorruptStorageError, InvalidInputError
from spark_ckpt.protocol.coordinator import TriggerPolicy, WaitReason
from spark_ckpt.protocol.events import NO_STREAM, Barrier, Cancel, Completed, Finished, SourceAck
from spark_ckpt.protocol.records import FINAL, SAVEPOINT, AbortedRecord, TriggerRecord
from spark_ckpt.protocol.source import next_offset, take_up
from spark_ckpt.protocol.source_events import Manifests, announcements, manifests_to_send
from spark_ckpt.protocol.source_offset import PendingTrigger, SourceOffset, SourcePosition, initial_offset, with_inner
from spark_ckpt.protocol.source_steps import InnerRead, Looked, ManualRequest, SourceStart
from spark_ckpt.protocol.source_view import SourceRole, is_frozen
from spark_ckpt.protocol.steps import StorageFailed

START = SourceOffset(origin=1, inner=[5], epoch=4)
POLICY = TriggerPolicy(interval_ms=10_000, min_pause_ms=0, timeout_ms=60_000, max_concurrent=1)
LEADER = SourceRole("a", True, generation=2, started_ms=100_000, initial_delay_ms=1_000, policy=POLICY)
FOLLOWER = replace(LEADER, source="b", leader=False)


class Source:
    """One source with its surroundings; ``did`` are the names of the steps that change something, in order."""

    def __init__(self, role=LEADER, start=START):
        self.role, self.start, self.view, self.did = role, start, None, []
        self.inner, self.finished, self.injected = start.inner, False, 0
        self.known = SourceStart(newest_id=3)
        self.completed, self.aborted, self.released = 0, set(), set()
        self.triggers, self.requests, self.drained, self.taken_ids = [], [], set(), set()
        self.withdrawn, self.looks, self.asks = {}, 0, 0
        self.failures, self.recorded = 0, []
        self.hook_fails = None
        self.paused = False

    def next(self, now_ms):
        """The next offset; it becomes the start of the one after."""
        steps = next_offset(self.role, self.view, self.start, now_ms)
        result = None
        try:
            while True:
                step = steps.send(result)
                result = getattr(self, f"_{type(step).__name__}")(step)
        except StopIteration as done:
            self.view, end = done.value
        self.moved = end is not self.start
        self.start = end
        return end

    def _ReadSourceStart(self, step):
        return self.known

    def _AskInner(self, step):
        self.did.append("AskInner")
        return InnerRead(self.inner, self.inner == step.inner and self.finished, self.injected)

    def _Look(self, step):
        self.looks += 1
        return Looked(self.completed, frozenset(self.aborted & set(step.checkpoints)),
                      frozenset(self.released & set(step.requests)))  # fmt: skip

    def _ReadOpenTriggers(self, step):
        return tuple(t for t in self.triggers if t.checkpoint >= step.epoch and t.checkpoint not in self.aborted)

    def _ReadRequests(self, step):
        self.asks += 1
        return tuple(self.requests)

    def _ReadDrained(self, step):
        return frozenset(self.drained)

    def _ReadAborted(self, step):
        expired = (AbortedRecord(k, "expired", "", 0, self.role.generation) for k in self.aborted)
        return (*expired, *self.recorded)

    def _CreateTrigger(self, step):
        if step.record.checkpoint in self.taken_ids:
            return False
        if self.failures:
            self.failures -= 1
            return StorageFailed("no space")
        self.did.append(f"CreateTrigger {step.record.checkpoint} {step.record.kind}")
        self.triggers.append(step.record)
        return True

    def _ReadPaused(self, step):
        return self.paused

    def _CallHook(self, step):
        return self.hook_fails

    def _DropRequest(self, step):
        self.did.append(f"DropRequest {step.request}")
        self.requests = [r for r in self.requests if r.request != step.request]

    def _Withdraw(self, step):
        self.did.append(f"Withdraw {step.request}")
        self.withdrawn[step.request] = step.reason
        return True

    def _GiveUp(self, step):
        self.did.append(f"GiveUp {step.record.checkpoint} {step.record.cause}")
        self.aborted.add(step.record.checkpoint)
        self.recorded.append(step.record)

    def _AnnounceDrained(self, step):
        self.did.append(f"AnnounceDrained {step.generation} {step.source}")


def trigger(checkpoint, kind="checkpoint", generation=2, terminal=False, request=None):
    return TriggerRecord(checkpoint, kind, 101_000, "interval", None, terminal, request, generation)


def waiting(*pending, **changes):
    return replace(START, pending=tuple(pending), **changes)


# --- the offset --------------------------------------------------------------------------------------------------


def test_an_offset_survives_json_and_says_only_what_there_is_to_say():
    plain = {
        "origin": 1, "inner": [5], "epoch": 4, "barrier": None, "triggered_ms": 0, "pending": [], "cancel": [],
        "ended": False,
    }  # fmt: skip
    assert START.to_json() == {**plain, "crc32": ANY}
    pending = (PendingTrigger(4, 9), PendingTrigger(5, 10, request="r", deadline_ms=11))
    full = SourceOffset(1, {"f": 2}, 6, 5, 10, pending, (3,), True, 2, 7, "r", 7)
    assert SourceOffset.from_json(json.loads(json.dumps(full.to_json()))) == full


def test_an_offset_says_that_the_source_was_read_where_somebody_asks():
    for asked in (False, True):
        source = Source(replace(LEADER, marks_reads=asked))
        source.inner = [6]
        assert source.next(100_000).read is (True if asked else None)
        assert source.next(100_001) is source.start, "no batch follows for that"
        assert source.next(102_000).barrier == 4
        assert source.start.read is None


def test_an_offset_of_an_earlier_release_is_read():
    old = {"inner": {"x": 1}, "epoch": 3, "barrier": 2, "triggered_ms": 9, "origin": 1, "pending": [[2, 9]],
           "cancel": [], "ended": False, "terminal": 4}  # fmt: skip
    offset = SourceOffset.from_json(old)
    assert offset.pending == (PendingTrigger(2, 9),)
    assert (offset.terminal, offset.request, offset.restore) == (4, None, None)


WHOLE = {name: value for name, value in START.to_json().items() if name != "crc32"}


@pytest.mark.parametrize("body", [{}, {**WHOLE, "pending": [[1]]}, {**WHOLE, "epoch": "4"}, []])
def test_what_is_no_offset_is_refused(body):
    with pytest.raises(CorruptStorageError, match="source offset"):
        SourceOffset.from_json(body)


def test_an_offset_with_any_bit_flipped_is_refused():
    offset = SourceOffset(1, {"topic": {0: 17, 10: 1.5}}, 6, 5, 101_000, (PendingTrigger(5, 101_000),), restore=3)
    data = json.dumps(offset.to_json()).encode()
    assert SourceOffset.from_json(json.loads(data)).epoch == 6
    for place, bit in itertools.product(range(len(data)), range(8)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << bit
        with pytest.raises((ValueError, CorruptStorageError)):
            SourceOffset.from_json(json.loads(damaged))


def test_a_location_begins_where_the_checkpoint_says_and_a_new_source_at_its_own_beginning():
    restored = initial_offset(9, 8, 7, SourcePosition([3], True))
    assert restored == SourceOffset(9, [3], 8, ended=True, restore=7)
    assert with_inner(restored, [0]) == restored
    new = initial_offset(9, 8, 7, SourcePosition())
    assert with_inner(new, [0]) == SourceOffset(9, [0], 8, restore=7)
    assert restored.position() == SourcePosition([3], True)


# --- leading -----------------------------------------------------------------------------------------------------


def test_nothing_new_is_the_very_same_offset():
    a = Source()
    a.next(100_000)
    assert not a.moved
    a.inner = [6]
    assert a.next(100_010) == replace(START, inner=[6])


def test_the_barrier_travels_in_the_offset_behind_what_is_read():
    a = Source()
    a.inner = [7]
    end = a.next(101_000)
    assert end == SourceOffset(1, [7], 5, 4, 101_000, (PendingTrigger(4, 101_000),))
    assert a.next(101_010) is end, "one at a time"
    a.inner = [8]
    assert a.next(101_020) == replace(end, inner=[8], barrier=None, triggered_ms=0)


def test_an_id_that_is_taken_is_not_used_again():
    a = Source()
    a.taken_ids = {4, 5}
    assert a.next(101_000).barrier == 6


def test_the_next_trigger_comes_an_interval_later_once_the_last_is_complete():
    a = Source()
    a.next(101_000)
    a.completed = 4
    assert not (a.next(101_100) and a.moved)
    assert a.next(111_000).barrier == 5
    assert [p.checkpoint for p in a.start.pending] == [5]


def test_batches_longer_than_the_interval_leave_an_idle_source_a_call_in_which_nothing_is_new():
    source = Source()
    for checkpoint, now_ms in ((4, 101_000), (5, 121_050), (6, 141_100)):
        assert source.next(now_ms).barrier == checkpoint
        source.completed = checkpoint
        for later_ms in (20_000, 20_049):
            source.next(now_ms + later_ms)
            assert not source.moved, "else Spark would never find that all there is was processed"
    source.inner = [6]
    source.next(161_150)
    source.completed = 7
    source.inner = [7]
    assert source.next(181_150).barrier == 8, "rows do not wait"


def test_the_time_between_two_batches_tells_which_one_begins_nearest_to_the_next_trigger():
    source = Source()
    source.next(101_000)
    source.completed = 4
    for now_ms in (104_000, 107_000):
        source.next(now_ms)
        assert not source.moved
    assert source.next(110_000).barrier == 5, "the batch behind it would begin at 113,000, and the time is 111,000"


def test_the_minimum_pause_counts_from_the_completion_even_if_it_is_seen_only_when_the_next_is_due():
    a = Source(replace(LEADER, policy=replace(POLICY, min_pause_ms=5_000, max_concurrent=2)))
    a.next(101_000)
    a.view = replace(a.view, called_ms=110_998)
    a.next(110_999)
    assert not a.moved
    a.completed = 4  # since the look a millisecond ago
    a.next(111_000)
    assert not a.moved
    assert a.view.waiting.why is WaitReason.MIN_PAUSE
    assert a.next(116_000).barrier == 5


def test_the_minimum_pause_is_known_after_a_start_anywhere():
    a = Source(replace(LEADER, policy=replace(POLICY, min_pause_ms=5_000)))
    a.known = SourceStart(newest_id=3, completed=3, last_completion_ms=99_000)
    a.next(103_999)
    assert not a.moved
    assert a.next(104_000).barrier == 4


def test_a_request_is_dropped_once_a_trigger_names_it_and_never_taken_up_twice():
    a = Source()
    request = ManualRequest("r1", SAVEPOINT, 1, "s3://there", deadline_ms=200_000)
    a.requests = [request]
    assert a.next(100_000).pending == (PendingTrigger(4, 100_000, request="r1", deadline_ms=200_000),)
    assert a.did[-2:] == ["CreateTrigger 4 savepoint", "DropRequest r1"]
    a.requests = [request]  # the process stopped between the two
    a.completed = 4
    a.next(100_600)
    assert not a.moved
    assert a.requests == []
    again = Source()
    again.known = SourceStart(newest_id=4, completed=4, taken=frozenset({"r1"}))
    again.requests = [request]
    again.next(100_000)
    assert not again.moved
    assert again.did == ["AskInner", "DropRequest r1"]


def test_a_request_whose_time_is_over_is_withdrawn_and_not_taken_up():
    a = Source()
    a.requests = [ManualRequest("r1", SAVEPOINT, 1, "s3://there", deadline_ms=99_999)]
    a.next(100_000)
    assert not a.moved
    assert a.did == ["AskInner", "Withdraw r1", "DropRequest r1"]


def test_a_request_is_seen_before_the_interval_takes_the_only_place():
    a = Source()
    a.next(100_900)
    a.requests = [ManualRequest("r1", "checkpoint", 100_950)]
    a.next(101_000)  # the interval is due; requests were read 100 ms ago
    assert a.did[-2:] == ["CreateTrigger 4 checkpoint", "DropRequest r1"]


def test_a_savepoint_does_not_wait_for_what_is_pending():
    a = Source()
    a.next(101_000)
    a.requests = [ManualRequest("r1", SAVEPOINT, 101_100, "s3://there")]
    end = a.next(101_500)
    assert [p.checkpoint for p in end.pending] == [4, 5]


def test_a_pending_checkpoint_is_given_up_after_its_timeout_and_its_marker_sent_once():
    a = Source(replace(LEADER, tolerable_failures=1))
    a.next(101_000)
    a.next(161_000)
    assert not a.moved
    end = a.next(161_001)
    assert a.did[-1] == "GiveUp 4 expired"
    assert (end.cancel, end.pending, end.barrier) == ((4,), (), None)
    assert a.next(161_002).cancel == (), "and the next one may be triggered"
    assert a.start.barrier == 5


def test_what_completed_meanwhile_is_not_given_up():
    a = Source()
    a.next(101_000)
    a.next(161_000)
    a.completed = 4
    a.next(161_001)
    assert "GiveUp 4 expired" not in a.did
    assert a.next(161_051).barrier == 5


def test_too_many_failures_in_a_row_end_the_query():
    a = Source()
    a.next(101_000)
    with pytest.raises(CheckpointFailedError, match="tolerableFailures allows 0"):
        a.next(161_001)


def test_a_trigger_that_cannot_be_written_is_a_failed_checkpoint_and_the_next_one_follows():
    a = Source(replace(LEADER, tolerable_failures=1))
    a.failures = 1
    a.next(101_000)
    assert a.did[-1] == "GiveUp 4 failed"
    assert a.recorded[-1].reason == "its trigger was not recorded: no space"
    assert not a.moved, "nobody hears of it"
    a.next(105_999)
    assert not a.moved
    assert a.next(111_000).barrier == 5, "an interval later"


def test_triggers_that_cannot_be_written_end_the_query_with_their_cause():
    a = Source(replace(LEADER, tolerable_failures=1))
    a.failures = 2
    a.next(101_000)
    with pytest.raises(CheckpointFailedError, match=r"2 checkpoint.*allows 1; the last: .*no space.*storage answers"):
        a.next(111_000)


def test_the_final_trigger_is_tried_again_at_once_because_spark_will_not_ask_again():
    a = Source(replace(LEADER, tolerable_failures=2, available_now=True, others=frozenset()))
    a.failures = 2
    end = a.next(101_000)
    assert a.did[-3:] == ["GiveUp 4 failed", "GiveUp 5 failed", "CreateTrigger 6 final"]
    assert end.barrier == 6
    b = Source(replace(LEADER, available_now=True, others=frozenset()))
    b.failures = 1
    with pytest.raises(CheckpointFailedError, match="allows 0"):
        b.next(101_000)


def test_a_request_whose_trigger_cannot_be_written_stays_open():
    a = Source(replace(LEADER, tolerable_failures=1))
    a.requests, a.failures = [ManualRequest("r1", SAVEPOINT, 1, "s3://there")], 1
    a.next(100_000)
    assert a.did[-1] == "GiveUp 4 failed"
    assert a.next(100_500).barrier == 5
    assert a.did[-2:] == ["CreateTrigger 5 savepoint", "DropRequest r1"]


def test_a_checkpoint_is_not_late_because_nobody_ran_the_job():
    a = Source(start=waiting(PendingTrigger(3, 1_000)))
    a.next(100_500)
    assert not a.moved


@pytest.mark.parametrize("how", ["deadline", "withdrawn"])
def test_what_nobody_waits_for_any_more_is_given_up_and_does_not_count_as_a_failure(how):
    pending = PendingTrigger(3, 100_000, request="r1", deadline_ms=100_400 if how == "deadline" else 900_000)
    a = Source(start=waiting(pending))
    if how == "withdrawn":
        a.released = {"r1"}
    end = a.next(100_500)
    assert a.did[-2:] == ["Withdraw r1", "GiveUp 3 withdrawn"]
    assert end.cancel == (3,)


def test_what_an_earlier_generation_never_injected_is_lost_and_its_marker_sent():
    a = Source()
    a.triggers = [trigger(3, generation=1), trigger(4, generation=1), trigger(5, generation=2)]
    end = a.next(100_000)
    assert a.did[1:] == ["GiveUp 4 lost"]
    assert end.cancel == (4,)
    a.triggers.append(trigger(6, generation=1))
    a.next(100_010)
    assert "GiveUp 6 lost" not in a.did, "looked for once"


def test_an_aborted_checkpoint_is_told_of_by_every_source_that_injected_it():
    for role in (LEADER, FOLLOWER):
        a = Source(role, waiting(PendingTrigger(3, 100_000)))
        a.aborted = {3}
        assert a.next(100_010).cancel == (3,)
        assert a.start.pending == ()


def test_what_a_newer_completion_left_behind_needs_no_marker():
    a = Source(start=waiting(PendingTrigger(3, 100_000)))
    a.aborted, a.completed = {3}, 3
    a.next(100_010)
    assert not a.moved


def test_storage_is_looked_at_now_and_then():
    a = Source(start=waiting(PendingTrigger(3, 100_000)))
    for now_ms in range(100_000, 100_500, 10):
        a.next(now_ms)
    assert a.looks == 10
    assert a.asks == 1


# --- the end of the input ------------------------------------------------------------------------------------------


def test_a_single_source_that_is_drained_takes_the_final_checkpoint():
    a = Source(replace(LEADER, available_now=True))
    end = a.next(100_000)
    assert a.did[-1] == f"CreateTrigger 4 {FINAL}"
    assert a.next(100_001) is end
    a.completed = 4
    a.next(100_002)
    assert not a.moved
    assert a.view.waiting.why is WaitReason.FINISHED


def test_a_final_checkpoint_that_was_given_up_is_taken_again():
    a = Source(replace(LEADER, available_now=True))
    a.next(100_000)
    a.aborted = {4}
    end = a.next(100_001)
    assert (end.cancel, end.barrier) == ((4,), 5)
    assert a.triggers[-1].kind == FINAL


def test_checkpoints_go_on_until_every_source_is_drained_and_only_then_the_final_one():
    a = Source(replace(LEADER, available_now=True, others=frozenset({"b", "c"})))
    a.drained = {"b"}
    a.next(100_000)
    assert not a.moved
    a.next(101_000)
    assert a.did[-1] == "CreateTrigger 4 checkpoint"
    a.drained = {"b", "c"}
    a.next(101_001)
    assert a.did[-1] == f"CreateTrigger 5 {FINAL}", "it waits for nothing: Spark may not ask again"


def test_a_follower_that_is_drained_says_so_once_and_asks_for_one_batch_more():
    b = Source(replace(FOLLOWER, available_now=True))
    end = b.next(100_000)
    assert b.did[-1] == "AnnounceDrained 2 b"
    assert end.drained == 2
    assert b.next(100_001) is end
    assert b.did.count("AnnounceDrained 2 b") == 1
    later = Source(replace(FOLLOWER, available_now=True, generation=3), end)
    assert later.next(100_000).drained == 3


# --- an end that is asked for ----------------------------------------------------------------------------------------

AT = replace(START, inner={"at": 5, "more": 1})


def test_the_final_checkpoint_comes_when_all_sources_stand_where_they_are_to_end():
    for available_now in (True, False):
        a = Source(replace(LEADER, end={"at": 7}, available_now=available_now, others=frozenset({"b"})), AT)
        b = Source(replace(FOLLOWER, end={"at": 6}, available_now=available_now), AT)
        a.inner, b.inner = {"at": 7, "more": 2}, {"at": 6, "more": 1}
        end = a.next(100_000)
        assert (end.inner, end.barrier) == (a.inner, None), "the other one has not come to its end"
        b.triggers = a.triggers
        assert b.next(100_000).drained == 2
        assert b.did[-1] == "AnnounceDrained 2 b"
        a.drained = {"b"}
        end = a.next(100_600)
        assert (end.inner, end.barrier, a.did[-1]) == (a.inner, 4, f"CreateTrigger 4 {FINAL}")
        assert (b.next(100_601).barrier, b.start.inner) == (4, b.inner)
        a.completed = 4
        a.next(100_700)
        a.next(111_000)
        assert not a.moved
        assert a.view.waiting.why is WaitReason.FINISHED, "nothing follows the final one"


def test_no_final_checkpoint_ahead_of_the_end_that_is_asked_for():
    a, b = (Source(replace(role, end={"at": 7}), AT) for role in (LEADER, FOLLOWER))
    b.triggers = [trigger(4, FINAL)]
    for source in (a, b):
        source.inner = {"at": 6, "more": 1}
        source.next(100_000)
        assert source.next(100_501).barrier is None, "what is missing may come"
    assert a.next(101_000).barrier == 4
    assert a.triggers[-1].kind == "checkpoint"


def test_a_run_that_cannot_come_to_its_end_fails_and_takes_no_checkpoint_elsewhere():
    for source in (
        Source(replace(LEADER, end={"at": 7}, available_now=True), AT),
        Source(replace(LEADER, end={"at": 7}), replace(AT, ended=True)),
        Source(replace(FOLLOWER, end={"at": 7}, available_now=True), AT),
    ):
        with pytest.raises(InvalidInputError, match=r'nothing behind .*"at": 5.*endingAt says .*"at": 7'):
            source.next(100_000)
        assert source.triggers == []


def test_a_source_that_waits_at_its_end_reads_storage_now_and_then():
    a = Source(replace(LEADER, end={"at": 5}, others=frozenset({"b"})), AT)
    a._ReadDrained = lambda step: a.did.append("ReadDrained") or frozenset()
    b = Source(replace(FOLLOWER, end={"at": 5}), AT)
    b._ReadOpenTriggers = lambda step: b.did.append("ReadOpenTriggers") or ()
    for now_ms in range(100_000, 101_000, 10):
        a.next(now_ms)
        b.next(now_ms)
    assert a.did.count("ReadDrained") == b.did.count("ReadOpenTriggers") == 2


def test_a_stream_is_never_drained():
    a, b = Source(), Source(FOLLOWER)
    a.next(100_000)
    b.next(100_000)
    assert not a.moved
    assert not b.moved


# --- following ---------------------------------------------------------------------------------------------------


def test_a_follower_takes_up_triggers_in_order_without_waiting_for_another_poll():
    b = Source(FOLLOWER)
    b.next(100_000)
    b.triggers = [trigger(6), trigger(4)]
    b.next(100_499)
    assert not b.moved
    assert b.next(100_500).barrier == 4
    assert b.next(100_501).barrier == 6
    assert [p.checkpoint for p in b.start.pending] == [4, 6]
    b.triggers.append(trigger(7))
    b.next(100_502)
    assert not b.moved


def test_a_follower_leaves_out_what_was_given_up():
    b = Source(FOLLOWER)
    b.triggers, b.aborted = [trigger(4), trigger(5)], {4}
    assert b.next(100_000).barrier == 5


def test_a_final_checkpoint_is_final_for_every_source_of_its_generation():
    final = trigger(4, FINAL)
    assert take_up([final], 2, drained=False) is None
    assert take_up([final], 2, drained=True) == final
    assert take_up([final], 3, drained=False) == final
    assert take_up([], 2, drained=True) is None


def test_a_follower_that_is_drained_does_not_wait_for_its_poll():
    b = Source(replace(FOLLOWER, available_now=True))
    b.next(100_000)
    b.triggers = [trigger(4, FINAL)]
    assert b.next(100_001).barrier == 4


def test_the_source_beside_rows_without_epochs_takes_a_trigger_up_when_all_others_have_and_then_at_once():
    c = Source(replace(FOLLOWER, last=True))
    c.triggers, c.injected = [trigger(4), trigger(5)], 3
    assert [c.next(now).barrier for now in (100_000, 100_001, 200_000)] == [None] * 3
    c.injected = 4
    assert c.next(200_001).barrier == 4
    c.next(300_000)
    assert not c.moved
    c.injected = 5
    assert c.next(300_001).barrier == 5


def test_it_does_not_look_for_triggers_all_the_time_where_what_others_have_injected_was_given_up():
    c, looks = Source(replace(FOLLOWER, last=True)), []
    c._ReadOpenTriggers = lambda step: looks.append(step) or ()
    c.injected = 3
    for now in range(90_000, 100_000, 100):
        c.next(now)
    assert looks == [], "nobody is ahead of it"
    c.injected = 4
    for now in range(100_000, 100_500):
        c.next(now)
    assert len(looks) == 1
    c.injected = 6
    c.next(100_500)
    assert len(looks) == 2
    c._ReadOpenTriggers = lambda step: (trigger(7),)
    c.next(200_000)
    assert not c.moved, "others have injected what was given up, and not all of them the next"
    c.injected = 7
    assert c.next(200_001).barrier == 7


# --- standing still ------------------------------------------------------------------------------------------------


def test_nothing_is_read_or_triggered_behind_a_stop_with_savepoint():
    for role in (LEADER, FOLLOWER):
        a = Source(role)
        stop = ManualRequest("r1", SAVEPOINT, 1, "s3://there", terminal=True)
        a.requests, a.triggers = [stop], [] if role.leader else [trigger(4, SAVEPOINT, terminal=True, request="r1")]
        end = a.next(100_000)
        assert (end.terminal, end.request, end.barrier) == (2, "r1", 4)
        a.inner, a.did = [9], []
        a.requests, a.triggers = [ManualRequest("r2", SAVEPOINT, 1)], [*a.triggers, trigger(5)]
        for completed in (0, 4):
            a.completed = completed
            assert a.next(200_000 if completed else 100_600) is end
        assert a.did == []


@pytest.mark.parametrize("why", ["aborted", "released", "a later start"])
def test_a_stop_that_failed_or_is_over_lets_the_source_go_on(why):
    frozen = replace(START, terminal=2, request="r1")
    assert is_frozen(frozen, 2, (), ())
    assert is_frozen(replace(frozen, request=None), 2, (), {"r1"})
    a = Source(replace(LEADER, generation=3) if why == "a later start" else LEADER, frozen)
    a.aborted = {3} if why == "aborted" else set()
    a.released = {"r1"} if why == "released" else set()
    a.inner = [9]
    end = a.next(100_000)
    assert (end.inner, end.terminal, end.request) == ([9], None, None)


@pytest.mark.parametrize("role", [LEADER, FOLLOWER], ids=["leader", "follower"])
def test_a_stop_that_failed_is_seen_at_once_where_spark_would_end_the_query(role):
    """Spark ends a query of availableNow, which is to read all there was, when no source has anything new."""
    frozen = replace(START, terminal=2, request="r1")
    a = Source(replace(role, available_now=True), frozen)
    a.inner = [9]
    assert a.next(100_000).inner == [5]
    a.released = {"r1"}
    assert a.next(100_001).inner == [9]


def test_a_stop_of_an_earlier_generation_that_is_taken_up_late_stops_nothing():
    b = Source(FOLLOWER)
    b.triggers = [trigger(4, SAVEPOINT, generation=1, terminal=True, request="r1")]
    assert b.next(100_000).terminal is None


def test_a_trigger_that_a_fenced_driver_creates_after_the_start_is_not_taken_up():
    """A drain by it would end this source, and no other."""
    b = Source(replace(FOLLOWER, inherited=frozenset({4})))
    b.triggers = [trigger(5, SAVEPOINT, generation=1), trigger(6)]
    assert b.next(100_000).barrier == 6
    c = Source(replace(FOLLOWER, inherited=frozenset({5})))
    c.triggers = b.triggers
    assert c.next(100_000).barrier == 5


def test_a_stop_that_takes_too_long_is_given_up_although_the_source_stands_still():
    a = Source(replace(LEADER, tolerable_failures=1))
    a.requests = [ManualRequest("r1", SAVEPOINT, 1, "s3://there", terminal=True)]
    a.next(100_000)
    a.inner = [9]
    end = a.next(160_001)
    assert (end.cancel, end.inner) == ((4,), [5])
    assert a.next(160_100).inner == [9]


def test_a_frozen_source_still_tells_what_was_given_up_and_stays_frozen():
    frozen = waiting(PendingTrigger(2, 100_000), PendingTrigger(3, 100_000, request="r1"), terminal=2, request="r1")
    b = Source(FOLLOWER, frozen)
    b.aborted = {2}
    end = b.next(100_000)
    assert (end.cancel, end.terminal, end.request, end.inner) == ((2,), 2, "r1", [5])
    assert "AskInner" not in b.did


def test_a_source_that_has_ended_is_not_asked_again_and_says_so_once():
    a = Source()
    a.finished = True
    end = a.next(100_000)
    assert end.ended
    a.did = []
    assert a.next(100_010) is end
    assert a.did == []


# --- what is said --------------------------------------------------------------------------------------------------


def said(start, end, parts, key_groups=5):
    return announcements("a", start, end, key_groups, parts)


def test_partitions_split_the_weight_and_the_first_speaks_for_the_source():
    end = replace(START, inner=[9], epoch=5, barrier=4, triggered_ms=7, cancel=(2, 3))
    first, second = said(START, end, 2)
    assert first == (Cancel(2), Cancel(3), SourceAck("a", 4, {"inner": [9], "ended": False}), Barrier(4, 3, 7))
    assert second == (Barrier(4, 2, 7),)
    assert sum(e.weight for part in said(START, end, 3) for e in part if isinstance(e, Barrier)) == 5


def test_without_data_one_partition_says_what_there_is_to_say():
    assert said(START, replace(START, inner=[6]), 0) == ()
    assert said(START, replace(START, cancel=(3,)), 0) == ((Cancel(3),),)
    ((ack, barrier),) = said(START, replace(START, epoch=5, barrier=4), 0)
    assert (ack.checkpoint, barrier.weight) == (4, 5)


def test_an_ended_source_keeps_one_share_alive():
    ended = replace(START, ended=True)
    assert said(START, ended, 0) == ((Finished(4, 4),),)
    parts = said(ended, replace(ended, epoch=5, barrier=4), 0)
    assert [e.weight for e in parts[0] if isinstance(e, Barrier)] == [1]
    assert not any(isinstance(e, Finished) for e in parts[0])
    both = said(START, replace(ended, epoch=5, barrier=4), 2)
    weights = [e.weight for part in both for e in part if isinstance(e, Barrier | Finished)]
    assert sum(weights) == 5


def test_an_end_is_told_again_at_a_restored_location_even_without_a_barrier():
    start = replace(START, ended=True, restore=3)
    assert said(start, replace(start, restore=None), 0) == ((Finished(4, 4),),)


def test_manifests_are_sent_at_a_restore_and_in_a_replay_and_in_both():
    first, restored = START, replace(START, restore=3)
    assert manifests_to_send(first, ["x"], ["x", "y"], None, True) == ()
    assert manifests_to_send(restored, ["x"], ["x", "y"], None, False) == (Manifests(3, ("x",), False),)
    assert manifests_to_send(first, ["x"], ["x", "y"], 4, False) == (), "a batch that was planned now"
    assert manifests_to_send(first, [], ["x", "y"], 4, True) == (Manifests(4, ("x", "y"), True),)
    both = manifests_to_send(restored, ["x"], ["x", "y"], 4, True)
    assert both == (Manifests(3, ("x",), False), Manifests(4, ("x", "y"), True))


# --- event time ----------------------------------------------------------------------------------------------------


def test_a_batch_follows_rows_that_may_have_moved_the_watermark_and_every_batch_says_that_it_was_there():
    a = Source(replace(LEADER, batch_behind_rows=True))
    a.inner = [6]
    end = a.next(100_000)
    assert end.to_json()["rows"] is True
    assert SourceOffset.from_json(json.loads(json.dumps(end.to_json()))) == end
    behind = a.next(100_010)
    assert (behind.inner, behind.rows) == ([6], None)
    assert a.next(100_020) is behind
    ((watermark,),) = announcements("a", end, behind, 5, 0, True)
    assert (watermark.stream, watermark.epoch) == (NO_STREAM, 4)


# --- hooks ---------------------------------------------------------------------------------------------------------


def test_a_hook_that_fails_fails_its_checkpoint_and_no_barrier_is_sent():
    a = Source(replace(LEADER, tolerable_failures=1))
    a.hook_fails, a.inner = "on_trigger raised KeyError", [6]
    end = a.next(101_000)
    assert (end.barrier, end.cancel, end.pending, end.inner) == (None, (), (), [6])
    assert a.did[-2:] == ["CreateTrigger 4 checkpoint", "GiveUp 4 failed"]
    assert a.next(101_500) is end, "the next one waits for the interval"
    with pytest.raises(CheckpointFailedError, match=r"2 checkpoint.*raised KeyError"):
        a.next(111_001)


def test_the_final_checkpoint_is_tried_again_when_a_hook_fails_because_spark_may_not_ask_again():
    a = Source(replace(LEADER, available_now=True, tolerable_failures=2))
    fails = iter(["once", "twice", None])
    a._CallHook = lambda step: next(fails)
    assert a.next(100_000).barrier == 6
    assert [d for d in a.did if d.startswith("GiveUp")] == ["GiveUp 4 failed", "GiveUp 5 failed"]


def test_a_request_that_a_hook_fails_at_the_end_of_the_input_is_followed_by_the_final_checkpoint():
    for drain in (False, True):
        a = Source(replace(LEADER, available_now=True, tolerable_failures=2))
        a.requests = [ManualRequest("r1", SAVEPOINT, 1, "s3://there", terminal=True, drain=drain)]
        fails = iter(["once", None])
        a._CallHook = lambda step, fails=fails: next(fails)
        end = a.next(100_000)
        assert (end.barrier, end.terminal, end.drain, a.triggers[-1].kind) == (5, None, None, FINAL)


def test_a_request_whose_checkpoint_a_hook_declines_is_over():
    a = Source(replace(LEADER, tolerable_failures=1))
    a.requests, a.hook_fails = [ManualRequest("r1", SAVEPOINT, 1, "s3://there", terminal=True)], "slow"
    end = a.next(100_500)
    assert (end.barrier, end.terminal, a.requests) == (None, None, [])


# --- what user functions are told ------------------------------------------------------------------------------------


def test_functions_are_told_of_a_checkpoint_once_in_the_first_batch_behind_it():
    a = Source(replace(LEADER, tells=True), waiting(PendingTrigger(2, 99_000), PendingTrigger(3, 100_000)))
    a.completed = 3
    assert a.next(100_100) is a.start, "no batch is made for it"
    a.inner = [6]
    end = a.next(100_200)
    assert (end.completed, end.pending) == (3, ())
    assert SourceOffset.from_json(json.loads(json.dumps(end.to_json()))) == end
    assert Completed(3) in said(START, end, 2)[0]
    assert Completed(3) not in said(START, end, 2)[1]
    a.inner = [7]
    assert a.next(100_300).completed is None


def test_functions_are_told_again_at_a_restored_location_and_never_of_what_was_not_injected_here():
    a = Source(replace(LEADER, tells=True), replace(START, restore=3))
    assert a.next(100_000).completed == 3
    b = Source(replace(LEADER, tells=True), waiting(PendingTrigger(3, 100_000)))
    b.completed, b.inner = 9, [6]
    assert b.next(100_100).completed is None, "a void record's id"
    c = Source(LEADER, waiting(PendingTrigger(3, 100_000)))
    c.completed, c.inner = 3, [6]
    assert c.next(100_100).completed is None, "nobody listens"


# --- paused ------------------------------------------------------------------------------------------------------


def reads(source, now_ms):
    """Whether the source takes up what has come."""
    source.inner = [source.start.inner[0] + 1]
    source.next(now_ms)
    return source.start.inner == source.inner


def paused(role):
    source = Source(role)
    source.paused = True
    source.triggers = [trigger(4), trigger(5)]
    return source


def test_a_leader_that_is_paused_reads_nothing_behind_the_next_barrier_and_goes_on_with_checkpoints():
    a = paused(LEADER)
    assert reads(a, 100_100), "no barrier has come yet"
    a.triggers = []
    assert reads(a, 102_000)
    assert a.start.barrier == 4
    assert not reads(a, 102_010)
    assert not reads(a, 103_000)
    a.completed = 4
    a.next(112_000)
    a.next(112_060)
    assert a.start.barrier == 5, "checkpoints go on"
    a.paused = False
    a.next(112_100)
    assert not reads(a, 112_200), "it looks now and then"
    a.next(112_600)
    assert reads(a, 112_700)


def test_a_follower_that_is_paused_reads_nothing_behind_the_next_barrier_and_takes_up_triggers():
    b = paused(FOLLOWER)
    assert reads(b, 101_000), "up to the barrier"
    assert b.start.barrier == 4
    assert not reads(b, 101_600)
    assert b.start.barrier == 5, "triggers are taken up all the same"
    b.triggers = []
    assert not reads(b, 102_200)
    b.paused = False
    b.next(102_800)
    assert reads(b, 102_900)


@pytest.mark.parametrize("role", [LEADER, FOLLOWER])
def test_what_is_started_while_it_is_paused_reads_nothing(role):
    source = paused(role)
    source.known, source.triggers = replace(source.known, paused=True), []
    assert not reads(source, 100_100)
    assert "AskInner" not in source.did
    source.paused = False
    source.next(101_000)
    assert reads(source, 101_100)


def test_a_run_of_what_is_available_now_ends_with_an_error_when_it_is_paused_and_does_not_seem_done():
    source = paused(replace(LEADER, available_now=True))
    source.known = replace(source.known, paused=True)
    with pytest.raises(InvalidInputError, match=r"paused.*spark-ckpt resume.*Nothing is lost"):
        source.next(100_100)


def test_a_source_that_was_paused_is_not_idle_at_once():
    a = Source(replace(LEADER, idle_ms=5_000))
    assert reads(a, 100_100)
    a.paused, a.triggers = True, []
    assert reads(a, 101_000)
    for now_ms in (101_500, 140_000):
        a.completed = a.start.epoch
        a.next(now_ms)
    assert not a.start.turns, "while it is paused"
    a.paused = False
    for now_ms in (150_000, 151_000, 154_000):
        a.next(now_ms)
    assert not a.start.turns
    for now_ms in (157_000, 160_000):
        a.next(now_ms)
    assert a.start.turns == 1
