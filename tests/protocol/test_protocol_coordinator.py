"""When checkpoints are triggered, acknowledged, given up, counted and dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.errors import ProtocolBugError
from spark_ckpt.protocol.coordinator import (
    AckResult,
    FailureCounter,
    ManualRequest,
    PendingCheckpoint,
    PendingTrigger,
    TriggerFacts,
    TriggerNow,
    TriggerPolicy,
    Wait,
    WaitReason,
    decide_expiry,
    decide_lost,
    decide_trigger,
    merge_stats,
    plan_retention,
)
from spark_ckpt.protocol.events import GroupManifest, OperatorAck, SourceAck
from spark_ckpt.protocol.records import AbortedRecord, Topology, TriggerRecord

POLICY = TriggerPolicy(interval_ms=10_000, min_pause_ms=3_000, timeout_ms=60_000, max_concurrent=1)
FACTS = TriggerFacts(now_ms=100_000, started_ms=50_000, initial_delay_ms=4_000)
SAVEPOINT = ManualRequest("r1", "savepoint", 99_000, "s3://there", terminal=True)


def facts(**changes):
    return replace(FACTS, **changes)


def test_the_first_checkpoint_comes_after_the_initial_delay():
    assert decide_trigger(POLICY, facts(now_ms=53_999)) == Wait(54_000, WaitReason.INTERVAL)
    assert decide_trigger(POLICY, facts(now_ms=54_000)) == TriggerNow("checkpoint", "interval")


def test_the_next_one_comes_an_interval_after_the_last_trigger():
    waiting = facts(last_trigger_ms=95_000)
    assert decide_trigger(POLICY, waiting) == Wait(105_000, WaitReason.INTERVAL)
    assert isinstance(decide_trigger(POLICY, replace(waiting, now_ms=105_000)), TriggerNow)


def test_the_barrier_goes_into_the_batch_that_begins_nearest_to_its_time():
    waiting = facts(last_trigger_ms=90_000, turn_ms=600)
    assert decide_trigger(POLICY, replace(waiting, now_ms=99_699)) == Wait(100_000, WaitReason.INTERVAL)
    assert isinstance(decide_trigger(POLICY, replace(waiting, now_ms=99_700)), TriggerNow)
    pausing = replace(waiting, last_completion_ms=97_000, now_ms=99_900)
    assert decide_trigger(POLICY, pausing) == Wait(100_000, WaitReason.MIN_PAUSE), "a pause is never shorter"


def test_batches_that_take_longer_than_the_interval_each_have_a_barrier():
    assert isinstance(decide_trigger(POLICY, facts(last_trigger_ms=99_000, turn_ms=20_000)), TriggerNow)


def test_the_minimum_pause_counts_from_the_last_completion():
    slow = facts(last_trigger_ms=80_000, last_completion_ms=98_000)
    assert decide_trigger(POLICY, slow) == Wait(101_000, WaitReason.MIN_PAUSE)
    assert isinstance(decide_trigger(POLICY, replace(slow, now_ms=101_000)), TriggerNow)


def test_a_clock_that_was_set_back_delays_no_checkpoint():
    for ahead in (facts(started_ms=100_001), facts(last_trigger_ms=86_500_000)):
        assert decide_trigger(POLICY, ahead) == TriggerNow("checkpoint", "interval")
    pausing = facts(last_trigger_ms=80_000, last_completion_ms=86_500_000)
    assert decide_trigger(POLICY, pausing) == TriggerNow("checkpoint", "interval")


def test_no_more_than_max_concurrent_are_pending_also_for_requested_checkpoints():
    pending = facts(pending=(PendingTrigger(5, 99_000),), requests=(ManualRequest("r1", "checkpoint", 99_000),))
    assert decide_trigger(POLICY, pending) == Wait(None, WaitReason.PENDING)
    assert isinstance(decide_trigger(replace(POLICY, max_concurrent=2), pending), TriggerNow)


def test_a_savepoint_is_triggered_whatever_is_pending_and_before_other_requests():
    older = ManualRequest("r0", "checkpoint", 1_000)
    asked = facts(pending=(PendingTrigger(5, 99_000),), requests=(older, replace(SAVEPOINT, deadline_ms=123)))
    assert decide_trigger(POLICY, asked) == TriggerNow("savepoint", "request", "s3://there", True, "r1", 123)


def test_a_request_comes_before_the_interval_and_the_pause():
    asked = facts(last_trigger_ms=99_999, last_completion_ms=99_999, requests=(SAVEPOINT,))
    assert decide_trigger(POLICY, asked) == TriggerNow("savepoint", "request", "s3://there", True, "r1")


def test_requests_of_a_kind_are_answered_oldest_first_also_at_the_end_of_input():
    second = replace(SAVEPOINT, request="r0", time_ms=99_500)
    decision = decide_trigger(POLICY, facts(requests=(second, SAVEPOINT), at_end=True))
    assert isinstance(decision, TriggerNow)
    assert decision.request == "r1"


def test_nothing_is_triggered_while_a_stop_with_savepoint_is_under_way():
    asked = facts(requests=(SAVEPOINT,), at_end=True, stopping=True)
    assert decide_trigger(replace(POLICY, max_concurrent=9), asked) == Wait(None, WaitReason.STOPPING)


def test_bounded_input_ends_with_one_final_checkpoint_whatever_is_pending():
    end = facts(at_end=True, last_trigger_ms=99_999)
    assert decide_trigger(POLICY, end) == TriggerNow("final", "end of input")
    assert decide_trigger(POLICY, replace(end, pending=(PendingTrigger(5, 9),))) == TriggerNow("final", "end of input")
    assert decide_trigger(POLICY, replace(end, final_pending=True)) == Wait(None, WaitReason.FINAL_PENDING)
    assert decide_trigger(POLICY, replace(end, final_pending=True, final_done=True)) == Wait(None, WaitReason.FINISHED)


def test_without_an_interval_only_requests_and_the_end_trigger():
    off = replace(POLICY, interval_ms=None)
    assert decide_trigger(off, FACTS) == Wait(None, WaitReason.DISABLED)
    assert isinstance(decide_trigger(off, facts(requests=(SAVEPOINT,))), TriggerNow)
    assert isinstance(decide_trigger(off, facts(at_end=True)), TriggerNow)


def test_a_checkpoint_expires_after_its_timeout_and_not_at_it():
    pending = [PendingTrigger(5, 40_000), PendingTrigger(6, 39_999)]
    assert [e.checkpoint for e in decide_expiry(POLICY, pending, 100_000)] == [6]


def test_a_checkpoint_is_not_late_while_nobody_ran_the_job():
    pending = [PendingTrigger(5, 1_000)]
    assert decide_expiry(POLICY, pending, 100_000, started_ms=40_000) == ()
    assert decide_expiry(POLICY, pending, 100_001, started_ms=40_000) != ()


def test_a_trigger_that_its_generation_never_injected_is_lost():
    def trigger(checkpoint, generation):
        return TriggerRecord(checkpoint, "checkpoint", 0, "interval", None, False, None, generation)

    open_triggers = [trigger(8, 2), trigger(7, 1), trigger(6, 1), trigger(9, 3)]
    assert decide_lost(open_triggers, generation=3, leader_epoch=7) == (7, 8)


# --- acknowledgements ------------------------------------------------------------------------------------------

TOPOLOGY = Topology(2, 4, ("a", "b"), {"x": {}}, ("s",))
PENDING = PendingCheckpoint(7, TOPOLOGY)
GROUPS = {0: GroupManifest(keys=1), 1: GroupManifest(keys=2)}


def source(name="a"):
    return SourceAck(name, 7, {"inner": 1})


def operator(groups, partition=0):
    return OperatorAck("x", 7, partition, groups, {"rows": 5, "max_held": partition, "align_ms": 10 - partition})


def test_a_checkpoint_is_complete_when_everyone_has_acknowledged():
    p = PENDING
    assert p.missing() == ("source a", "source b", "operator x (0 of 2 key groups)", "sink (0 of 4 weight)")
    for ack in (source("a"), source("b"), operator({0: GROUPS[0]}), operator({1: GROUPS[1]}, 1)):
        assert p.missing()
        p, result = p.acknowledge(ack)
        assert result is AckResult.SUCCESS
        half = "operator x (1 of 2 key groups)" in p.missing()
        assert half is (ack == operator({0: GROUPS[0]})), "every key group is waited for"
    p = p.barrier(3)
    assert p.missing() == ("sink (3 of 4 weight)",)
    assert p.missing(finished_weight=1) == ()
    assert p.barrier(1).missing() == ()
    assert p.stats == {"x": {"rows": 10, "max_held": 1, "align_ms": 10}}


def test_an_acknowledgement_again_is_a_duplicate_and_changes_nothing():
    p, _ = PENDING.acknowledge(source())
    assert p.acknowledge(source()) == (p, AckResult.DUPLICATE)
    p, _ = p.acknowledge(operator(GROUPS))
    assert p.acknowledge(operator({0: GROUPS[0]})) == (p, AckResult.DUPLICATE)


@pytest.mark.parametrize(
    "ack",
    [source("stranger"), OperatorAck("stranger", 7, 0, GROUPS), operator({2: GROUPS[0]}), operator({-1: GROUPS[0]})],
)
def test_an_acknowledgement_of_a_stranger_is_unknown(ack):
    assert PENDING.acknowledge(ack) == (PENDING, AckResult.UNKNOWN)


def test_a_late_acknowledgement_is_discarded():
    late = PENDING.discard()
    assert late.acknowledge(source()) == (late, AckResult.DISCARDED)


def test_two_partitions_that_claim_one_key_group_are_a_bug():
    p, _ = PENDING.acknowledge(operator({0: GROUPS[0]}))
    with pytest.raises(ProtocolBugError, match="acknowledged twice"):
        p.acknowledge(operator(GROUPS, 1))


def test_too_much_weight_at_the_sink_is_a_bug():
    with pytest.raises(ProtocolBugError, match="expected barriers of weight 4 at the sink, found 5"):
        PENDING.barrier(5).missing()


def test_statistics_are_sums_or_maxima_by_name():
    assert merge_stats({"rows": 1, "align_ms": 5}, {"rows": 2, "align_ms": 3, "max_x": 1}) == {
        "rows": 3, "align_ms": 5, "max_x": 1,
    }  # fmt: skip


# --- failures and retention ------------------------------------------------------------------------------------


def aborted(checkpoint, cause="failed", generation=1):
    return AbortedRecord(checkpoint, cause, "", 0, generation)


def test_a_failure_counts_once_and_only_failures_and_expiries_of_this_generation_count():
    counter = FailureCounter(1).add([aborted(1), aborted(1), aborted(2, "expired", 9)], 1)
    assert not counter.exceeded
    counter = counter.add([aborted(1), aborted(3, "subsumed"), aborted(4, "lost"), aborted(6, "declined")], 1)
    assert not counter.exceeded
    assert counter.add([aborted(5, "expired")], 1).exceeded


def test_a_completed_checkpoint_starts_the_count_anew():
    counter = FailureCounter(0).add([aborted(1)], 1)
    assert counter.exceeded
    assert not counter.completed(2).exceeded
    assert counter.add([aborted(3)], 1).completed(2).exceeded


def test_the_newest_are_retained():
    plan = plan_retention([1, 2, 3, 4], committed=[1, 2, 3, 4], retain=2, previous=3)
    assert (plan.keep, plan.drop, plan.files_up_to) == ((3, 4), (1, 2), 3)


def test_what_is_not_committed_or_pinned_is_never_dropped():
    plan = plan_retention([1, 2, 3], committed=[1, 3], retain=1, previous=2, pinned=[1])
    assert (plan.keep, plan.drop) == ((1, 2, 3), ())


def test_savepoints_do_not_count_among_the_retained():
    plan = plan_retention([1, 2, 3, 4], committed=[1, 2, 3, 4], retain=2, previous=3, savepoints=[2, 3])
    assert (plan.keep, plan.drop) == ((1, 4), (2, 3))
    plan = plan_retention([1, 2, 3], committed=[1, 2, 3], retain=1, previous=2, savepoints=[2, 3])
    assert (plan.keep, plan.drop) == ((1, 3), (2,)), "the newest stays: the next checkpoint builds on it"


def test_the_newest_is_retained_even_if_none_should_be():
    assert plan_retention([1, 2], [1, 2], retain=0).keep == (2,)


def test_files_stay_until_there_is_a_previous_completion():
    assert plan_retention([1], [1], retain=1).files_up_to is None
