"""Alignment, row by row of the state table in the aligner's docstring."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_ckpt.errors import CorruptStorageError, ProtocolBugError
from spark_ckpt.protocol.aligner import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    AlignerConfig,
    AlignerState,
    BatchInput,
    Declined,
    ForwardCancel,
    Hold,
    PendingBarrier,
    Process,
    Snapshot,
    plan,
)

TWO_INPUTS = AlignerConfig(total_weight=8)
AT_LEAST = AlignerConfig(total_weight=8, mode=AT_LEAST_ONCE)


def batch(barriers=None, *, cancels=(), finished=None, rows=None, now_ms=100):
    """``barriers``: checkpoint -> weight; ``rows``: label -> bytes."""
    given = {k: (w, 10 * k) for k, w in (barriers or {}).items()}
    return BatchInput(now_ms, given, frozenset(cancels), finished or {}, rows or {})


def waiting_for(checkpoint, weight=4, first_ms=50, epoch=None):
    pending = PendingBarrier(checkpoint, weight, 10 * checkpoint, first_ms)
    return AlignerState(checkpoint if epoch is None else epoch, (pending,))


def test_without_barriers_rows_are_processed_in_their_epoch():
    state = AlignerState.restored(4)
    assert plan(state, TWO_INPUTS, batch(rows={5: 10})) == (state, (Process(5, 5),))


def test_all_weights_in_one_batch_snapshot_at_once():
    state, actions = plan(AlignerState(5), TWO_INPUTS, batch({5: 8}, rows={5: 10}))
    assert state == AlignerState(6)
    assert actions == (Process(5, 5), Snapshot(5, 50, 100, 0), Process(6, 6))


def test_rows_behind_the_barrier_are_held_back_until_all_weights_are_there():
    state, actions = plan(AlignerState(5), TWO_INPUTS, batch({5: 4}, rows={5: 10, 6: 7}))
    assert actions == (Process(5, 5), Hold((6,), 7))
    assert state.pending == (PendingBarrier(5, 4, 50, 100, 7),)
    state, actions = plan(state, TWO_INPUTS, batch({5: 4}, rows={6: 9}, now_ms=400))
    assert state == AlignerState(6)
    assert actions == (Process(5, 5), Snapshot(5, 50, 100, 7), Process(6, 6))


def test_one_input_whose_barrier_drains_is_enough_whichever_comes_first():
    drains, plain = replace(batch({5: 4}), drains=frozenset({5})), batch({5: 4})
    for first, second in ((drains, plain), (plain, drains)):
        state, _ = plan(AlignerState(5), TWO_INPUTS, first)
        _, actions = plan(state, TWO_INPUTS, second)
        assert Snapshot(5, 50, 100, 0, drain=True) in actions


def test_ids_may_skip():
    state, actions = plan(AlignerState(5), TWO_INPUTS, batch({9: 8}, rows={5: 1}))
    assert state.epoch == 10
    assert actions[:2] == (Process(9, 5), Snapshot(9, 90, 100, 0))


def test_a_newer_barrier_waits_its_turn_behind_an_incomplete_older_one():
    state, actions = plan(waiting_for(5), TWO_INPUTS, batch({6: 4}, rows={6: 1, 7: 2}))
    assert actions == (Process(5, 5), Hold((6, 7), 3))
    assert (state.epoch, [p.checkpoint for p in state.pending]) == (5, [5, 6])
    state, actions = plan(state, TWO_INPUTS, batch({5: 4}, rows={6: 1, 7: 2}))
    assert actions[:3] == (Process(5, 5), Snapshot(5, 50, 50, 3), Process(6, 6))
    assert (state.epoch, [p.checkpoint for p in state.pending]) == (6, [6])


def test_an_older_barrier_that_an_input_left_out_is_given_up_when_the_newer_is_aligned():
    state, _ = plan(waiting_for(5), TWO_INPUTS, batch({6: 4}))
    state, actions = plan(state, TWO_INPUTS, batch({6: 4}))
    assert actions[:2] == (ForwardCancel(5), Process(6, 5))
    assert state == AlignerState(7)


def test_a_cancel_of_a_newer_checkpoint_leaves_the_older_pending_and_takes_effect_behind_it():
    state, _ = plan(waiting_for(5), TWO_INPUTS, batch({6: 4}))
    state, actions = plan(state, TWO_INPUTS, batch(cancels=[6], rows={7: 1}))
    assert actions == (Process(5, 5), Hold((7,), 1))
    assert state.cancelled == (6,)
    assert AlignerState.from_json(json.loads(json.dumps(state.to_json()))) == state
    state, actions = plan(state, TWO_INPUTS, batch({5: 4, 6: 4}, rows={7: 1}))
    assert [type(a) for a in actions] == [Process, Snapshot, ForwardCancel, Process]
    assert state == AlignerState(7)


def test_too_many_held_back_bytes_decline_the_oldest_first_and_then_the_next():
    state, _ = plan(waiting_for(5), TWO_INPUTS, batch({6: 4}))
    config = AlignerConfig(8, max_buffered_bytes=10)
    after, actions = plan(state, config, batch(rows={6: 9, 7: 9}))
    assert [a.checkpoint for a in actions if isinstance(a, Declined)] == [5]
    assert (after.epoch, [p.checkpoint for p in after.pending], actions[-1]) == (6, [6], Hold((7,), 9))
    after, actions = plan(state, config, batch(rows={6: 9, 7: 11}))
    assert [a.checkpoint for a in actions if isinstance(a, Declined)] == [5, 6]
    assert after == AlignerState(7)


def test_what_is_cancelled_behind_a_declined_checkpoint_goes_with_it():
    state, _ = plan(waiting_for(5), TWO_INPUTS, batch({6: 4, 7: 4}, cancels=[6]))
    after, actions = plan(state, AlignerConfig(8, max_buffered_bytes=10), batch(rows={7: 11}))
    assert [a.checkpoint for a in actions if isinstance(a, ForwardCancel)] == [5, 6]
    assert (after.epoch, [p.checkpoint for p in after.pending], after.cancelled) == (7, [7], ())


def test_an_older_barrier_completed_in_the_same_batch_is_not_cancelled():
    state, actions = plan(waiting_for(5), TWO_INPUTS, batch({5: 4, 6: 4}))
    assert [type(a) for a in actions] == [Process, Snapshot, Process]
    assert [p.checkpoint for p in state.pending] == [6]


def test_two_complete_barriers_snapshot_in_order():
    _, actions = plan(AlignerState(5), TWO_INPUTS, batch({6: 8, 5: 8}))
    assert [a.checkpoint for a in actions if isinstance(a, Snapshot)] == [5, 6]


@pytest.mark.parametrize("mode", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_barriers_and_cancels_of_finished_or_cancelled_checkpoints_are_ignored(mode):
    config = AlignerConfig(8, mode)
    state, actions = plan(AlignerState(6), config, batch({5: 4}, cancels=[4]))
    assert state == AlignerState(6)
    assert [type(a) for a in actions] == [Process]


def test_a_cancel_releases_what_was_held_back_and_is_passed_on():
    state, actions = plan(waiting_for(5), TWO_INPUTS, batch(cancels=[5], rows={6: 7}))
    assert state == AlignerState(6)
    assert actions == (ForwardCancel(5), Process(6, 6))


def test_a_cancel_of_a_checkpoint_nobody_has_seen_is_passed_on():
    """Rows leave in the next epoch from here on; downstream must not wait for the barrier."""
    state, actions = plan(AlignerState(5), TWO_INPUTS, batch(cancels=[5]))
    assert (state.epoch, actions[0]) == (6, ForwardCancel(5))


def test_a_cancel_wins_over_the_barrier_in_the_same_batch():
    _, actions = plan(AlignerState(5), TWO_INPUTS, batch({5: 8}, cancels=[5]))
    assert actions == (ForwardCancel(5), Process(6, 6))


def test_too_many_held_back_bytes_decline_the_checkpoint_and_lose_nothing():
    config = AlignerConfig(8, max_buffered_bytes=10)
    state, actions = plan(waiting_for(5), config, batch(rows={5: 100, 6: 11}))
    assert state == AlignerState(6)
    declined, cancel, process = actions
    assert isinstance(declined, Declined)
    assert (declined.checkpoint, declined.held_bytes) == (5, 11)
    assert "11 bytes" in declined.reason
    assert "more than 10" in declined.reason
    assert (cancel, process) == (ForwardCancel(5), Process(6, 6))


def test_as_many_bytes_as_allowed_are_held_back():
    config = AlignerConfig(8, max_buffered_bytes=10)
    state, actions = plan(waiting_for(5), config, batch(rows={6: 10}))
    assert actions[-1] == Hold((6,), 10)
    assert state.pending[0].held_bytes == 10


@pytest.mark.parametrize("mode", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_finished_weight_completes_a_pending_barrier_and_counts_for_good(mode):
    config = AlignerConfig(8, mode)
    state, actions = plan(waiting_for(5), config, batch(finished={5: 4}))
    assert Snapshot(5, 50, 50, 0) in actions
    state = AlignerState.from_json(state.to_json())
    _, actions = plan(state, config, batch({6: 4}))
    assert [a.checkpoint for a in actions if isinstance(a, Snapshot)] == [6]


def test_an_input_that_finished_behind_its_barrier_is_not_counted_twice():
    state, actions = plan(AlignerState(5), TWO_INPUTS, batch({5: 4}, finished={6: 4}))
    assert not any(isinstance(a, Snapshot) for a in actions)
    _, actions = plan(state, TWO_INPUTS, batch({5: 4}))
    assert any(isinstance(a, Snapshot) for a in actions)


def test_more_weight_than_there_is_is_a_bug():
    with pytest.raises(ProtocolBugError, match="expected barriers of weight 8, found 9"):
        plan(AlignerState(5), TWO_INPUTS, batch({5: 9}))


def test_at_least_once_holds_nothing_back():
    state, actions = plan(AlignerState(5), AT_LEAST, batch({5: 4}, rows={5: 10, 6: 7}))
    assert actions == (Process(None, 5),)
    _, actions = plan(state, AT_LEAST, batch({5: 4}, rows={6: 1}))
    assert actions == (Process(None, 5), Snapshot(5, 50, 100, 0), Process(None, 6))


def test_at_least_once_a_newer_barrier_leaves_the_older_pending():
    state, actions = plan(AlignerState(5), AT_LEAST, batch({5: 4, 6: 4}))
    assert [p.checkpoint for p in state.pending] == [5, 6]
    _, actions = plan(state, AT_LEAST, batch({5: 4}))
    assert [a.checkpoint for a in actions if isinstance(a, Snapshot)] == [5]


def test_at_least_once_the_older_is_given_up_when_the_newer_completes():
    state, _ = plan(AlignerState(5), AT_LEAST, batch({5: 4, 6: 4}))
    state, actions = plan(state, AT_LEAST, batch({6: 4}))
    assert actions[0] == ForwardCancel(5)
    assert [a.checkpoint for a in actions if isinstance(a, Snapshot)] == [6]
    assert state == AlignerState(7)


def test_state_survives_json():
    state = AlignerState(5, (PendingBarrier(5, 4, 50, 100, 7),), ((5, 2), (6, 2)))
    assert AlignerState.from_json(json.loads(json.dumps(state.to_json()))) == state


@pytest.mark.parametrize("body", [{}, {"epoch": 1, "pending": [[1]], "finished": []}, {"epoch": "1"}])
def test_damaged_state_is_refused(body):
    with pytest.raises(CorruptStorageError, match="alignment state"):
        AlignerState.from_json(body)
