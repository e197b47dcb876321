"""What a rollback asks for, step by step, and what a start decides behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_ckpt.errors import FencedError, StorageUnavailableError
from spark_ckpt.protocol.records import BatchRecord, CompletionRecord, GenerationRecord, Topology
from spark_ckpt.protocol.recovery import Refuse, RestoreFrom, SparkLocation, StartFacts, decide_start
from spark_ckpt.protocol.rollback import roll_back
from spark_ckpt.protocol.steps import (
    CreateGeneration,
    DropCheckpoint,
    ReadStartFacts,
    SetBackSink,
    StorageFailed,
    WriteGeneration,
)

TOPOLOGY = Topology(4, 4, ("a",), {"x": {"state": "n long", "keys": "k long"}}, ("s", "t"))
FIRST = GenerationRecord(1, 1, "file:/spark", None, 0, TOPOLOGY)
CLAIM = GenerationRecord(2, 0, "file:/spark", None, 0, TOPOLOGY)


def completion(checkpoint: int) -> CompletionRecord:
    return CompletionRecord(checkpoint, "checkpoint", 1, 1, checkpoint, checkpoint + 1, {}, {}, (), TOPOLOGY, 0, 0)


FACTS = StartFacts(
    "auto",
    SparkLocation("file:/spark", 5, 4, 1),
    TOPOLOGY,
    2,
    (FIRST,),
    tuple(completion(k) for k in (1, 2, 3)),
    frozenset({1, 2, 3}),
    (BatchRecord(1, 4, 1),),
)


def driven(checkpoint: int, answers: dict[type, Any]) -> list[Any]:
    """The steps of a rollback of both sinks."""
    steps, coroutine = [], roll_back("job", CLAIM, checkpoint, ("s", "t"), 0)
    answer = None
    while True:
        try:
            steps.append(coroutine.send(answer))
        except StopIteration:
            return steps
        answer = {CreateGeneration: True, ReadStartFacts: FACTS, **answers}.get(type(steps[-1]))


def test_sinks_go_back_before_anything_is_dropped_and_the_record_says_so_in_the_end() -> None:
    steps = driven(1, {})
    kinds = [type(s).__name__ for s in steps if not isinstance(s, (CreateGeneration, ReadStartFacts))]
    assert kinds == ["WriteGeneration", *["SetBackSink"] * 2, *["DropCheckpoint"] * 2, "WriteGeneration"]
    first, last = (s.record for s in steps if isinstance(s, WriteGeneration))
    assert (first.to_set_back, first.restored_from, first.origin) == (("s", "t"), 1, 2)
    assert last == replace(first, to_set_back=())
    assert [s.checkpoint for s in steps if isinstance(s, SetBackSink)] == [1, 1]
    assert [s.checkpoint for s in steps if isinstance(s, DropCheckpoint)] == [3, 2], "the newest first"


def test_a_checkpoint_that_cannot_be_dropped_leaves_the_rollback_unfinished() -> None:
    with pytest.raises(StorageUnavailableError, match=r"checkpoint 3 could not be removed, no space.*Run it again"):
        driven(1, {DropCheckpoint: StorageFailed("no space")})


def test_a_query_that_starts_at_the_same_time_wins() -> None:
    newer = replace(FACTS, generations=(FIRST, replace(FIRST, generation=3, origin=3)))
    with pytest.raises(FencedError, match="expected generation 2 to be the newest, found 3"):
        driven(1, {ReadStartFacts: newer})


def behind(to_set_back: tuple[str, ...], **changes: Any) -> StartFacts:
    rolled = GenerationRecord(2, 2, "file:/spark", 1, 0, TOPOLOGY, to_set_back=to_set_back)
    return replace(FACTS, generation=3, generations=(FIRST, rolled), may_move=True, **changes)


def test_no_start_goes_on_before_it_is_finished_and_then_from_there_at_a_location_of_its_own() -> None:
    decision = decide_start(behind(("t",)))
    assert isinstance(decision, Refuse)
    assert "rollback to checkpoint 1 was begun and is not finished" in decision.reason
    decision = decide_start(behind(()))
    assert isinstance(decision, RestoreFrom)
    assert (decision.checkpoint.checkpoint, bool(decision.changed)) == (1, True)
    empty = decide_start(behind((), location=SparkLocation("file:/new")))
    assert isinstance(empty, RestoreFrom)
    assert empty.checkpoint.checkpoint == 1


def test_where_the_query_cannot_move_its_batches_are_refused_behind_a_rollback() -> None:
    decision = decide_start(replace(behind(()), may_move=False))
    assert isinstance(decision, Refuse)
    assert "rolled back to checkpoint 1" in decision.reason
