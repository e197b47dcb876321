"""A completed checkpoint that a sink can never take: what is told, and giving it up by hand."""

from __future__ import annotations

import pytest

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.protocol.abandon import decide_abandon
from spark_ckpt.protocol.leftovers import open_committables, split_batches
from spark_ckpt.protocol.records import (
    AbandonedRecord,
    BatchRecord,
    CompletionRecord,
    GenerationRecord,
    Topology,
)
from spark_ckpt.protocol.startup import start_job
from spark_ckpt.protocol.topology import Refuse
from spark_ckpt.types import Committable, Epoch
from tests.protocol.stepwise import Crash, Location, Shell, Stepwise

TOPOLOGY = Topology(1, 1, ("source0",), {}, ("append", "merge"))


class Stuck(Stepwise):
    """Checkpoints 1 and 2 are complete and committed nowhere; sink ``append`` will never take checkpoint 1."""

    def __init__(self):
        super().__init__()
        r = self.records
        r.put("generations", 1, GenerationRecord(1, 1, "spark0", None, 0, TOPOLOGY))
        for k in (1, 2):
            staged = tuple(self.stage(f"{sink}{k}", k, sink) for sink in TOPOLOGY.sinks)
            r.put("checkpoints", k, CompletionRecord(
                k, "checkpoint", 1, 1, k, k + 1, {"source0": {}}, {}, staged, TOPOLOGY, 0, 0
            ))  # fmt: skip
        self.sink.refused["job", "append", 1] = 0

    def decide(self, checkpoint, sink):
        r = self.records
        return decide_abandon(checkpoint, sink, r.completions().values(), r.ids("committed"), 7)

    def abandon(self, checkpoint, sink):
        decided = self.decide(checkpoint, sink)
        assert isinstance(decided, AbandonedRecord), decided
        self.records.put("abandoned", (checkpoint, sink), decided)

    def start(self, topology=TOPOLOGY):
        number = max(self.records.ids("generations")) + 1
        location = f"spark{number}"
        claim = GenerationRecord(number, 0, location, None, 0, topology)
        return self.run(start_job("job", claim, 7), Shell(self, topology, Location(location)))

    @property
    def committed(self):
        return sorted(self.sink.committed)


def test_every_start_says_what_failed_and_the_ways_out():
    job = Stuck()
    for _ in range(2):
        with pytest.raises(InvalidInputError) as told:
            job.start()
        for part in (
            "checkpoint 1 of job 'job' is complete, but its sink 'append' could not commit it: a row breaks a",
            "`spark-ckpt abandon DIR job 1 --sink append`",
            "`spark_ckpt.job(dir, 'job').abandon(1, sink='append')`",
        ):
            assert part in str(told.value)
    assert job.committed == [b"merge1"], "one sink that fails does not keep the others from their rows"


def test_all_sinks_that_failed_are_named():
    job = Stuck()
    job.sink.refused["job", "merge", 1] = 0
    with pytest.raises(InvalidInputError, match=r"its sink 'append' .*; sink 'merge' failed, too: a row breaks a"):
        job.start()


def test_what_was_given_up_is_passed_over_and_the_rest_is_committed():
    job = Stuck()
    with pytest.raises(InvalidInputError):
        job.start()
    job.abandon(1, "append")
    started = job.start()
    assert started.generation.restored_from == 2
    assert job.committed == [b"append2", b"merge1", b"merge2"]
    assert [job.records.get("committed", k).abandoned for k in (1, 2)] == [("append",), ()]
    assert [(h.checkpoint, h.outcome, h.reason) for h in job.history] == [
        (1, "completed", "given up in sink 'append'"),
        (2, "completed", None),
    ]
    job.start()
    assert job.committed == [b"append2", b"merge1", b"merge2"]


@pytest.mark.parametrize("step", ["CommitSink", "ReadNewestGeneration", "WriteCommitted", "AppendHistory"])
def test_a_crash_after_giving_up_commits_the_rest_on_the_next_start(step):
    job = Stuck()
    job.abandon(1, "append")
    job.world.stop_at = f"before {step}"
    with pytest.raises(Crash):
        job.start()
    job.start()
    assert job.committed == [b"append2", b"merge1", b"merge2"]


def test_what_was_given_up_can_be_left_out_of_the_query():
    job = Stuck()
    job.abandon(1, "append")
    job.abandon(2, "append")
    only_merge = Topology(1, 1, ("source0",), {}, ("merge",))
    job.start(only_merge)
    assert job.committed == [b"merge1", b"merge2"]


def test_only_an_open_commit_can_be_given_up():
    job = Stuck()
    job.abandon(1, "append")
    job.start()
    job.records.put("checkpoints", 3, CompletionRecord(
        3, "checkpoint", 1, 1, 3, 4, {"source0": {}}, {}, (job.stage("x", 3, "merge"),), TOPOLOGY, 0, 0
    ))  # fmt: skip
    for checkpoint, sink, why in [
        (9, "append", "there is no completed checkpoint 9; complete and not committed: 3 in 'merge'"),
        (2, "append", "checkpoint 2 is committed in all its sinks"),
        (3, "append", "checkpoint 3 has nothing for a sink 'append'"),
        (3, "no such sink", "checkpoint 3 has nothing for a sink 'no such sink'"),
    ]:
        refused = job.decide(checkpoint, sink)
        assert isinstance(refused, Refuse)
        assert why in refused.reason


# --- what gc may remove ----------------------------------------------------------------------------------------


def batch(origin, number, generation, *staged):
    return BatchRecord(origin, number, generation, tuple(Committable("s", Epoch(e), d) for e, d in staged))


def completion(checkpoint, origin, batches_from, *staged):
    rows = tuple(Committable("s", Epoch(checkpoint), d) for d in staged)
    return CompletionRecord(
        checkpoint, "checkpoint", origin, origin, batches_from - 1, batches_from, {}, {}, rows, TOPOLOGY, 0, 0
    )


def test_a_fenced_drivers_batch_protects_nothing():
    """Generation 1 was halted, 2 restored elsewhere and went on; then 1 moved on and wrote its batch 7."""
    orphan, own = batch(1, 7, 1, (5, b"orphan")), batch(2, 3, 2, (6, b"open"))
    live, dead = split_batches([orphan, own], [completion(4, 1, 7), completion(5, 2, 3)], {1, 2})
    assert (live, dead) == ((own,), (orphan,))
    assert [c.data for c in open_committables(live, [], (), ())] == [b"open"]


def test_an_older_generations_record_of_a_batch_protects_nothing():
    old, new = batch(1, 7, 1, (5, b"old")), batch(1, 7, 2, (5, b"new"))
    settled = batch(1, 6, 1, (5, b"settled"))
    live, dead = split_batches([new, settled, old], [completion(4, 1, 7)], {1, 2})
    assert live == (new,)
    assert sorted(b.name for b in dead) == sorted([old.name, settled.name])


def test_a_batch_whose_generation_is_lost_is_kept():
    """Its record may be put back."""
    lost, own = batch(999, 7, 999, (5, b"lost")), batch(1, 0, 1, (1, b"own"))
    live, dead = split_batches([lost, own], [], {1})
    assert ({b.name for b in live}, dead) == ({lost.name, own.name}, ())


def test_what_was_given_up_is_not_kept():
    done = completion(4, 1, 7, b"given up")
    assert open_committables([], [done], (), {(4, "s")}) == []
    assert [c.data for c in open_committables([], [done], (), {(4, "t")})] == [b"given up"]
    assert open_committables([], [done], {4}, ()) == []
