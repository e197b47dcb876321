"""What a job committed in its sinks, as its records carry it, against what the sinks show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.protocol.records import AcceptedRecord, CompletionRecord, Shown, Topology
from spark_ckpt.protocol.recovery import as_savepoint
from spark_ckpt.protocol.setback import (
    SetBack,
    SinkFound,
    is_accepted,
    moved,
    refuse_set_back,
    set_back,
    shown_after,
    shown_by,
    waits_elsewhere,
)
from spark_ckpt.types import Committable, Epoch

TOPOLOGY = Topology(1, 1, ("source0",), {}, ("a", "b"))


def record(k: int, shown: dict[str, Shown] | None = None, sinks: tuple[str, ...] = ()) -> CompletionRecord:
    staged = tuple(Committable(s, Epoch(k), b"x") for s in sinks)
    return CompletionRecord(
        k, "checkpoint", 1, 1, k, k + 1, {}, {}, staged, TOPOLOGY, 0, 0, life="life", shown=shown or {}
    )


SEVEN = record(7, {"a": Shown(7, 5, "at"), "b": Shown(3, 2, "bt")})


@pytest.mark.parametrize(
    ("confirmed", "abandoned", "expected"),
    [
        (True, (), {"a": (7, "at"), "b": (3, "bt")}),
        (False, (), {"a": (5, "at"), "b": (3, "bt")}),
        (True, ((7, "a"),), {"a": (5, "at"), "b": (3, "bt")}),
        (True, ((3, "b"),), {"a": (7, "at"), "b": (3, "bt")}),
    ],
)
def test_only_what_is_confirmed_and_was_not_given_up_is_expected(confirmed, abandoned, expected):
    """What was given up of an older checkpoint is settled in the records behind it."""
    assert shown_by(SEVEN, "life", confirmed, abandoned) == expected


def test_each_record_carries_on_what_the_one_before_it_says():
    shown = shown_after(shown_by(SEVEN, "life", True), 9, ["b", "c"], {"b": "elsewhere", "c": "ct"})
    assert shown == {"a": Shown(7, 0, "at"), "b": Shown(9, 3, "elsewhere"), "c": Shown(9, 0, "ct")}


def test_a_record_of_an_older_release_tells_of_its_own_rows():
    assert shown_by(record(7, sinks=("a",)), "life", True) == {"a": (7, "")}
    assert shown_by(record(7, sinks=("a",)), "life", False) == {"a": (0, "")}


def test_a_savepoint_counts_in_the_life_that_it_is_of():
    imported = replace(as_savepoint(SEVEN), checkpoint=20)
    assert shown_by(imported, "life", True) == {"a": (7, "at"), "b": (3, "bt")}
    assert shown_by(imported, "another", True) == {}
    assert shown_by(replace(imported, life=""), "", True) == {}, "it may be another job's"
    assert shown_by(None, "life", True) == {}


EXPECTED = {"a": (7, "at")}


@pytest.mark.parametrize(
    ("newest", "target", "found"),
    [
        (7, "at", None),
        (8, "at", None),  # complete, and not confirmed
        (9, "at", SetBack("a", "at", 9, 8)),
        (6, "at", SetBack("a", "at", 6, 7)),
        (0, "at", SetBack("a", "at", 0, 7)),
        (0, "elsewhere", None),
        (6, "elsewhere", SetBack("a", "elsewhere", 6, 7)),  # a dump of before, on another host
        (0, "", SetBack("a", "", 0, 7)),
        (None, "at", None),
    ],
)
def test_a_sink_shows_what_was_committed_or_what_is_complete_and_nothing_else(newest, target, found):
    there = {"a": SinkFound(newest, target)}
    assert set_back(EXPECTED, 8, there) == (() if found is None else (found,))
    assert set_back({}, 8, {"a": SinkFound(0, target)}) == (), "a new sink"
    assert moved(EXPECTED, there) == ({"a": ("at", "elsewhere")} if (newest, target) == (0, "elsewhere") else {})


@pytest.mark.parametrize(
    ("accepted", "is_so"),
    [(("a", 5, 8), True), (("b", 5, 8), False), (("a", 4, 8), False), (("a", 5, 6), False), (("a", 5, 7), True)],
)
def test_what_is_accepted_is_this_set_back_and_no_later_one(accepted, is_so):
    sink, checkpoint, known = accepted
    assert is_accepted(SetBack("a", "", 5, 7), [AcceptedRecord(sink, checkpoint, known, 0)]) is is_so
    if sink == "a":
        ahead = SetBack("a", "", checkpoint, checkpoint - 1)
        assert is_accepted(ahead, [AcceptedRecord("a", checkpoint, checkpoint - 1, 0)])


def test_the_newest_checkpoint_at_which_all_that_were_set_back_stood_is_named():
    """Its own rows may be of an older checkpoint: the sink got none since."""
    kept = [
        record(4, {"a": Shown(4, 0), "b": Shown(3, 0)}),
        record(5, {"a": Shown(4, 0), "b": Shown(5, 3)}),
        record(6, {"a": Shown(6, 4), "b": Shown(5, 0)}),
    ]

    def said(**found: int) -> str:
        differ = [SetBack(s, "", k, 6) for s, k in found.items()]
        return refuse_set_back("job", differ, kept, {s: SinkFound(k) for s, k in found.items()}).reason

    assert "spark.ckpt.restore=5 at an empty" in said(a=4)
    assert "spark.ckpt.restore=4 at an empty" in said(a=4, b=3)
    for none in (said(a=3), said(a=6, b=3)):
        assert "[4, 5, 6], none is one where" in none
        assert "spark.ckpt.restore=none" in none


@pytest.mark.parametrize("at_target", ["at", "", None])
def test_rows_that_wait_in_a_target_are_not_looked_for_in_another(at_target):
    waiting = record(8, {"a": Shown(8, 7, "at"), "b": Shown(3, 2, "bt")}, sinks=("a",))
    there = {} if at_target is None else {"a": SinkFound(0, at_target)}
    assert waits_elsewhere([SEVEN, waiting], there, ()) is None
    elsewhere = {"a": SinkFound(0, "elsewhere"), "b": SinkFound(0, "elsewhere")}
    refused = waits_elsewhere([SEVEN, waiting], elsewhere, ())
    assert refused is not None
    assert "its rows for sink 'a' wait in at: expected that target, found elsewhere" in refused.reason
    assert "`spark-ckpt abandon DIR JOB 8" in refused.reason
    assert waits_elsewhere([waiting], elsewhere, [(8, "a")]) is None
    assert waits_elsewhere([waiting], {"a": SinkFound(7, "elsewhere")}, ()) is None, "the same one, under another name"
