"""The sink's commit, driven on the simulation's storage: order of steps, replays, fencing, failures, retention."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.errors import CheckpointFailedError, FencedError, ProtocolBugError
from spark_ckpt.protocol.commit import JobView, commit_batch, commit_completions, labelled, rebuild
from spark_ckpt.protocol.events import Cancel, Decline, Flushed, GroupManifest, OperatorAck, Run, SourceAck, StateFile
from spark_ckpt.protocol.records import (
    AbortedRecord,
    BatchRecord,
    GenerationRecord,
    HookState,
    Topology,
    TriggerRecord,
    VoidRecord,
)
from spark_ckpt.protocol.steps import PutBack, StorageFailed
from spark_ckpt.storage.manifest import read_manifest
from spark_ckpt.types import BEFORE_BARRIERS
from tests.protocol.stepwise import UNWRITABLE, Answer, Crash, Shell, Stepwise

TOPOLOGY = Topology(1, 1, ("a",), {"x": {"state": "s", "keys": "k"}}, ("append", "merge"))
NOW_MS = 5_000


THERE = "simulated://savepoints/there"


class Job(Stepwise):
    """A job of one source, one operator with one key group, and a sink; ``steps`` are the names of those done."""

    def __init__(self, retain=1, tolerable=0):
        super().__init__()
        self.generation = 1
        self.shell = Shell(self, TOPOLOGY, generation=1)
        self.make_table("x")
        self.options = {"retain": retain, "tolerable_failures": tolerable}
        self.records.put("generations", 1, GenerationRecord(1, 1, "spark", None, 0, TOPOLOGY))
        self.view = self.rebuilt()

    def rebuilt(self) -> JobView:
        r = self.records
        return rebuild(
            job="job", topology=TOPOLOGY, generation=self.generation, origin=1, restored=None,
            completions=r.completions().values(), batches=r.batches(), committed=r.ids("committed"),
            aborted=r.aborted(), voided=r.voids(), **self.options,
        )  # fmt: skip

    def restart(self):
        self.generation += 1
        claim = GenerationRecord(self.generation, 1, "spark", None, 0, TOPOLOGY)
        self.records.put("generations", self.generation, claim)
        self.shell = self.shell.again(self.generation)
        self.options["adopt"] = max(self.records.completions(), default=None)
        self.view = self.rebuilt()

    def trigger(self, checkpoint, kind="checkpoint", target=None):
        trigger = TriggerRecord(checkpoint, kind, 4_000, "interval", target, False, None, self.generation)
        self.records.put("triggers", checkpoint, trigger)

    def batch(self, number, staged=(), events=(), barriers=None):
        return BatchRecord(1, number, self.generation, tuple(staged), tuple(events), barriers or {})

    def acks(self, checkpoint, epoch=None, file=None):
        """Everybody's acknowledgement, with a state file of one row (key = the checkpoint) if ``file`` is given."""
        runs, flushed = (), []
        if file:
            name = f"e{epoch or checkpoint:010d}-{file}.parquet"
            flushed = [Flushed("x", epoch or checkpoint, (self.write_file("x", name, [(checkpoint, 1)]),), {})]
            runs = (Run(name, 0, 1, checkpoint),)
        ack = OperatorAck("x", checkpoint, 0, {0: GroupManifest(runs, len(runs))}, {"rows": 3})
        return [*flushed, SourceAck("a", checkpoint, {"inner": checkpoint}), ack]

    def complete(self, checkpoint, number, staged=(), **kw):
        return self.batch(number, staged, self.acks(checkpoint, **kw), {checkpoint: 1})

    def commit(self, record):
        self.view = self.run(commit_batch(self.view, record, NOW_MS), self.shell)

    def commit_until(self, record, step):
        """The process stops right before ``step``."""
        self.world.stop_at = f"before {step}"
        with pytest.raises(Crash):
            self.commit(record)
        self.restart()


def test_a_batch_without_a_checkpoint_is_only_recorded():
    job = Job()
    job.commit(job.batch(0, [job.stage("a", 1)]))
    assert job.steps == ["WriteBatch"]
    assert job.sink.staged


HOOK = HookState("hooks", b"kept")


def test_a_completion_has_what_its_trigger_says_of_it():
    job = Job()
    trigger = TriggerRecord(1, "final", 4_000, "drained", None, True, "asked", 1, drain=True, hook=HOOK)
    job.records.put("triggers", 1, trigger)
    job.commit(job.complete(1, 0))
    found = job.records.completions()[1]
    assert (found.kind, found.triggered_ms) == ("final", 4_000)
    assert (found.request, found.triggered_by) == ("asked", 1)
    assert (found.drained, found.hook) == (True, HOOK)


def test_the_order_of_steps():
    job = Job()
    job.trigger(1)
    job.commit(job.batch(0, [job.stage("a", 1)]))
    job.commit(job.complete(1, 1, [job.stage("b", 1, "merge")], file="f"))
    assert job.steps == [
        "WriteBatch", "WriteBatch", "ReadTrigger", "ReadNewestGeneration", "CommitState", "TrySinks",
        "ReadNewestGeneration", "CreateCompletion", "CommitSinks", "CommitSink", "CommitSink", "ReadNewestGeneration",
        "WriteCommitted", "AppendHistory", "DropBatches",
    ]  # fmt: skip
    record = job.records.get("checkpoints", 1)
    assert [c.data for c in record.committables] == [b"a", b"b"]
    assert (record.batch, record.batches_from, record.triggered_ms, record.completed_ms) == (1, 2, 4_000, NOW_MS)
    assert record.sources == {"a": {"inner": 1}}
    assert record.stats == {"x": {"rows": 3}}
    assert job.sink.committed == {b"a", b"b"}
    assert [b.batch for b in job.records.batches()] == [1], "the newest tells of the query's progress"


def test_batches_of_another_location_stay_because_they_name_what_was_staged_there():
    job = Job()
    elsewhere = replace(job.batch(0, [job.stage("there", 1)]), origin=7)
    job.records.put("batches", elsewhere.name, elsewhere)
    job.trigger(1)
    job.commit(job.batch(0))
    job.commit(job.complete(1, 1))
    assert {(b.origin, b.batch) for b in job.records.batches()} == {(7, 0), (1, 1)}


def test_what_belongs_to_a_later_epoch_stays_open():
    job = Job()
    job.trigger(1)
    job.commit(job.complete(1, 0, [job.stage("a", 1), job.stage("b", 2)]))
    assert job.sink.committed == {b"a"}
    assert job.records.get("checkpoints", 1).batches_from == 0
    job.trigger(2)
    job.commit(job.complete(2, 1))
    assert job.sink.committed == {b"a", b"b"}


def test_state_is_what_was_flushed_up_to_the_checkpoint():
    job = Job()
    job.trigger(1)
    late = Flushed("x", 2, (StateFile("e0000000002-late.parquet", 1, 1),), {})
    record = job.complete(1, 0, file="f")
    job.commit(replace(record, events=(*record.events, late)))
    assert job.in_table("x") == {"e0000000001-f.parquet"}
    assert job.rebuilt().flushed("x", 2) == (late,)


@pytest.mark.parametrize("step", ["WriteBatch", "ReadTrigger", "CommitState", "CreateCompletion"])
def test_stopped_before_the_completion_a_replay_replaces_everything(step):
    job = Job()
    job.trigger(1)
    job.commit(job.batch(0, [job.stage("a", 1)]))
    job.commit_until(job.complete(1, 1, [job.stage("b", 1)], file="f"), step)
    job.commit(job.complete(1, 1, [job.stage("c", 1)], file="g"))
    assert job.sink.committed == {b"a", b"c"}
    assert job.records.completions().keys() == {1}


@pytest.mark.parametrize("step", ["CommitSink", "WriteCommitted", "AppendHistory", "DropBatches"])
def test_stopped_behind_the_completion_its_record_is_canonical(step):
    job = Job()
    job.trigger(1)
    job.commit(job.batch(0, [job.stage("a", 1)]))
    job.commit_until(job.complete(1, 1, [job.stage("b", 1), job.stage("b2", 2)], file="f"), step)
    record = job.records.get("checkpoints", 1)
    job.commit(job.complete(1, 1, [job.stage("c", 1), job.stage("c2", 2)], file="g"))
    assert job.records.get("checkpoints", 1) == record
    assert job.sink.committed == {b"a", b"b"}
    assert set(job.sink.staged) == {b"c2"}, "what the first attempt staged of later epochs is garbage"
    job.trigger(2)
    job.commit(job.complete(2, 2))
    assert job.sink.committed == {b"a", b"b", b"c2"}


def test_a_replaced_attempt_is_aborted_only_behind_the_completion():
    """An older driver, if it still lives, may be about to create a record that names it."""
    job = Job()
    job.trigger(1)
    job.commit(job.complete(1, 0, [job.stage("a", 2)]))
    job.trigger(2)
    job.commit(job.batch(1, [job.stage("b", 2)]))
    job.restart()
    job.trace.clear()
    job.commit(job.complete(2, 1, [job.stage("c", 2)]))
    assert job.steps.index("AbortSink") > job.steps.index("CreateCompletion")
    assert job.sink.committed == {b"a", b"c"}
    assert not job.sink.staged


def test_a_newer_generation_fences_before_anything_is_committed():
    job = Job()
    job.trigger(1)
    job.records.put("generations", 2, GenerationRecord(2, 0, "elsewhere", None, 0, TOPOLOGY))
    with pytest.raises(FencedError, match="expected generation 1 to be the newest, found 2"):
        job.commit(job.complete(1, 0, [job.stage("a", 1)]))
    assert "CommitState" not in job.steps
    assert not job.sink.committed


@pytest.mark.parametrize("there", ["void", "completion"])
def test_a_checkpoint_owned_by_another_generation_fences(there):
    job = Job()
    job.trigger(1)
    taken = VoidRecord(1, 9, 0)
    if there == "completion":
        other = Job()
        other.trigger(1)
        other.commit(other.complete(1, 0))
        taken = replace(other.records.get("checkpoints", 1), generation=9)
    job.records.put("checkpoints", 1, taken)
    with pytest.raises(FencedError, match="owned by generation 9"):
        job.commit(job.complete(1, 0, [job.stage("a", 1)]))
    assert not job.sink.committed
    assert job.records.with_store(lambda r: r.store.names("copies")) == [], "a start would put back what never was"


def test_only_what_is_lost_is_put_back():
    """Of two starts at a time one looked, and the other put back and went on."""
    job = Job()
    job.records.put("checkpoints", 1, VoidRecord(1, 2, 0))
    job.shell(PutBack(VoidRecord(1, 1, 0)))
    assert job.records.get("checkpoints", 1) == VoidRecord(1, 2, 0)


def test_a_completion_created_in_spite_of_an_error_is_recognised():
    job = Job()
    job.trigger(1)
    create = job.shell._CreateCompletion
    job.shell._CreateCompletion = lambda step: (create(step), create(step))[1]  # the store tried twice
    job.commit(job.complete(1, 0, [job.stage("a", 1)]))
    assert job.sink.committed == {b"a"}


def test_the_newest_of_several_complete_checkpoints_subsumes_the_others():
    job = Job()
    job.trigger(1)
    job.trigger(2)
    job.commit(job.batch(0, [job.stage("a", 1)], [*job.acks(1), *job.acks(2)], {1: 1, 2: 1}))
    assert job.records.completions().keys() == {2}
    assert job.records.get("aborted", 1).cause == "subsumed"
    assert job.sink.committed == {b"a"}


def test_a_complete_savepoint_is_not_subsumed():
    job = Job()
    job.trigger(1, "savepoint", THERE)
    job.trigger(2)
    job.commit(job.batch(0, [job.stage("a", 1)], [*job.acks(1), *job.acks(2)], {1: 1, 2: 1}))
    assert THERE in job.savepoints
    assert job.view.last.checkpoint == 2


def test_a_savepoint_is_written_behind_the_sinks_and_before_it_is_announced():
    job = Job()
    job.trigger(1, "savepoint", THERE)
    job.commit(job.complete(1, 0, [job.stage("a", 1)]))
    order = [s for s in job.steps if s in ("CreateCompletion", "CommitSink", "WriteSavepoint", "WriteCommitted")]
    assert order == ["CreateCompletion", "CommitSink", "WriteSavepoint", "WriteCommitted"]


@pytest.mark.parametrize("step", ["CommitSink", "WriteSavepoint", "WriteCommitted"])
def test_a_savepoint_stopped_on_the_way_is_finished_by_the_next_start(step):
    job = Job()
    job.trigger(1, "savepoint", THERE)
    job.commit_until(job.complete(1, 0, [job.stage("a", 1)]), step)
    record = job.records.get("checkpoints", 1)
    job.view = job.run(commit_completions(job.view, [record], NOW_MS), job.shell)
    assert THERE in job.savepoints
    assert job.sink.committed == {b"a"}
    assert 1 in job.records.ids("committed")


def test_a_savepoint_that_cannot_be_written_does_not_stop_the_job():
    job = Job()
    job.trigger(1, "savepoint", UNWRITABLE)
    job.commit(job.complete(1, 0, [job.stage("a", 1)]))
    assert job.sink.committed == {b"a"}
    assert job.records.get("committed", 1).savepoint_error.startswith("Cannot write")
    assert UNWRITABLE in job.history[-1].reason


def test_a_fully_acknowledged_checkpoint_that_was_aborted_is_not_completed():
    job = Job()
    job.trigger(1)
    job.records.put("aborted", 1, AbortedRecord(1, "expired", "slow", 0, 1))
    job.commit(job.complete(1, 0, [job.stage("a", 1)]))
    assert not job.records.completions()
    assert 1 in job.view.aborted
    job.trigger(2)
    job.commit(job.complete(2, 1))
    assert job.sink.committed == {b"a"}, "its rows go to the next checkpoint"


def test_a_checkpoint_whose_trigger_is_lost_is_given_up_and_its_rows_go_to_the_next():
    job = Job()
    job.commit(job.complete(1, 0, [job.stage("a", 1)]))
    assert not job.records.completions()
    assert 1 in job.view.aborted
    job.trigger(2)
    job.commit(job.complete(2, 1))
    assert job.sink.committed == {b"a"}


def failed(checkpoint, reason="no space"):
    return Decline("x", checkpoint, reason, failed=True)


def test_a_failure_aborts_once_and_counts_once():
    job = Job(tolerable=1)
    job.trigger(1)
    decline = [Decline("x", 1, "too much"), failed(1), failed(1, "also"), Cancel(1)]
    job.commit(job.batch(0, [], decline))
    job.commit(job.batch(1, [], decline))
    assert job.steps.count("WriteAborted") == 1
    gone = job.records.get("aborted", 1)
    assert (gone.cause, gone.reason) == ("failed", "x: no space"), "rather than what only held back too much"
    assert job.view.failures.failed == {1}


def test_a_decline_for_rows_held_back_is_counted_apart():
    job = Job()
    job.trigger(1)
    job.trigger(2)
    job.commit(job.batch(0, [], [Decline("x", 1, "too much"), Cancel(1)]))
    assert job.records.get("aborted", 1).cause == "declined"
    with pytest.raises(CheckpointFailedError, match="found 1, the last one 2: x: no space"):
        job.commit(job.batch(1, [], [failed(2), Cancel(2)]))


def test_too_many_failures_stop_the_query_when_everything_is_durable():
    job = Job()
    job.trigger(1)
    with pytest.raises(CheckpointFailedError, match="expected at most 0 failed checkpoints in a row"):
        job.commit(job.batch(0, [job.stage("a", 1)], [failed(1)]))
    assert 1 in job.records.ids("aborted")
    job.restart()
    job.commit(job.batch(0, [job.stage("b", 1)], [failed(1)]))
    assert not job.view.failures.failed, "a replay does not count it again"


def test_expiries_recorded_by_the_first_source_count_too():
    job = Job(tolerable=1)
    job.trigger(1)
    job.trigger(2)
    job.records.put("aborted", 1, AbortedRecord(1, "expired", "slow", 0, 1))
    with pytest.raises(CheckpointFailedError):
        job.commit(job.batch(0, [], [failed(2)]))


def test_failures_before_the_last_completion_do_not_count():
    job = Job(tolerable=1)
    for k in (1, 2, 3):
        job.trigger(k)
    job.commit(job.batch(0, [], [failed(1)]))
    job.commit(job.complete(2, 1))
    job.records.put("aborted", 1, AbortedRecord(1, "failed", "no space", 0, 1))
    job.commit(job.batch(2, [], [failed(3)]))
    assert job.view.failures.failed == {3}


def test_a_cancelled_checkpoint_is_aborted_and_does_not_count_as_failed():
    job = Job()
    job.trigger(1)
    job.commit(job.batch(0, [], [Cancel(1)]))
    assert job.records.get("aborted", 1).cause == "subsumed"


def test_a_checkpoint_whose_name_a_newer_driver_took_is_left_to_that_driver():
    """The newer one was halted between taking the name and writing why; its source here sends a marker (seed 73725)."""
    job = Job()
    job.trigger(1, kind="savepoint", target=THERE)
    job.records.put("generations", 2, GenerationRecord(2, -1, "spark", None, 0, TOPOLOGY))
    job.records.create("checkpoints", 1, VoidRecord(1, 2, NOW_MS))
    with pytest.raises(FencedError, match="another query runs this job now"):
        job.commit(job.batch(0, [], [Cancel(1)]))
    assert (job.records.get("aborted", 1), job.history) == (None, [])


def test_an_expired_checkpoint_reaches_the_history_with_its_marker():
    job = Job()
    job.trigger(1)
    job.records.put("aborted", 1, AbortedRecord(1, "expired", "slow", 0, 1))
    job.commit(job.batch(0, [], [Cancel(1)]))
    assert [(h.checkpoint, h.outcome, h.reason) for h in job.history] == [(1, "expired", "slow")]


@pytest.mark.parametrize("step", ["CollectFiles", "DropBatches", "DropCheckpoint"])
@pytest.mark.parametrize("retain", [1, 2])
def test_a_listed_checkpoint_has_its_files_wherever_dropping_stops(step, retain):
    job = Job(retain=retain)
    for k in (1, 2, 3):
        job.trigger(k)
        job.commit(job.complete(k, k, file="f"))
    job.trigger(4)
    job.commit_until(job.complete(4, 4, file="f"), step)
    for record in job.records.completions().values():
        manifest = job.records.with_store(lambda r, at=record: read_manifest(r.store, at.tables["x"].manifest))
        assert manifest.content.keys() <= job.files("x")


def test_the_newest_checkpoints_are_retained_and_older_ones_dropped():
    job = Job(retain=2)
    for k in (1, 2, 3):
        job.trigger(k)
        job.commit(job.complete(k, k, file="f"))
    records = job.records
    assert records.completions().keys() == {2, 3}
    assert set(records.ids("committed")) == {2, 3}
    assert set(records.ids("triggers")) == {2, 3}
    assert job.files("x") == {"e0000000002-f.parquet", "e0000000003-f.parquet"}
    assert job.view.completed == (2, 3)


def test_the_name_of_a_dropped_checkpoint_of_an_earlier_generation_stays_taken():
    """Its driver may still be about to create it."""
    job = Job()
    job.trigger(1)
    job.commit(job.complete(1, 1))
    job.restart()
    for k in (2, 3):
        job.trigger(k)
        job.commit(job.complete(k, k))
    assert job.records.voids() == {1}
    assert set(job.records.ids("checkpoints")) == {1, 3}


def test_rows_of_a_complete_epoch_in_a_later_batch_are_a_bug():
    job = Job()
    job.trigger(1)
    job.commit(job.complete(1, 0))
    with pytest.raises(ProtocolBugError, match="rows of epoch 1, but checkpoint 1 is complete"):
        job.commit(job.batch(1, [job.stage("a", 1)]))


def test_a_batch_of_another_generation_or_out_of_order_is_a_bug():
    job = Job()
    job.commit(job.batch(3))
    with pytest.raises(ProtocolBugError, match="after batch 3"):
        job.commit(job.batch(2))
    with pytest.raises(ProtocolBugError, match="expected origin 1 and generation 1"):
        job.commit(replace(job.batch(4), generation=2))


def test_finished_inputs_count_for_every_later_checkpoint_across_restarts():
    job = Job()
    for k in (1, 2):
        job.trigger(k)
    job.commit(replace(job.complete(1, 0), barriers={}, finished={1: 1}))
    assert job.view.last.checkpoint == 1
    job.restart()
    job.commit(replace(job.complete(2, 1), barriers={}))
    assert job.view.last.checkpoint == 2


def test_of_two_records_of_a_batch_the_newest_generations_counts():
    job = Job()
    job.commit(job.batch(0, [job.stage("a", 1)], job.acks(1)))
    job.restart()
    again = job.batch(0, [job.stage("b", 1)])
    job.records.put("batches", again.name, again)
    view = job.rebuilt()
    assert [c.data for c in view.open[0].staged] == [b"b"]
    assert [c.data for c in view.garbage] == [b"a"]
    assert not view.pending


# --- a driver believed dead that moves on -------------------------------------------------------------------


def test_a_fenced_driver_whose_trigger_was_dropped_is_told_that_it_is_fenced():
    job = Job()
    job.records.put("generations", 2, GenerationRecord(2, 2, "elsewhere", None, 0, TOPOLOGY))
    with pytest.raises(FencedError, match="expected generation 1 to be the newest, found 2; another query runs"):
        job.commit(job.complete(1, 0, [job.stage("a", 1)]))


def test_a_fenced_driver_whose_staged_rows_are_gone_is_told_that_it_is_fenced():
    job = Job()
    job.trigger(1)
    record = job.complete(1, 0, [job.stage("a", 1)])
    job.world.stop_at = "before CommitSink"
    with pytest.raises(Crash):
        job.commit(record)
    job.sink.refused["job", "append", 1] = 0
    job.records.put("generations", 2, GenerationRecord(2, 2, "elsewhere", None, 0, TOPOLOGY))
    with pytest.raises(FencedError):
        job.commit(record)


def test_a_fenced_driver_confirms_nothing():
    """Its successor commits, and may have dropped the checkpoint before this one moves on."""
    job = Job()
    job.trigger(1)
    steps = commit_batch(job.view, job.complete(1, 0, [job.stage("a", 1)]), NOW_MS)
    step = next(steps)
    while type(step).__name__ != "CommitSinks":
        step = steps.send(job.shell(step))
    job.records.put("generations", 2, GenerationRecord(2, 2, "elsewhere", None, 0, TOPOLOGY))
    step = steps.send(job.shell(step))
    assert type(step).__name__ == "ReadNewestGeneration"
    with pytest.raises(FencedError):
        steps.send(job.shell(step))
    assert job.records.ids("committed") == []
    assert job.history == []


# --- time, requests, and drivers that were halted --------------------------------------------------------------


def test_a_checkpoint_that_is_acknowledged_too_late_does_not_complete():
    job = Job(tolerable=1)
    job.options["timeout_ms"] = NOW_MS - 4_000 - 1
    job.view = job.rebuilt()
    job.trigger(1)
    job.commit(job.complete(1, 0, [job.stage("a", 1)]))
    (gone,) = job.records.aborted()
    assert (gone.cause, gone.checkpoint) == ("expired", 1)
    assert not job.records.completions()
    job.options["timeout_ms"] = NOW_MS - 4_000
    job.view = job.rebuilt()
    job.trigger(2)
    job.commit(job.complete(2, 1))
    assert list(job.records.completions()) == [2], "not at its timeout; what the late one staged is in it"
    assert [c.data for c in job.records.completions()[2].committables] == [b"a"]


def halted(job, record, step):
    """The driver stops right before ``step`` and is believed dead; what it does when it goes on."""
    steps = commit_batch(job.view, record, NOW_MS)
    asked = next(steps)
    while type(asked).__name__ != step:
        asked = steps.send(job.shell(asked))

    def go_on():
        nonlocal asked
        while True:
            asked = steps.send(job.shell(asked))

    return go_on


@pytest.mark.parametrize("why", ["late", "lost"])
def test_a_checkpoint_that_a_start_gives_up_is_not_completed_by_the_driver_before_it(why):
    job = Job(tolerable=1)
    job.trigger(1)
    older = halted(job, job.complete(1, 0, [job.stage("a", 1)]), "CreateCompletion")
    if why == "late":
        job.options["timeout_ms"] = 1
    else:
        job.records.delete("triggers", 1)
    job.restart()
    job.commit(job.complete(1, 0, [job.stage("b", 1)]))
    with pytest.raises(FencedError, match="found it owned by generation 2"):
        older()
    assert not job.sink.committed
    job.options["timeout_ms"] = None
    job.view = job.rebuilt()
    job.trigger(2)
    job.commit(job.complete(2, 1))
    assert job.sink.committed == {b"b"}


def test_a_checkpoint_that_the_driver_before_completes_first_is_not_given_up():
    job = Job(tolerable=1)
    job.trigger(1)
    first = job.complete(1, 0, [job.stage("a", 1)])
    older = halted(job, first, "CreateCompletion")
    job.options["timeout_ms"] = 1
    job.restart()
    late = job.complete(1, 0, [job.stage("b", 1)])
    newer = halted(job, late, "CreateVoid")
    with pytest.raises(FencedError, match="expected generation 1"):
        older()
    with pytest.raises(FencedError, match="start the query again"):
        newer()
    assert job.sink.committed == {b"a"}
    assert not job.records.ids("aborted")


def test_a_checkpoint_is_not_late_because_nobody_ran_the_job():
    job = Job()
    job.options |= {"timeout_ms": 1_000, "started_ms": NOW_MS - 1_000}
    job.view = job.rebuilt()
    job.trigger(1)
    job.commit(job.complete(1, 0))
    assert list(job.records.completions()) == [1]


def test_too_many_late_checkpoints_end_the_query():
    job = Job()
    job.options["timeout_ms"] = 1
    job.view = job.rebuilt()
    job.trigger(1)
    with pytest.raises(CheckpointFailedError, match="tolerableFailures"):
        job.commit(job.complete(1, 0))


@pytest.mark.parametrize("target", [THERE, UNWRITABLE])
def test_whoever_asked_is_answered_before_the_checkpoint_is_confirmed(target):
    job = Job()
    trigger = TriggerRecord(1, "savepoint", 4_000, "request", target, False, "r1", 1)
    job.records.put("triggers", 1, trigger)
    job.commit(job.complete(1, 0))
    assert job.steps.index("AnswerRequest") < job.steps.index("WriteCommitted")
    assert job.answers["r1"].checkpoint == 1
    assert (job.answers["r1"].error is None) == (target == THERE)


def test_stopped_between_the_answer_and_its_confirmation_it_is_answered_again_the_same():
    job = Job()
    job.records.put("triggers", 1, TriggerRecord(1, "savepoint", 4_000, "request", THERE, False, "r1", 1))
    job.commit_until(job.complete(1, 0), "WriteCommitted")
    job.commit(job.complete(1, 0))
    assert job.answers == {"r1": Answer(1)}
    assert 1 in job.records.ids("committed")


def test_the_first_reason_for_an_abort_stays():
    job = Job()
    for k in (1, 2):
        job.trigger(k)
    job.commit(job.batch(0, events=job.acks(1)))
    job.records.put("aborted", 1, AbortedRecord(1, "withdrawn", "nobody waits", 1, 1))
    job.commit(job.complete(2, 1))
    assert [a.cause for a in job.records.aborted()] == ["withdrawn"]


def test_what_an_older_driver_completed_while_this_one_started_is_not_taken_as_replayed():
    job = Job()
    job.trigger(1)
    job.commit_until(job.complete(1, 0), "WriteCommitted")
    job.options["adopt"] = None  # it was created right after this start had looked
    job.view = job.rebuilt()
    with pytest.raises(FencedError, match="start the query again"):
        job.commit(job.complete(1, 0))


# --- storage that fails ------------------------------------------------------------------------------------------


class FailingShell(Shell):
    """Answers steps of the kinds in ``failing`` with ``StorageFailed``; those in ``lost`` after it did them."""

    failing, lost = (), ()

    def _execute(self, step):
        name = type(step).__name__
        if name in self.failing:
            return StorageFailed("no space")
        result = super()._execute(step)
        return StorageFailed("no answer") if name in self.lost else result

    def again(self, generation):
        made = super().again(generation)
        made.failing, made.lost = self.failing, self.lost
        return made


def failing_job(tolerable=9, failing=(), lost=(), **options):
    job = Job(tolerable=tolerable, **options)
    job.shell = FailingShell(job, TOPOLOGY, generation=1)
    job.shell.failing, job.shell.lost = failing, lost
    return job


def test_state_that_cannot_be_committed_fails_the_checkpoint_and_the_next_one_takes_it_over():
    job = failing_job(failing=("CommitState",))
    job.trigger(1)
    job.commit(job.complete(1, 0, [job.stage("a", 1)], file="f"))
    (gone,) = job.records.aborted()
    assert (gone.cause, gone.reason) == ("failed", "the state of 'x' was not committed: no space")
    assert job.history[-1].outcome == "failed"
    assert not job.records.completions()
    job.shell.failing = ()
    job.trigger(2)
    record = job.complete(2, 1, [job.stage("b", 2)])
    ack = OperatorAck("x", 2, 0, {0: GroupManifest((Run("e0000000001-f.parquet", 0, 1, 1),), 1)}, {})
    job.commit(replace(record, events=(SourceAck("a", 2, {}), ack)))
    assert job.sink.committed == {b"a", b"b"}
    assert job.in_table("x") == {"e0000000001-f.parquet"}
    assert not job.view.failures.failed


@pytest.mark.parametrize("step", ["CommitState", "CreateCompletion"])
def test_the_query_ends_with_the_last_cause_after_more_failures_than_are_tolerated(step):
    job = failing_job(tolerable=2, failing=(step,))
    for k in (1, 2):
        job.trigger(k)
        job.commit(job.complete(k, k - 1))
    job.trigger(3)
    with pytest.raises(CheckpointFailedError, match=r"found 3, the last one 3: .*no space"):
        job.commit(job.complete(3, 2))
    assert [a.cause for a in job.records.aborted()] == ["failed"] * 3


def test_a_checkpoint_that_fails_is_not_completed_by_the_driver_before():
    job = failing_job(failing=("CommitState",))
    job.trigger(1)
    job.shell.failing = ()
    older = halted(job, job.complete(1, 0, [job.stage("a", 1)]), "CreateCompletion")
    job.restart()
    job.shell.failing = ("CommitState",)
    job.commit(job.complete(1, 0, [job.stage("b", 1)]))
    job.shell.failing = ()
    with pytest.raises(FencedError, match="found it owned by generation 2"):
        older()
    job.trigger(2)
    job.commit(job.complete(2, 1))
    assert job.sink.committed == {b"b"}


def test_a_completion_that_may_have_been_created_is_made_impossible():
    job = failing_job(failing=("CreateCompletion",))
    job.trigger(1)
    job.commit(job.complete(1, 0, [job.stage("a", 1)]))
    assert isinstance(job.records.get("checkpoints", 1), VoidRecord)
    assert not job.sink.committed
    job.shell.failing = ()
    job.trigger(2)
    job.commit(job.complete(2, 1))
    assert job.sink.committed == {b"a"}


def test_a_completion_whose_answer_was_lost_stands():
    job = failing_job(lost=("CreateCompletion",))
    job.trigger(1)
    job.commit(job.complete(1, 0, [job.stage("a", 1)]))
    assert list(job.records.completions()) == [1]
    assert job.sink.committed == {b"a"}
    assert not job.records.ids("aborted")


@pytest.mark.parametrize("step", ["CreateVoid", "WriteAborted", "AppendHistory"])
def test_stopped_while_a_checkpoint_fails_it_is_settled_by_the_replay(step):
    job = failing_job(failing=("CreateCompletion",))
    job.trigger(1)
    record = job.complete(1, 0, [job.stage("a", 1)])
    job.commit_until(record, step)
    job.shell.failing = ()
    job.commit(replace(record, generation=2))
    void = step != "CreateVoid"
    assert (1 in job.view.aborted) == void
    assert bool(job.records.completions()) == (not void)
    assert job.sink.committed == (set() if void else {b"a"})


def test_a_fenced_driver_whose_files_are_gone_is_told_so_and_fails_nothing():
    job = failing_job(failing=("CommitState",))
    job.trigger(1)
    record = job.complete(1, 0)

    def fenced_meanwhile(step):
        job.records.put("generations", 2, GenerationRecord(2, 1, "spark", None, 0, TOPOLOGY))
        return StorageFailed("no such file")

    job.shell.failing, job.shell._CommitState = (), fenced_meanwhile
    with pytest.raises(FencedError):
        job.commit(record)
    assert not job.records.ids("aborted")


def test_older_ones_do_not_wait_behind_one_that_failed():
    job = failing_job(failing=("CommitState",))
    job.trigger(1)
    job.trigger(2)
    one, two = job.complete(1, 0), job.complete(2, 0)
    job.commit(replace(one, events=(*one.events, *two.events), barriers={1: 1, 2: 1}))
    assert [(a.checkpoint, a.cause) for a in job.records.aborted()] == [(1, "subsumed"), (2, "failed")]
    assert "2 behind it failed" in job.records.get("aborted", 1).reason


def test_what_cannot_be_cleaned_up_fails_nothing_and_is_tried_again():
    clean_up = ("DropCheckpoint", "CollectFiles", "DropBatches", "AppendHistory", "AbortSink")
    job = failing_job(tolerable=0, failing=clean_up)
    for k in (1, 2, 3):
        job.trigger(k)
        job.commit(job.complete(k, k - 1, [job.stage(f"s{k}", k)]))
    assert list(job.records.completions()) == [1, 2, 3]
    assert job.view.completed == (1, 2, 3)
    assert job.sink.committed == {b"s1", b"s2", b"s3"}
    job.shell.failing = ()
    job.trigger(4)
    job.commit(job.complete(4, 3))
    assert list(job.records.completions()) == [4]
    assert job.view.completed == (4,)
    assert list(job.records.ids("committed")) == [4]
    assert [b.batch for b in job.records.batches()] == [3]


def test_the_files_of_a_checkpoint_that_could_not_be_dropped_stay():
    job = failing_job(tolerable=0, failing=("DropCheckpoint",))
    for k in (1, 2, 3):
        job.trigger(k)
        job.commit(job.complete(k, k - 1, file=f"f{k}") if k == 1 else job.complete(k, k - 1))
    assert list(job.records.completions()) == [1, 2, 3], "all can be restored"
    assert "e0000000001-f1.parquet" in job.files("x")
    job.shell.failing = ()
    job.trigger(4)
    job.commit(job.complete(4, 3))
    assert not job.files("x")


def test_staged_leftovers_that_cannot_be_aborted_are_aborted_later():
    job = failing_job(failing=("AbortSink",))
    job.commit(job.batch(0, [job.stage("old", 1)]))
    job.commit(job.batch(0, [job.stage("new", 1)]))
    assert {c.data for c in job.view.garbage} == {b"old"}
    assert b"old" in job.sink.staged
    job.shell.failing = ()
    job.commit(job.batch(1))
    assert not job.view.garbage
    assert set(job.sink.staged) == {b"new"}


def test_rows_without_an_epoch_are_of_the_oldest_open_checkpoint_though_others_sent_a_newer_barrier_ahead():
    job = Job()
    job.trigger(1)
    ahead = replace(job.batch(0, [replace(job.stage("s1", 1), epoch=BEFORE_BARRIERS)]), barriers={2: 1})
    assert [c.epoch for c in labelled(job.view, ahead).staged] == [1]


def test_rows_without_an_epoch_are_of_the_barrier_in_their_batch_or_of_the_open_checkpoint():
    job = Job()
    job.trigger(1)
    told = job.complete(1, 0, [replace(job.stage("s1", 1), epoch=BEFORE_BARRIERS)])
    first = labelled(job.view, told)
    assert [c.epoch for c in first.staged] == [1]
    job.commit(first)
    assert job.sink.committed == {b"s1"}
    open_ = labelled(job.view, job.batch(1, [replace(job.stage("s2", 2), epoch=BEFORE_BARRIERS)]))
    assert [c.epoch for c in open_.staged] == [2]
    job.restart()
    assert labelled(job.view, told) == first, "a replay says the same, though its checkpoint is complete by now"
    kept = job.batch(1, [job.stage("s3", 5)])
    assert labelled(job.view, kept) == kept


def test_sinks_may_forget_what_is_older_than_all_that_a_start_may_commit_again():
    """A damaged record counts: a good copy of it may come back."""
    view = JobView("job", TOPOLOGY, 1, 1, completed=(3, 5))
    assert view.oldest == 3
    assert replace(view, unread=frozenset({2})).oldest == 2
    assert replace(view, completed=()).oldest is None, "not known"
