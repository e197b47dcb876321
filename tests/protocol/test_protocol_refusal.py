"""A sink refuses rows ahead of the completion record: nothing is visible, and the next start reads the epoch again."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from spark_ckpt.errors import RefusedError
from spark_ckpt.jobs.spark_folder import SparkFolder
from spark_ckpt.protocol.damage import Damage
from spark_ckpt.protocol.records import SINK_REFUSED, AbortedRecord, BatchRecord
from spark_ckpt.protocol.recovery import GoOn, RestoreFrom, StartFresh, decide_start
from spark_ckpt.protocol.steps import SinkRefused, Tried
from spark_ckpt.testing.simulation.durable import url
from tests.protocol.stepwise import OPTIONS, Crash, Location, Shell
from tests.protocol.test_protocol_commit import Job
from tests.protocol.test_protocol_recovery import EMPTY, HERE, completion, facts, generation, refused
from tests.protocol.test_protocol_startup import TOPOLOGY as STARTUP_TOPOLOGY
from tests.protocol.test_protocol_startup import Folder

REFUSAL = AbortedRecord(4, SINK_REFUSED, "sink 's' refuses its rows", 0, 1)


class Refusing(Shell):
    """Its sink ``merge`` refuses what it is asked for."""

    def _TrySinks(self, step):
        said = "constraint 'positive' of table t"
        return Tried(tuple(SinkRefused(t.sink, said) for t in step.tries if t.sink == "merge"))


def refusing_job():
    job = Job()
    job.shell = Refusing(job, job.shell.topology, generation=1)
    job.trigger(1)
    job.commit(job.batch(0, [job.stage("a", 1)]))
    return job


def test_a_refused_checkpoint_ends_the_query_is_visible_nowhere_and_never_completes():
    job = refusing_job()
    with pytest.raises(RefusedError, match=r"checkpoint 1 .* sink 'merge' refuses its rows: constraint 'positive'"):
        job.commit(job.complete(1, 1, [job.stage("b", 1, "merge")], file="f"))
    assert not job.sink.committed
    assert not job.records.completions()
    assert job.records.get("aborted", 1).cause == SINK_REFUSED
    assert [h.outcome for h in job.history] == [SINK_REFUSED]


def test_what_is_asked_is_what_the_completion_would_authorise():
    job, asked = refusing_job(), []
    job.shell._TrySinks = lambda step: asked.append(step) or Tried()
    job.commit(job.complete(1, 1, [job.stage("b", 1, "merge"), job.stage("later", 2)], file="f"))
    assert [(t.sink, [c.data for c in t.committables]) for t in asked[0].tries] == [
        ("append", [b"a"]),
        ("merge", [b"b"]),
    ]


def test_a_checkpoint_without_rows_asks_nobody():
    job = Job()
    job.trigger(1)
    job.commit(job.complete(1, 0, file="f"))
    assert "TrySinks" not in job.steps


def test_a_crash_between_the_refusal_and_its_record_is_refused_again_by_the_replay():
    job = refusing_job()
    job.commit_until(job.complete(1, 1, [job.stage("b", 1, "merge")], file="f"), "WriteAborted")
    with pytest.raises(RefusedError):
        job.commit(job.complete(1, 1, [job.stage("c", 1, "merge")], file="g"))
    assert not job.sink.committed


def test_a_fenced_driver_records_no_refusal():
    job = refusing_job()
    answer = job.shell._TrySinks

    def while_another_starts(step):
        job.records.put("generations", 2, generation(2))
        return answer(step)

    job.shell._TrySinks = while_another_starts
    with pytest.raises(Exception, match="expected generation 1 to be the newest"):
        job.commit(job.complete(1, 1, [job.stage("b", 1, "merge")], file="f"))
    assert job.records.get("aborted", 1) is None


# --- the next start --------------------------------------------------------------------------------------------


def test_the_next_start_at_the_same_location_goes_on_from_the_newest_checkpoint_as_if_it_were_empty():
    decision = decide_start(facts(location=HERE, refused=(REFUSAL,)))
    assert isinstance(decision, RestoreFrom)
    assert (decision.checkpoint.checkpoint, decision.gave_up, decision.drop_origins) == (3, 1, (1,))


@pytest.mark.parametrize("restore", ["none", 1])
def test_what_restore_says_counts_at_an_empty_location_only(restore):
    assert decide_start(facts(location=HERE, refused=(REFUSAL,), restore=restore)).checkpoint.checkpoint == 3


def test_a_job_without_a_checkpoint_begins_anew():
    begun = facts(location=HERE, refused=(REFUSAL,), completions=(), committed=frozenset())
    assert isinstance(decide_start(begun), StartFresh)
    assert decide_start(begun).gave_up == 1


def test_an_origin_without_a_checkpoint_goes_on_from_what_it_was_restored_from():
    origins = (generation(1, location="file:/old"), generation(2, restored_from=2))
    batches = (BatchRecord(2, 0, 2),)
    here = replace(HERE, origin=2)
    refusal = replace(REFUSAL, generation=2)
    decision = decide_start(facts(location=here, generations=origins, batches=batches, refused=(refusal,)))
    assert (decision.checkpoint.checkpoint, decision.gave_up) == (2, 2)


def test_a_refusal_that_a_newer_checkpoint_left_behind_changes_nothing():
    assert isinstance(decide_start(facts(location=HERE, refused=(replace(REFUSAL, checkpoint=2),))), GoOn)


def test_a_refusal_of_another_origin_changes_nothing():
    origins = (generation(1), generation(2, restored_from=3, location="file:/b"))
    batches = (BatchRecord(2, 0, 2),)
    at = replace(HERE, path="file:/b", origin=2, planned=0, committed=None)
    decision = decide_start(facts(location=at, generations=origins, batches=batches, refused=(REFUSAL,)))
    assert isinstance(decision, GoOn)


def given_up(**more):
    """Generation 2 decided to give origin 1 up, and was stopped."""
    decided = replace(generation(2, restored_from=3), gave_up=1)
    return facts(generations=(generation(1), decided), refused=(REFUSAL,), **more)


def test_a_start_that_finds_the_location_not_emptied_does_it():
    decision = decide_start(given_up(location=HERE))
    assert (decision.checkpoint.checkpoint, decision.gave_up) == (3, 1)


def test_a_start_that_finds_the_location_emptied_goes_on_as_decided():
    decision = decide_start(given_up(location=replace(EMPTY, path=HERE.path)))
    assert (decision.checkpoint.checkpoint, decision.gave_up) == (3, 1)


def test_an_old_restore_none_does_not_begin_anew_at_a_location_that_we_emptied():
    refused(decide_start(given_up(location=replace(EMPTY, path=HERE.path), restore="none")), "restore=auto", "'none'")


def test_restore_none_at_another_empty_location_begins_anew_also_then():
    assert isinstance(decide_start(given_up(restore="none")), StartFresh)


def test_the_start_after_that_goes_on_at_the_location():
    at = replace(HERE, origin=2, planned=0, committed=None)
    assert isinstance(decide_start(given_up(location=at, batches=(BatchRecord(2, 0, 2),))), GoOn)


def test_a_location_that_is_lost_later_goes_on_from_what_was_completed_there():
    done = (*facts().completions, completion(7, origin=2))
    at = replace(EMPTY, path=HERE.path)
    decision = decide_start(given_up(location=at, completions=done, committed=frozenset({1, 2, 3, 7})))
    assert (decision.checkpoint.checkpoint, decision.gave_up) == (7, None)


def test_a_start_that_cannot_empty_its_location_is_told_to_name_another():
    refused(decide_start(facts(location=HERE, refused=(REFUSAL,), may_empty=False)), "empty checkpointLocation", "'s'")


def test_a_job_that_went_on_elsewhere_is_not_given_up_here():
    origins = (generation(1), generation(2, location="file:/other", restored_from=3))
    refused(decide_start(facts(location=HERE, generations=origins, refused=(REFUSAL,))), "file:/other")


def test_a_lost_newer_checkpoint_is_not_passed_over():
    damage = Damage(checkpoints={5: 1})
    assert refused(decide_start(facts(location=HERE, refused=(REFUSAL,), damage=damage)), "checkpoints/5").damaged


# --- stopped anywhere in that start -----------------------------------------------------------------------------


class Emptying(Shell):
    """Its location has what the disk has, and is emptied as Spark's own is."""

    def _facts(self, generation):
        facts, self.location.offsets = super()._facts(generation), {}
        return facts

    def _EmptyLocation(self, step):
        self._empty_location = SparkFolder(url(self.location.path), OPTIONS).empty
        super()._EmptyLocation(step)


class Restarted(Folder):
    """Checkpoint 2 was refused; the location has the batches of generation 1."""

    def __init__(self):
        super().__init__()
        self.records.put("aborted", 2, replace(REFUSAL, checkpoint=2))
        self.here = Location("spark0", {1: {"source0": {"origin": 1}}})

    def start(self):
        return super().start("spark0", shell=Emptying(self, STARTUP_TOPOLOGY, self.here))


STEPS = ("CreateVoid", "WriteGeneration", "CommitSinks", "WriteCommitted", "EmptyLocation", "AbortSink", "DropBatches")


@pytest.mark.parametrize("where", [f"{when} {step}" for step in STEPS for when in ("before", "after")])
def test_a_start_stopped_anywhere_is_finished_by_the_next_one(where):
    job = Restarted()
    job.world.stop_at = where
    with contextlib.suppress(Crash):
        job.start()
    job.world.stop_at = None
    started = job.start()
    assert isinstance(started.decision, RestoreFrom)
    assert (started.generation.restored_from, started.generation.gave_up) == (1, 1)
    assert not job.world.disk.names("spark0/offsets")
    assert not job.sink.staged
    assert job.sink.committed == {b"done"}
    assert not job.records.batches()
