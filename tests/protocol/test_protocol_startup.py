"""A start settles what earlier generations left, and shuts them out, wherever it or they are stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.errors import ConfigError, FencedError, InvalidInputError, TopologyError
from spark_ckpt.jobs._savepoints import record_complete
from spark_ckpt.protocol.records import (
    REFUSED,
    AcceptedRecord,
    BatchRecord,
    CommittedRecord,
    CompletionRecord,
    GenerationRecord,
    Shown,
    TableRef,
    Topology,
    TriggerRecord,
    VoidRecord,
)
from spark_ckpt.protocol.recovery import GoOn, RestoreFrom, StartFresh, as_savepoint
from spark_ckpt.protocol.rewriting import Rescale, rewritten
from spark_ckpt.protocol.source_starts import Moved, starts_at
from spark_ckpt.protocol.startup import start_job
from spark_ckpt.storage.job_paths import JobPaths
from spark_ckpt.types import Committable, Epoch
from tests.protocol.stepwise import Crash, Location, Shell, Stepwise

TOPOLOGY = Topology(1, 1, ("source0",), {}, ("append",))


class Folder(Stepwise):
    """A job that completed checkpoint 1 at spark0 in generation 1, with checkpoint 2 under way."""

    def __init__(self):
        super().__init__()
        r = self.records
        self.done = CompletionRecord(
            1, "checkpoint", 1, 1, 0, 1, {"source0": {}}, {}, (self.stage("done", 1),), TOPOLOGY, 0, 0
        )
        r.put("generations", 1, GenerationRecord(1, 1, "spark0", None, 0, TOPOLOGY))
        r.put("checkpoints", 1, self.done)
        r.put("triggers", 1, self.trigger(1))
        r.put("triggers", 2, self.trigger(2))
        batch = BatchRecord(1, 1, 1, (self.stage("open", 2),))
        r.put("batches", batch.name, batch)

    def trigger(self, checkpoint, generation=1):
        return TriggerRecord(checkpoint, "checkpoint", 0, "interval", None, False, None, generation)

    def start(self, location="spark1", topology=TOPOLOGY, offsets=None, shell=None):
        number = max(self.records.ids("generations"), default=0) + 1
        claim = GenerationRecord(number, 0, f"simulated://{location}", None, 0, topology)
        shell = shell or Shell(self, topology, Location(location, offsets or {}))
        return self.run(start_job("job", claim, 7), shell)


def test_a_restore_shuts_older_drivers_out_then_commits_and_cleans_up():
    job = Folder()
    started = job.start()
    assert isinstance(started.decision, RestoreFrom)
    assert (started.generation.origin, started.generation.restored_from) == (2, 1)
    assert job.steps == [
        "CreateGeneration", "ReadStartFacts", "ReadSinks", "CreateVoid", "WriteGeneration", "ReadNewestGeneration",
        "CommitSinks", "CommitSink", "ReadNewestGeneration", "WriteCommitted", "AppendHistory", "AbortSink",
        "WriteAborted", "DropBatches",
    ]  # fmt: skip
    assert job.records.voids() == {2}
    assert job.sink.committed == {b"done"}
    assert not job.sink.staged
    assert job.records.get("aborted", 2).cause == "lost"
    assert not job.records.batches()


def test_going_on_leaves_open_transactions_alone():
    job = Folder()
    started = job.start("spark0", offsets={1: {"source0": {"origin": 1}}})
    assert isinstance(started.decision, GoOn)
    assert started.generation.origin == 1
    assert b"open" in job.sink.staged
    assert not job.records.voids()
    assert job.sink.committed == {b"done"}
    assert started.inherited == (2,), "what was open goes on"


@pytest.mark.parametrize(
    "step",
    ["ReadStartFacts", "ReadSinks", "CreateVoid", "WriteGeneration", "CommitSink", "WriteCommitted", "AbortSink",
     "WriteAborted", "DropBatches"],
)  # fmt: skip
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_start_stopped_anywhere_is_done_by_the_next(step, when):
    job = Folder()
    job.world.stop_at = f"{when} {step}"
    with pytest.raises(Crash):
        job.start()
    started = job.start()
    assert isinstance(started.decision, RestoreFrom)
    assert (started.generation.generation, started.generation.origin) == (3, 3)
    assert job.sink.committed == {b"done"}
    assert not job.sink.staged
    assert not job.records.batches()


class Changed(Shell):
    """Spark's part of a query that is another one than that at the location begins at ``spark-<generation>``."""

    def _facts(self, generation):
        return replace(super()._facts(generation), may_move=True)

    def _ChooseLocation(self, step):
        return f"simulated://spark-{step.generation}"


CHANGED = replace(TOPOLOGY, sources=("source1", "source0"))


def changed(job):
    here = Location("spark0", {1: {"source0": {"origin": 1}}})
    return job.start("spark0", CHANGED, shell=Changed(job, CHANGED, here))


def test_a_changed_query_begins_at_a_location_of_its_own_from_the_newest_checkpoint():
    job = Folder()
    started = changed(job)
    record = started.generation
    assert (record.origin, record.restored_from) == (2, 1)
    assert (record.spark_location, record.given_location) == ("simulated://spark-2", "simulated://spark0")
    assert job.records.get("generations", 2) == record
    assert (job.sink.committed, set(job.sink.staged)) == ({b"done"}, set())
    assert job.records.voids() == {2}


@pytest.mark.parametrize("step", ["ChooseLocation", "WriteGeneration", "CommitSink", "AbortSink", "DropBatches"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_changed_start_stopped_anywhere_is_done_by_the_next(step, when):
    """Which looks where the one before went."""
    job = Folder()
    job.world.stop_at = f"{when} {step}"
    with pytest.raises(Crash):
        changed(job)
    left = job.records.get("generations", 2)
    if left.given_location:
        there = left.spark_location.removeprefix("simulated://")
        started = job.start(there, CHANGED, shell=Changed(job, CHANGED, Location(there)))
    else:
        started = changed(job)
    assert (started.generation.origin, started.generation.restored_from) == (3, 1)
    assert (job.sink.committed, set(job.sink.staged)) == ({b"done"}, set())
    assert not job.records.batches()


class Elsewhere(Shell):
    """Its source has another uid, and is to begin elsewhere."""

    def _facts(self, generation):
        return replace(super()._facts(generation), migrations=(Moved("source0", "moved"),))

    def _BringSources(self, step):
        assert step.moved == {"moved": "source0"}

    def _FindOffsets(self, step):
        return {uid: {"found": asked} for uid, asked in step.asked.items()}


ELSEWHERE = replace(TOPOLOGY, sources=("moved",), begins={"moved": {"asked": "latest"}})


@pytest.mark.parametrize("step", ["BringSources", "FindOffsets", "WriteGeneration"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_source_that_is_sent_elsewhere_begins_there_wherever_the_start_is_stopped(step, when):
    job, shell = Folder(), Elsewhere
    job.world.stop_at = f"{when} {step}"
    with pytest.raises(Crash):
        job.start(topology=ELSEWHERE, shell=shell(job, ELSEWHERE, Location("spark1")))
    started = job.start(topology=ELSEWHERE, shell=shell(job, ELSEWHERE, Location("spark1")))
    assert starts_at(started.generation.topology, "moved", job.done) == {"inner": {"found": "latest"}}


def test_an_offset_that_is_none_binds_no_later_start():
    job = Folder()

    class Refusing(Elsewhere):
        def _FindOffsets(self, step):
            raise ConfigError("no offset")

    with pytest.raises(ConfigError):
        job.start(topology=ELSEWHERE, shell=Refusing(job, ELSEWHERE, Location("spark1")))
    assert job.records.get("generations", 2).origin == REFUSED
    assert isinstance(job.start("spark0", offsets={1: {"source0": {"origin": 1}}}).decision, GoOn)


class Anew(Shell):
    """Its state is to be written anew, which takes no time here."""

    def _RewriteState(self, step):
        anew = rewritten(step.checkpoint, step.topology, {"u": TableRef(0, "m")})
        made = replace(as_savepoint(anew), checkpoint=self.records.newest_id() + 1, tables={})
        record_complete(self.records, made, 7)
        return made


KEYED = replace(TOPOLOGY, operators={"u": {"state": "n int64", "keys": "k string", "made_of": {}, "types": {}}})


class Keyed(Folder):
    def __init__(self):
        super().__init__()
        self.done = replace(self.done, topology=KEYED, shown={"append": Shown(1, 0, "")}, life="life")
        self.records.put("checkpoints", 1, self.done)
        self.asked = replace(KEYED, key_groups=2)

    def go(self):
        class Rescaling(Anew):
            def _facts(self, generation):
                return replace(super()._facts(generation), migrations=(Rescale(),))

        return self.start(topology=self.asked, shell=Rescaling(self, self.asked, Location("spark1")))


@pytest.mark.parametrize("step", ["RewriteState", "WriteGeneration", "CommitSink", "WriteCommitted", "AbortSink"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_start_that_writes_state_anew_is_done_by_the_next_wherever_it_is_stopped(step, when):
    """What waited for the sink is committed once, and no sink is taken for one that was set back."""
    job = Keyed()
    job.world.stop_at = f"{when} {step}"
    with pytest.raises(Crash):
        job.go()
    started = job.go()
    restored = started.decision.checkpoint
    assert restored.checkpoint > 2
    assert restored.shown == {"append": Shown(0, 0, "")}, "what may not be there yet is not expected"
    assert (job.sink.committed, set(job.sink.staged)) == ({b"done"}, set())


def test_a_completion_that_slips_in_before_the_void_is_restored():
    job = Folder()
    slipped = replace(job.done, checkpoint=2, committables=(Committable("append", Epoch(2), b"open"),))
    shell = Shell(job, TOPOLOGY, Location("spark1"))
    create = shell._CreateVoid

    def older_driver_was_quicker(step):
        job.records.create("checkpoints", 2, slipped)
        return create(step)

    shell._CreateVoid = older_driver_was_quicker
    started = job.start(shell=shell)
    assert started.decision.checkpoint.checkpoint == 2
    assert job.sink.committed == {b"done", b"open"}


def test_a_checkpoint_whose_record_is_damaged_is_put_back_from_its_copy_and_restored():
    job = Folder()
    job.records.with_store(lambda r: r.store.replace(JobPaths.copy(1, 1), "checkpoint", job.done.to_json()))
    job.world.disk.put("jobs/job/checkpoints/0000000001.json", b'{"form')
    assert job.start().decision.checkpoint == job.done
    assert job.records.completions() == {1: job.done}


def test_numbers_that_are_taken_are_skipped():
    job = Folder()
    job.records.put("generations", 2, GenerationRecord(2, 0, "spark1", None, 0, TOPOLOGY))
    claim = GenerationRecord(1, 0, "spark1", None, 0, TOPOLOGY)
    shell = Shell(job, TOPOLOGY, Location("spark1"))
    assert job.run(start_job("job", claim, 7), shell).generation.generation == 3


def test_a_still_newer_start_wins():
    job = Folder()
    shell = Shell(job, TOPOLOGY, Location("spark1"))
    read = shell._ReadStartFacts

    def another_starts(step):
        job.records.put("generations", 9, GenerationRecord(9, 0, "spark2", None, 0, TOPOLOGY))
        return read(step)

    shell._ReadStartFacts = another_starts
    with pytest.raises(FencedError, match="expected generation 2 to be the newest, found 9"):
        job.start(shell=shell)
    assert not job.records.voids(), "nothing is decided from what it found"
    assert job.sink.staged.keys() == {b"done", b"open"}


def test_a_trigger_voided_by_a_newer_start_fences():
    job = Folder()
    job.records.put("checkpoints", 3, VoidRecord(3, 9, 0))
    shell = Shell(job, TOPOLOGY, Location("spark1"))
    read = shell._ReadStartFacts
    shell._ReadStartFacts = lambda step: replace(read(step), open_triggers=(3,))
    with pytest.raises(FencedError, match="voided by generation 9"):
        job.start(shell=shell)


def test_a_refused_start_changes_nothing_and_does_not_stand_in_the_way():
    job = Folder()
    with pytest.raises(TopologyError, match="maxParallelism"):
        job.start(topology=replace(TOPOLOGY, key_groups=2))
    assert job.records.get("generations", 2).origin == REFUSED
    assert not job.records.voids()
    assert job.sink.staged.keys() == {b"done", b"open"}
    assert isinstance(job.start("spark0", offsets={1: {"source0": {"origin": 1}}}).decision, GoOn)


def test_a_location_of_another_job_is_a_configuration_error():
    with pytest.raises(ConfigError, match="another job name"):
        Folder().start("spark0", offsets={1: {"source0": {"origin": 99}}})


def test_a_first_start_is_fresh():
    job = Stepwise()
    claim = GenerationRecord(1, 0, "spark0", None, 0, TOPOLOGY)
    started = job.run(start_job("job", claim, 7), Shell(job, TOPOLOGY, Location("spark0")))
    assert started.decision == StartFresh()
    assert (started.generation.origin, started.generation.restored_from) == (1, None)


def test_a_rollback_that_failed_to_start_binds_no_later_start():
    """Its commit of what was left raised: whoever asked was told. One that is stopped there stands."""
    job = Folder()
    second = replace(job.done, checkpoint=2, batch=1, batches_from=2, committables=(job.stage("second", 2),))
    job.records.put("checkpoints", 2, second)
    job.records.put("committed", 1, CommittedRecord(1, 1, 0))
    shell = Shell(job, TOPOLOGY, Location("spark1"))
    shell.restore = 1
    job.sink.refusals, job.sink.targets["job", "append"].ledger[1] = 1.0, (b"done",)
    with pytest.raises(InvalidInputError, match="could not commit it"):
        job.start(shell=shell)
    assert job.records.get("generations", 2).origin == REFUSED
    job.sink.refused.clear()
    job.sink.refusals = 0.0
    assert job.start().decision.checkpoint.checkpoint == 2


# --- sinks and folder that do not belong together -----------------------------------------------------------------


class Committed(Folder):
    """As :class:`Folder`, with checkpoint 1 committed; the sink shows ``newest``."""

    def __init__(self, newest: int) -> None:
        super().__init__()
        self.records.put("committed", 1, CommittedRecord(1, 1, 0))
        self.sink.committed.add(b"done")
        self.shows(newest)

    def shows(self, newest: int) -> None:
        self.sink.targets["job", "append"].ledger = {newest: (b"done",)} if newest else {}

    def accept(self, checkpoint: int, known: int = 1, generation: int = 9) -> None:
        record = AcceptedRecord("append", checkpoint, known, 0, generation)
        self.records.with_store(lambda r: r.accept(record))

    def go_on(self):
        return self.start("spark0", offsets={1: {"source0": {"origin": 1}}})

    def looks(self) -> list[str]:
        return [s for s in self.steps if s in ("ReadStartFacts", "ReadSinks", "CreateVoid")]


NOTHING = ("CommitSinks", "CommitSink", "AbortSink", "CreateVoid", "WriteAborted", "DropBatches", "WriteCommitted")


@pytest.mark.parametrize("newest", [0, 5])
@pytest.mark.parametrize("restarted", [True, False])
def test_a_sink_that_is_behind_or_ahead_is_refused_before_anything_is_committed_or_given_up(newest, restarted):
    job = Committed(newest)
    with pytest.raises(ConfigError, match=r"Nothing was changed\. Ways out:"):
        job.go_on() if restarted else job.start()
    assert not [s for s in job.steps if s in NOTHING]
    assert job.records.get("generations", 2).origin == REFUSED
    job.shows(1)
    assert isinstance(job.start().decision, RestoreFrom), "the newer copy was put back"


def test_what_an_older_driver_completes_while_a_start_looks_is_no_sink_ahead():
    job = Committed(1)
    shell = Shell(job, TOPOLOGY, Location("spark1"))
    ask = shell._ReadSinks

    def older_driver_is_quicker(step):
        if 2 not in job.records.completions():
            job.records.put("checkpoints", 2, replace(job.done, checkpoint=2, committables=()))
            job.records.put("committed", 2, CommittedRecord(2, 1, 0))
            job.shows(2)
        return ask(step)

    shell._ReadSinks = older_driver_is_quicker
    assert job.start(shell=shell).decision.checkpoint.checkpoint == 2
    assert job.looks() == ["ReadStartFacts", "ReadSinks", "ReadStartFacts", "ReadSinks"]


def test_a_start_looks_once_where_sink_and_folder_belong_together():
    job = Committed(1)
    job.go_on()
    assert job.looks() == ["ReadStartFacts", "ReadSinks"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("times", [1, 2])
def test_accepted_a_sink_that_is_ahead_keeps_its_ids_wherever_the_start_is_stopped(when, times):
    job = Committed(5)
    job.accept(5)
    for _ in range(times):
        job.world.stop_at = f"{when} CreateVoid"
        with pytest.raises(Crash):
            job.start()
    started = job.start()
    assert started.decision.checkpoint == job.done
    assert job.records.voids() == {2, 5}, "what is open, and what the sink knows with other rows"
    assert job.records.with_store(lambda r: r.newest_id()) == 5, "the next checkpoint is 6"


def test_accepted_a_sink_that_is_behind_goes_on_from_the_newest_checkpoint():
    job = Committed(0)
    job.accept(0)
    assert job.start().decision.checkpoint == job.done
    assert job.records.voids() == {2}


@pytest.mark.parametrize(
    ("newest", "generation", "goes_on"), [(0, 9, False), (5, 9, False), (0, 0, True), (5, 0, True)]
)
def test_rows_that_were_staged_before_an_accepted_set_back_are_read_again_elsewhere(newest, generation, goes_on):
    """They went with the target, so no sink could ever commit the checkpoint that has them. What a later generation
    staged is there."""
    job = Committed(newest)
    job.accept(newest, generation=generation)
    if goes_on:
        assert isinstance(job.go_on().decision, GoOn)
        assert job.records.voids() == ({2, 5} if newest else set()), "a sink that is ahead knows them with other rows"
        return
    with pytest.raises(ConfigError, match=r"expected another, empty checkpointLocation.* from checkpoint 1"):
        job.go_on()
    assert not [s for s in job.steps if s in NOTHING]
    assert job.start().decision.checkpoint == job.done


def test_going_back_on_purpose_finds_a_sink_that_shows_more():
    job = Committed(2)
    job.records.put("checkpoints", 2, replace(job.done, checkpoint=2, batch=1, committables=()))
    job.records.put("committed", 2, CommittedRecord(2, 1, 0))
    shell = Shell(job, TOPOLOGY, Location("spark1"))
    shell.restore = 1
    assert job.start(shell=shell).decision.checkpoint.checkpoint == 1
