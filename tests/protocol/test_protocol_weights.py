"""Weights add up in one place, the same in whatever order barriers and ends come."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import spark_ckpt
from spark_ckpt.protocol.events import Barrier, Cancel, Decline, Finished, Flushed, RowsRead, SourceAck, TimeSeen
from spark_ckpt.protocol.reports import Reports
from spark_ckpt.protocol.weights import Arrivals, batch_record, ended_before, split
from spark_ckpt.types import Committable, Epoch

ROOT = Path(spark_ckpt.__file__).parent

EVENTS = [
    Barrier(3, 4, 100), Barrier(4, 1, 200), Barrier(3, 2, 100, drain=True), Finished(5, 3), Finished(1, 3),
    Finished(2, 5), Cancel(2), Cancel(2),
]  # fmt: skip


def test_the_order_of_what_arrives_means_nothing():
    for events in itertools.permutations(EVENTS):
        found = Arrivals(events)
        assert found.barriers == {3: Barrier(3, 6, 100, drain=True), 4: Barrier(4, 1, 200)}
        assert (found.finished, found.cancels) == ({3: 6, 5: 2}, {2})


def test_what_was_folded_before_folds_to_the_same():
    once = Arrivals(EVENTS)
    half = len(EVENTS) // 2
    twice = Arrivals([*Arrivals(EVENTS[:half]).events(), *Arrivals(EVENTS[half:]).events()])
    assert once.events() == twice.events()
    assert not once.add(RowsRead("a", 1))


@given(st.integers(0, 500), st.integers(1, 60))
def test_the_parts_of_a_weight_sum_up_to_it_and_differ_by_one_at_most(weight, parts):
    found = split(weight, parts)
    assert len(found) == parts
    assert sum(found) == weight
    assert max(found) - min(found) <= 1


def test_an_ended_input_counts_from_its_label_on():
    assert [ended_before(k, {3: 6, 5: 2}.items()) for k in (2, 3, 4, 5)] == [0, 6, 6, 8]


def test_a_batch_record_has_what_decides_and_sums_of_the_rest():
    ack, flushed, decline = SourceAck("a", 3, {}), Flushed("u", 3, (), {}), Decline("u", 3, "why")
    staged = [Committable("sink", Epoch(3), b"x")]
    events = [*EVENTS, ack, flushed, decline, RowsRead("a", 2), RowsRead("a", 3)]
    record = batch_record(7, 9, 8, staged, events)
    assert (record.origin, record.batch, record.generation, record.staged) == (7, 9, 8, tuple(staged))
    assert record.events == (Cancel(2), Cancel(2), ack, flushed, decline)
    assert (record.barriers, record.finished) == ({3: 6, 4: 1}, {3: 6, 5: 2})
    assert (record.rows, record.times) == ({9: {"a": 5}}, {9: ()})


REPORTS = [
    RowsRead("b", 2), TimeSeen("u", 30, 1), RowsRead("a", 3), TimeSeen("u", 20, 4), TimeSeen("v", None, 2),
    TimeSeen("v", None, 5), RowsRead("b", 1), TimeSeen("u", None, 0),
]  # fmt: skip


def test_reports_are_folded_in_any_order_and_those_that_were_folded_before():
    """Rows are added up; the time is that of the subtask where it is earliest."""
    once = [RowsRead("a", 3), RowsRead("b", 3), TimeSeen("u", 20, 5), TimeSeen("v", None, 7)]
    assert Reports(REPORTS).events() == Reports(reversed(REPORTS)).events() == once
    assert Reports([*Reports(REPORTS[:4]).events(), *Reports(REPORTS[4:]).events()]).events() == once
    assert batch_record(7, 9, 8, [], REPORTS).times == {9: (TimeSeen("u", 20, 5), TimeSeen("v", None, 7))}
    assert not Reports().add(Cancel(2))


def test_nobody_else_adds_weights_up():
    """Besides those who remember them from batch to batch."""
    may = {"weights.py", "aligner.py", "pending.py"}
    for path in ROOT.rglob("*.py"):
        used = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute) and n.attr == "weight"]
        assert not used or path.name in may, f"{path}:{used[0].lineno} looks at a weight"
