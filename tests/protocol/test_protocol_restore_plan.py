"""The restore plan has a line for each part of the state that changes, and says what becomes of it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt.protocol._start_decision import SparkLocation, StartFacts
from spark_ckpt.protocol.migration import Add, BeginEmpty, Cast, Migration, Rename, migrated
from spark_ckpt.protocol.records import FAMILY_OF, CompletionRecord, TableRef, Topology
from spark_ckpt.protocol.recovery import decide_start
from spark_ckpt.protocol.restore_plan import DROPPED, NEW, RestorePlan, plan_of
from spark_ckpt.protocol.source_starts import Moved
from spark_ckpt.protocol.topology import Refuse, fit_topology
from tests.how_many import some


def facts(keys: str, columns: str, *aggregates: str, **more: Any) -> dict[str, Any]:
    types = dict(c.split() for c in columns.split(", "))
    made = {c: f"{c}()" for c in aggregates}
    return {"state": columns, "keys": keys, "timeout": "NoTimeout", "made_of": made, "types": types, **more}


def planned(was: Topology, now: Topology, *steps: Migration, loses: bool = False) -> RestorePlan:
    tables = {t: TableRef(1, t) for t in was.operators}
    sources = {uid: {"inner": 1} for uid in was.sources}
    at = CompletionRecord(1, "checkpoint", 1, 0, 0, 0, sources, tables, (), was, 0, 0, {"u": {"keys": 5}})
    start = StartFacts(
        "auto", SparkLocation("here"), now, 2, completions=(at,), migrations=steps, allow_non_restored=loses
    )
    return plan_of(start, decide_start(start))


def lines(old: dict[str, Any], new: dict[str, Any], *steps: Migration) -> list[str]:
    plan = planned(*(Topology(4, 4, ("in",), operators, ("out",)) for operators in (old, new)), *steps)
    assert plan.refused == "", plan
    assert plan == plan.from_json(plan.to_json())
    return [f"{f.part} {f.name} {f.becomes}: {f.detail}" for f in plan.fates if f.part not in ("source", "sink")]


OLD = {"u": facts("k string", "n int64, total int32, note string", "n")}


def test_each_part_of_a_state_that_changes_has_a_line_of_its_own_kind() -> None:
    new = {"u": facts("client string", "n int64, amount int64, currency string, more int64, most double", "n", "most")}
    steps = [Rename("u", "k", "client"), Rename("u", "total", "amount"), Add("u", "currency", "EUR")]
    steps += [BeginEmpty("u", "more")]
    assert lines(OLD, new, *steps) == [
        "operator u kept: goes on with 5 keys",
        "key u: client migrated: it was called 'k'",
        "column u: amount migrated: it was called 'total'; int is read as bigint",
        "column u: currency migrated: it is 'EUR' in the keys that are there",
        "column u: more begins empty: null until its key is written",
        "aggregate u: most() begins empty: counts what comes from now on",
        "column u: note dropped: no longer kept",
    ]
    assert lines(OLD, OLD) == ["operator u kept: goes on with 5 keys"]


def test_a_cast_and_a_name_that_was_given_before_are_told_as_they_are_recorded() -> None:
    before = {"u": {**facts("k string", "n int64, amount string, note string", "n"), "stored": {"amount": "total"}}}
    new = {"u": facts("k string", "n int64, amount int64, note string", "n")}
    assert lines(before, new, Cast("u", "amount", "bigint")) == [
        "operator u kept: goes on with 5 keys",
        "column u: amount migrated: string is read as bigint",
    ]


def test_state_that_begins_empty_or_was_anothers_is_not_said_to_go_on() -> None:
    other = {"u": facts("size int32", "n int64, total int32, note string", "n")}
    assert lines(OLD, other, BeginEmpty("u")) == [
        "operator u begins empty: as begin_empty() says; 5 keys are forgotten"
    ]
    moved = {"v": OLD["u"]}
    assert lines(OLD, moved, Moved("u", "v")) == ["operator v kept: goes on with 5 keys, which were of 'u'"]


def test_variables_of_a_processor_have_lines() -> None:
    def with_variables(*names: str) -> dict[str, Any]:
        owner = facts("k string", "n int64")
        families = {f"u.{name}": facts("k string", f"value {kind}", **{FAMILY_OF: "u"}) for name, kind in named(names)}
        return {"u": owner, **families}

    def named(names: tuple[str, ...]) -> list[tuple[str, str]]:
        return [(name, {"a": "int64", "b": "int64", "c": "string", "d": "double"}[name]) for name in names]

    found = lines(with_variables("a", "d"), with_variables("b", "c", "d"), Moved("u.a", "u.b"))
    assert found[1:] == [
        "variable u.c begins empty: no checkpoint has it",
        "variable u.b migrated: it was called 'u.a'",
    ]


def with_variable(key: str, name: str, kind: str = "int64", uid: str = "u") -> dict[str, Any]:
    family = facts(f"{key} string", f"value {kind}", **{FAMILY_OF: uid})
    return {uid: facts(f"{key} string", "n int64"), f"{uid}.{name}": family}


@pytest.mark.parametrize("first", [True, False])
def test_begin_empty_beside_a_line_by_which_the_state_fits_is_a_question(first: bool) -> None:
    old = with_variable("k", "part")

    def refused(new: dict[str, Any], step: Migration, empty: Migration) -> str:
        both = (Topology(4, 4, ("in",), tables, ("out",)) for tables in (old, new))
        return planned(*both, *((empty, step) if first else (step, empty))).refused

    for new, step, empty in (
        (with_variable("c", "part"), Rename("u", "k", "c"), BeginEmpty("u")),
        (with_variable("k", "part", "string"), Cast("u.part", "value", "string"), BeginEmpty("u.part")),
        (with_variable("k", "other"), Moved("u.part", "u.other"), BeginEmpty("u.other")),
        (with_variable("k", "part", uid="v"), Moved("u", "v"), BeginEmpty("v")),
    ):
        assert "goes on by another line; remove this one if it is to go on, or the other" in refused(new, step, empty)
    column = with_variable("k", "part") | {"u": facts("k string", "m int64")}
    assert "found a rename" in refused(column, Rename("u", "n", "m"), BeginEmpty("u", "m"))


@pytest.mark.parametrize("first", [True, False])
def test_what_is_said_of_a_variable_counts_more_than_what_is_said_of_its_operator(first: bool) -> None:
    old, empty, renamed = with_variable("k", "part"), BeginEmpty("u.part"), Rename("u", "k", "c")
    for kind in ("int64", "string"):
        new = with_variable("c", "part", kind)
        assert lines(old, new, *((empty, renamed) if first else (renamed, empty)))[1:] == [
            "key u: c migrated: it was called 'k'",
            "variable u.part begins empty: as begin_empty() says; what it has is forgotten",
        ]
        done = {**new, "u.part": {**new["u.part"], "from": {"checkpoint": 1, "table": ""}}}
        assert lines(done, new, empty, renamed) == ["operator u kept: goes on with 5 keys"], "it was done"


def test_begin_empty_of_long_ago_does_not_take_what_goes_on_by_itself() -> None:
    old = {"u": facts("k string", "s int64", "s", made_of={"s": "sum(a)"}, results={"s": ["s"]})}
    new = {"u": facts("k string", "t int64", "t", made_of={"t": "sum(a)"}, results={"t": ["t"]})}
    assert lines(old, new, BeginEmpty("u"))[0] == "operator u kept: goes on with 5 keys"


TABLES = {
    "u": facts("k string", "n int64"),
    "u.x": facts("k string", "value int64", **{FAMILY_OF: "u"}),
    "u.y": facts("k string", "value string", **{FAMILY_OF: "u"}),
    "v": facts("k string", "n int64", "n"),
    "v.set": {"state": "", "keys": "k string, item string", FAMILY_OF: "v"},
    "w": facts("k string", "n int64"),
}


def drawn(draw: Random) -> Topology:
    """Of a query that has some of these sources, operators and tables."""
    sources = tuple(draw.sample(["a", "b", "c"], draw.randint(1, 3)))
    uids = [uid for uid in TABLES if draw.random() < 0.7]
    tables = {uid: TABLES[uid] for uid in uids if TABLES[uid].get(FAMILY_OF, uid) in uids}
    return Topology(4, 4, sources, tables, ("out",))


@settings(max_examples=some(150), deadline=None)
@given(st.randoms(use_true_random=False))
def test_what_is_decided_of_a_start_is_what_its_plan_tells(draw: Random) -> None:
    """Two walks over the same topologies, one that decides and one that tells: neither knows of a loss, or of a part
    that begins empty, of which the other does not."""
    old, new = drawn(draw), drawn(draw)
    kinds = [["a", "b", "c"], ["u", "w"], ["u.x", "u.y"]]
    moves = tuple(Moved(*draw.sample(draw.choice(kinds), 2)) for _ in range(draw.randint(0, 2)))
    fit = fit_topology(old, new, True, moves, 1)
    if isinstance(fit, Refuse):
        return
    fates = planned(old, new, *moves, loses=True).fates
    there = migrated(old, new, moves).operators
    tables = {**there, **new.operators}

    def of_its_own(uid: str) -> bool:
        """A table that comes or goes with its operator, or with an aggregate, is no line of the plan."""
        owner = tables.get(uid, {}).get(FAMILY_OF)
        return owner is None or (owner in there and owner in new.operators and not tables[owner]["made_of"])

    for becomes, decided in ((DROPPED, fit.dropped_uids), (NEW, fit.fresh_uids)):
        told = {f.name for f in fates if f.becomes == becomes and f.part in ("source", "operator", "variable")}
        assert told == {uid for uid in decided if of_its_own(uid)}
    assert isinstance(fit_topology(old, new, False, moves, 1), Refuse) == any(f.becomes == DROPPED for f in fates)
