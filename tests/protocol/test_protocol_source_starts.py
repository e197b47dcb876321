"""Sources under another uid, or that are to begin elsewhere: where each begins, and how often that is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_ckpt.protocol.evolution import carried_over
from spark_ckpt.protocol.migration import migrated
from spark_ckpt.protocol.records import CompletionRecord, Topology
from spark_ckpt.protocol.source_starts import Moved, begins_anew, found, moved_sources, starts_at, to_find
from spark_ckpt.protocol.topology import Fit, Refuse, fit_topology, same_topology


def topology(*uids: str, derived: tuple[str, ...] = (), asked: dict[str, Any] | None = None, **reads: str) -> Topology:
    made = Topology(8, 8, uids, {}, ("out",), reads={u: reads.get(u, f"files path={u}") for u in uids})
    begins = {uid: {"asked": value} for uid, value in (asked or {}).items()}
    return replace(made, derived_sources=derived, begins=begins)


def checkpoint(number: int, of: Topology) -> CompletionRecord:
    sources = {uid: {"inner": {"at": f"{uid}@{number}"}, "ended": True} for uid in of.sources}
    return CompletionRecord(number, "checkpoint", 1, 1, 0, 0, sources, {}, (), of, 0, 0)


def restored(at: CompletionRecord, new: Topology, *moves: Moved) -> Topology:
    fit = fit_topology(at.topology, new, False, moves, at.checkpoint)
    assert not isinstance(fit, Refuse), fit
    return carried_over(migrated(at.topology, new, moves, at.checkpoint), new, None)


def test_a_source_under_another_uid_goes_on_where_it_stood_and_the_line_may_stay() -> None:
    at = checkpoint(7, topology("old", "other", old="files path=x", other="files path=y"))
    new = topology("new", "other", new="files path=x", other="files path=y")
    refused = fit_topology(at.topology, new, False)
    assert isinstance(refused, Refuse)
    assert "`ckpt.moved('old', 'new')`" in refused.reason
    line = Moved("old", "new")
    went_on = restored(at, new, line)
    assert starts_at(went_on, "new", at) == at.sources["old"]
    assert starts_at(went_on, "other", at) == at.sources["other"]
    assert moved_sources(went_on) == {"new": "old"}
    assert same_topology(went_on, new, [line]) is None
    again = carried_over(went_on, new, 3)
    assert starts_at(again, "new", at) == at.sources["old"], "the first batch is replayed from there"
    later = checkpoint(8, went_on)
    assert starts_at(restored(later, new, line), "new", later) == later.sources["new"]


def test_a_derived_uid_moves_to_the_one_that_the_source_has_now() -> None:
    was = topology("files-0", derived=("files-0",), **{"files-0": "files path=x"})
    at = checkpoint(1, was)
    both = topology(
        "files-0", "files-1", derived=("files-0", "files-1"), **{"files-0": "files path=y", "files-1": "files path=x"}
    )
    refused = fit_topology(was, both, False)
    assert isinstance(refused, Refuse)
    assert "ckpt.moved('files-0', <that uid>)" in refused.reason
    line = Moved("files-0", "files-1")
    taken = fit_topology(was, both, False, [line], 1)
    assert isinstance(taken, Refuse)
    assert "expected no other source under 'files-0', found one in the query" in taken.reason
    new = topology("added", "files-1", derived=("files-1",), **{"added": "files path=y", "files-1": "files path=x"})
    went_on = restored(at, new, line)
    assert starts_at(went_on, "files-1", at) == at.sources["files-0"]
    assert starts_at(went_on, "added", at) == {}
    assert same_topology(went_on, new, [line]) is None
    assert isinstance(fit_topology(went_on, new, False, [line], 2), Fit)


def test_a_move_is_refused_where_the_checkpoint_has_both_and_other_kinds_do_not_move() -> None:
    at = checkpoint(1, topology("a", "b"))
    refused = fit_topology(at.topology, topology("b", "c"), True, [Moved("a", "b")], 1)
    assert isinstance(refused, Refuse)
    assert "found both. If 'b' of the checkpoint has another uid now, write its moved('b', ...) first" in refused.reason
    swapped = restored(at, topology("b", "c", b="files path=a", c="files path=b"), Moved("b", "c"), Moved("a", "b"))
    assert [starts_at(swapped, uid, at) for uid in ("b", "c")] == [at.sources["a"], at.sources["b"]]
    kafka = fit_topology(at.topology, topology("k", "b", k="kafka subscribe=a"), False, [Moved("a", "k")], 1)
    assert isinstance(kafka, Refuse)
    assert "read files path=a, and reads kafka" in kafka.reason


def test_moves_lead_on_from_a_uid_that_no_checkpoint_has() -> None:
    lines = (Moved("a", "b"), Moved("b", "c"))
    new, first, second = topology("c"), checkpoint(1, topology("a")), checkpoint(2, topology("b"))
    went_on = restored(first, replace(new, reads={"c": "files path=a"}), *lines)
    assert starts_at(went_on, "c", first) == first.sources["a"]
    assert moved_sources(went_on) == {"c": "a"}
    assert (
        starts_at(restored(second, replace(new, reads={"c": "files path=b"}), *lines), "c", second)
        == (second.sources["b"])
    )
    both = checkpoint(3, topology("a", "b"))
    again = restored(both, topology("a", "c", c="files path=b"), *lines)
    assert [starts_at(again, uid, both) for uid in ("a", "c")] == [both.sources["a"], both.sources["b"]]
    taken = fit_topology(topology("a", "c"), topology("c"), False, lines, 1)
    assert isinstance(taken, Refuse)
    assert "holds state of ['a']" in taken.reason


def test_operators_of_derived_uids_are_behind_the_source_that_has_another_uid() -> None:
    behind = {"aggregate-0": {"state": "n int64", "keys": "k string", "derived": ["old"]}}
    was = replace(topology("old"), operators=behind)
    new = replace(
        topology("new", new="files path=old"), operators={"aggregate-0": {**behind["aggregate-0"], "derived": ["new"]}}
    )
    assert isinstance(fit_topology(was, new, False, [Moved("old", "new")]), Fit)


def test_what_is_asked_for_is_done_once_in_a_line_of_checkpoints() -> None:
    at, asked = checkpoint(3, topology("in")), topology("in", asked={"in": "latest"})
    assert isinstance(same_topology(at.topology, asked), Refuse), "a location with batches is left for another"
    went_on = restored(at, asked)
    assert to_find(went_on) == {"in": "latest"}
    went_on = found(went_on, {"in": {"at": "end"}})
    assert starts_at(went_on, "in", at) == {"inner": {"at": "end"}}
    assert same_topology(went_on, asked) is None
    assert starts_at(carried_over(went_on, asked, 2), "in", at) == {"inner": {"at": "end"}}
    later = checkpoint(4, went_on)
    once = restored(later, asked)
    assert to_find(once) == {}
    assert starts_at(once, "in", later) == later.sources["in"]
    assert to_find(restored(at, asked)) == {"in": "latest"}, "back in front of it, it is done again"
    forgotten = carried_over(went_on, topology("in"), 3)
    assert starts_at(forgotten, "in", at) == {"inner": {"at": "end"}}, "the first batch is replayed from there"
    assert isinstance(same_topology(forgotten, asked), Refuse), "taken out and asked for again, it is done again"


def test_a_source_that_is_new_and_a_job_that_begins_go_where_is_asked_too() -> None:
    at, asked = checkpoint(3, topology("in")), topology("in", "more", asked={"more": {"at": 5}})
    went_on = restored(at, asked)
    assert to_find(went_on) == {"more": {"at": 5}}
    assert starts_at(found(went_on, {"more": {"at": 5}}), "more", at) == {"inner": {"at": 5}}
    fresh = begins_anew(asked)
    assert to_find(fresh) == {"more": {"at": 5}}
    assert starts_at(found(fresh, {"more": {"at": 5}}), "more", None) == {"inner": {"at": 5}}
    assert starts_at(fresh, "in", None) == {}


def test_a_source_with_another_uid_may_be_asked_to_begin_elsewhere() -> None:
    at, asked = checkpoint(3, topology("old")), topology("new", asked={"new": "earliest"}, new="files path=old")
    went_on = restored(at, asked, Moved("old", "new"))
    assert moved_sources(went_on) == {"new": "old"}
    assert to_find(went_on) == {"new": "earliest"}


@pytest.mark.parametrize("uid", ["old", "new"])
def test_what_was_asked_for_goes_with_the_source(uid: str) -> None:
    at = checkpoint(3, topology("old", asked={"old": "latest"}))
    new = topology(uid, asked={uid: "latest"}, **{uid: "files path=old"})
    assert to_find(restored(at, new, Moved("old", "new"))) == {}
