"""Scenarios of Flink's checkpoint tests that no other test here had; docs/design/flink-scenarios.md lists all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.errors import StorageNotWritableError
from spark_ckpt.protocol.aligner import AlignerState, ForwardCancel, Snapshot, plan
from spark_ckpt.protocol.events import Decline, Flushed, GroupManifest, OperatorAck, Run, SourceAck
from spark_ckpt.protocol.records import SAVEPOINT
from spark_ckpt.protocol.source_offset import PendingTrigger
from spark_ckpt.protocol.source_steps import ManualRequest
from tests.protocol.stepwise import Shell
from tests.protocol.test_protocol_aligner import AT_LEAST, TWO_INPUTS, batch
from tests.protocol.test_protocol_commit import Job
from tests.protocol.test_protocol_source import LEADER, POLICY, Source, waiting


def snapshots(actions):
    return [a.checkpoint for a in actions if isinstance(a, Snapshot)]


# --- aligning ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [TWO_INPUTS, AT_LEAST], ids=["exactly once", "at least once"])
def test_the_next_barrier_may_overtake_the_cancel_marker_of_the_one_before(config):
    state, _ = plan(AlignerState(5), config, batch({6: 4}))
    state, actions = plan(state, config, batch(cancels=[5]))
    assert ForwardCancel(5) in actions
    assert [p.checkpoint for p in state.pending] == [6]
    _, actions = plan(state, config, batch({6: 4}))
    assert snapshots(actions) == [6]


def test_at_least_once_the_last_barriers_of_two_checkpoints_complete_one_by_one():
    state, _ = plan(AlignerState(5), AT_LEAST, batch({5: 4, 6: 4}))
    state, actions = plan(state, AT_LEAST, batch({5: 4}))
    assert snapshots(actions) == [5]
    state, actions = plan(state, AT_LEAST, batch({6: 4}))
    assert snapshots(actions) == [6]
    assert state == AlignerState(7)


def test_at_least_once_a_cancel_between_barriers_gives_up_its_own_checkpoint_only():
    state, _ = plan(AlignerState(5), AT_LEAST, batch({5: 4}))
    state, actions = plan(state, AT_LEAST, batch({6: 4}, cancels=[5]))
    assert ForwardCancel(5) in actions
    state, actions = plan(state, AT_LEAST, batch({5: 4, 6: 4}))
    assert snapshots(actions) == [6]
    assert state == AlignerState(7)


@pytest.mark.parametrize("config", [TWO_INPUTS, AT_LEAST], ids=["exactly once", "at least once"])
def test_an_input_that_ends_completes_all_checkpoints_that_wait_for_it(config):
    state, _ = plan(AlignerState(5), config, batch({5: 4, 6: 4}))
    _, actions = plan(state, config, batch(finished={5: 4}))
    assert snapshots(actions) == [5, 6]


@pytest.mark.parametrize("config", [TWO_INPUTS, AT_LEAST], ids=["exactly once", "at least once"])
def test_an_input_that_ended_counts_for_the_checkpoint_behind_a_cancelled_one(config):
    state, _ = plan(AlignerState(5), config, batch({5: 4}))
    state, actions = plan(state, config, batch(cancels=[5], finished={5: 4}))
    assert snapshots(actions) == []
    _, actions = plan(state, config, batch({6: 4}))
    assert snapshots(actions) == [6]


# --- triggering --------------------------------------------------------------------------------------------------


def test_a_timeout_gives_up_that_checkpoint_and_no_other():
    late, fine = PendingTrigger(2, 90_000), PendingTrigger(3, 110_000)
    source = Source(replace(LEADER, tolerable_failures=9), waiting(late, fine))
    end = source.next(165_000)
    assert "GiveUp 2 expired" in source.did
    assert end.cancel == (2,)
    assert [p.checkpoint for p in end.pending] == [3]


def test_savepoints_that_are_asked_for_at_once_are_all_taken_in_order():
    source = Source()
    source.requests = [ManualRequest(f"r{i}", SAVEPOINT, 100_000 + i, f"/s{i}") for i in (2, 0, 1)]
    taken = [source.next(100_100 + 600 * i).barrier for i in range(3)]
    assert taken == [4, 5, 6]
    assert [(t.checkpoint, t.target) for t in source.triggers] == [(4, "/s0"), (5, "/s1"), (6, "/s2")]
    assert [p.checkpoint for p in source.start.pending] == [4, 5, 6]


def test_what_a_completion_subsumed_makes_room_for_the_next_trigger():
    role = replace(LEADER, policy=replace(POLICY, max_concurrent=2))
    source = Source(role, waiting(PendingTrigger(2, 101_000), PendingTrigger(3, 101_500)))
    assert source.next(102_000).barrier is None
    source.completed, source.inner = 3, [6]
    end = source.next(113_000)
    assert end.barrier == 4
    assert [p.checkpoint for p in end.pending] == [4]
    assert end.cancel == ()


# --- completing --------------------------------------------------------------------------------------------------


def test_acknowledgements_of_a_checkpoint_that_nobody_waits_for_change_nothing():
    job = Job()
    job.trigger(1)
    job.commit(job.complete(1, 0))
    before = job.records.ids("checkpoints")
    stray = [SourceAck("a", 7, {"inner": 0}), SourceAck("stranger", 1, {"inner": 0})]
    job.commit(job.batch(1, events=stray))
    assert job.records.ids("checkpoints") == before
    assert job.steps[-1] == "WriteBatch"


def test_a_declined_checkpoint_leaves_the_one_behind_it_alone():
    job = Job(tolerable=9)
    job.trigger(1)
    job.trigger(2)
    job.commit(job.batch(0, [job.stage("a", 1)], [SourceAck("a", 1, {"inner": 1}), Decline("x", 1, "full")]))
    assert set(job.records.ids("aborted")) == {1}
    job.commit(job.complete(2, 1, [job.stage("b", 2)], epoch=2))
    assert job.sink.committed == {b"a", b"b"}


def flushed(job, epoch, name, keys):
    file = f"e{epoch:010d}-{name}.parquet"
    written = job.write_file("x", file, [(k, 1) for k in keys])
    return Flushed("x", epoch, (written,), {}), Run(file, 0, len(keys), epoch)


def acks_of(checkpoint, *runs):
    groups = {0: GroupManifest(runs, sum(r.count for r in runs))}
    return [SourceAck("a", checkpoint, {"inner": checkpoint}), OperatorAck("x", checkpoint, 0, groups, {})]


def test_what_was_flushed_for_an_aborted_checkpoint_belongs_to_the_next():
    """Flink deletes the state of a checkpoint that fails; here the next one needs it."""
    job = Job(tolerable=9)
    job.trigger(1)
    job.trigger(2)
    event, first = flushed(job, 1, "first", [1])
    job.commit(job.batch(0, events=[event, Decline("x", 1, "full")]))
    event, second = flushed(job, 2, "second", [2])
    job.commit(job.batch(1, events=[event, *acks_of(2, first, second)], barriers={2: 1}))
    assert job.in_table("x") == {first.file, second.file}
    assert max(job.records.completions()) == 2


def test_an_aborted_checkpoint_takes_no_file_of_a_complete_one_away():
    job = Job(tolerable=9)
    for k in (1, 2, 3):
        job.trigger(k)
    event, first = flushed(job, 1, "first", [1])
    job.commit(job.batch(0, events=[event, *acks_of(1, first)], barriers={1: 1}))
    event, _ = flushed(job, 2, "second", [2])
    job.commit(job.batch(1, events=[event, Decline("x", 2, "full")]))
    assert first.file in job.files("x")
    job.commit(job.batch(2, events=acks_of(3, first), barriers={3: 1}))
    assert job.in_table("x") == {first.file}
    assert first.file in job.files("x")


def test_a_checkpoint_that_cannot_be_recorded_drops_no_older_one_and_the_next_takes_it_over():
    class Full(Shell):
        def _CreateCompletion(self, step):
            raise StorageNotWritableError("no space left")

    job = Job(tolerable=1)
    for k in (1, 2, 3):
        job.trigger(k)
    event, first = flushed(job, 1, "first", [1])
    job.commit(job.batch(0, [job.stage("a", 1)], [event, *acks_of(1, first)], {1: 1}))
    sound, job.shell = job.shell, Full(job, job.shell.topology, generation=1)
    event, second = flushed(job, 2, "second", [2])
    job.commit(job.batch(1, [job.stage("b", 2)], [event, *acks_of(2, first, second)], {2: 1}))
    assert set(job.records.completions()) == {1}
    assert job.files("x") == {first.file, second.file}
    assert job.sink.committed == {b"a"}
    job.shell = sound
    job.commit(job.batch(2, events=acks_of(3, first, second), barriers={3: 1}))
    assert job.sink.committed == {b"a", b"b"}


def test_files_of_a_newer_epoch_than_the_last_two_completions_are_not_collected():
    job = Job()
    for k in (1, 2, 3):
        job.trigger(k)
    flushed(job, 9, "ahead", [9])
    for k in (1, 2, 3):
        job.commit(job.complete(k, k - 1, file="f"))
    assert "e0000000009-ahead.parquet" in job.files("x")
    assert "e0000000001-f.parquet" not in job.files("x")
