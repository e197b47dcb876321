"""When a barrier counts as lost: from what the sink recorded, and nothing else."""

from __future__ import annotations

import pytest

from spark_ckpt.protocol.events import Event, GroupManifest, OperatorAck, SourceAck
from spark_ckpt.protocol.lost_barriers import LostBefore, LostHere, OnItsWay, judge_barrier
from spark_ckpt.protocol.records import BatchRecord


def _batch(number: int, *events: Event) -> BatchRecord:
    return BatchRecord(1, number, 1, (), events)


def _ack(source: str, checkpoint: int) -> SourceAck:
    return SourceAck(source, checkpoint, {})


A5, B5, A4 = _ack("a", 5), _ack("b", 5), _ack("a", 4)


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([], LostHere),
        ([_batch(1, A4)], LostHere),
        ([_batch(1, A4), _batch(2, A5)], OnItsWay),
        ([_batch(1, A5), _batch(2, B5)], LostHere),
        ([_batch(1, B5)], LostHere),
    ],
)
def test_a_source_misses_its_own_acknowledgement_or_knows_that_all_were_there(
    batches: list[BatchRecord], expected: type
) -> None:
    assert isinstance(judge_barrier(5, "a", ["a", "b"], sent=True, batches=batches), expected)


def test_what_an_earlier_generation_lost_is_given_up_and_not_held_against_this_one() -> None:
    assert isinstance(judge_barrier(5, "a", ["a"], sent=False, batches=[]), LostBefore)
    assert isinstance(judge_barrier(5, "a", ["a", "b"], sent=False, batches=[_batch(1, A5, B5)]), LostBefore)
    assert isinstance(judge_barrier(5, "a", ["a", "b"], sent=False, batches=[_batch(1, A5)]), OnItsWay)


def test_the_reason_names_the_source_or_the_operators_that_have_seen_the_barriers() -> None:
    lost = judge_barrier(5, "a", ["a"], sent=True, batches=[])
    assert isinstance(lost, LostHere)
    assert "checkpoint 5 that source 'a' sent" in lost.reason
    part = judge_barrier(
        5, "a", ["a"], sent=True, batches=[_batch(1, A5, OperatorAck("t", 5, 0, {0: GroupManifest()}))]
    )
    assert isinstance(part, LostHere)
    assert "in part only (operators ['t'] have seen them)" in part.reason
