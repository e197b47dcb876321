"""The restore plan has a line for each part of the state that changes, and says what becomes of it."""

from __future__ import annotations

from typing import Any

from spark_ckpt.protocol._start_decision import SparkLocation, StartFacts
from spark_ckpt.protocol.migration import Add, BeginEmpty, Cast, Migration, Rename
from spark_ckpt.protocol.records import FAMILY_OF, CompletionRecord, TableRef, Topology
from spark_ckpt.protocol.recovery import decide_start
from spark_ckpt.protocol.restore_plan import plan_of
from spark_ckpt.protocol.source_starts import Moved


def facts(keys: str, columns: str, *aggregates: str, **more: Any) -> dict[str, Any]:
    types = dict(c.split() for c in columns.split(", "))
    made = {c: f"{c}()" for c in aggregates}
    return {"state": columns, "keys": keys, "timeout": "NoTimeout", "made_of": made, "types": types, **more}


def lines(old: dict[str, Any], new: dict[str, Any], *steps: Migration) -> list[str]:
    was, now = (Topology(4, 4, ("in",), operators, ("out",)) for operators in (old, new))
    tables = {t: TableRef(1, t) for t in old}
    at = CompletionRecord(1, "checkpoint", 1, 0, 0, 0, {"in": {"inner": 1}}, tables, (), was, 0, 0, {"u": {"keys": 5}})
    start = StartFacts("auto", SparkLocation("here"), now, 2, completions=(at,), migrations=steps)
    plan = plan_of(start, decide_start(start))
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
