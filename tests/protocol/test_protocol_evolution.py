"""Aggregates that come and go: which state goes on, under which names it is written, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from spark_ckpt.protocol.evolution import StateChange, carried_over, changes
from spark_ckpt.protocol.migration import Add, BeginEmpty, Rename, migrated
from spark_ckpt.protocol.records import FAMILY_OF, Topology
from spark_ckpt.protocol.source_starts import Moved
from spark_ckpt.protocol.topology import Fit, Refuse, fit_topology, same_topology

TYPES = {"count": "int64", "sum_a": "int64", "sum_b": "double", "first_a": "int64"}
WINDOWS = {"count": "count()", "sum_a": "sum_a()", "w": "windows of 0:10:00"}


def facts(*columns: str, **more: Any) -> dict[str, Any]:
    types = {c: TYPES[c] for c in columns}
    start = [c for c in columns if c.startswith("first")]
    return {
        "state": ", ".join(f"{c} {t}" for c, t in types.items()),
        "keys": "k string",
        "timeout": "NoTimeout",
        "made_of": {c: f"{c}()" for c in columns},
        "types": types,
        **({"from_start": start} if start else {}),
        **more,
    }


def topology(*columns: str, families: tuple[str, ...] = (), **more: Any) -> Topology:
    tables = {f"u.{f}": {"state": "", "keys": "k string, v long", FAMILY_OF: "u"} for f in families}
    return Topology(8, 8, ("in",), {"u": facts(*columns, **more), **tables}, ("out",))


def test_an_operator_that_is_gone_may_be_one_that_came_and_the_refusal_has_the_line() -> None:
    old = topology("count")
    facts_of_u = old.operators["u"]
    for facts_now, asked in ((facts_of_u, True), ({**facts_of_u, "keys": "other date"}, False)):
        refused = fit_topology(old, replace(old, operators={"v": facts_now}), False)
        assert isinstance(refused, Refuse)
        assert ("`ckpt.moved('u', 'v')`" in refused.reason) is asked
    renamed = replace(old, operators={"v": facts_of_u})
    assert isinstance(fit_topology(old, renamed, False, [Moved("u", "v")]), Fit)


def test_added_removed_and_moved_aggregates_go_on_wherever_the_query_starts() -> None:
    old = topology("count", "sum_a")
    for new in (topology("count", "sum_b", "sum_a"), topology("sum_a"), topology("sum_a", "count")):
        assert isinstance(fit_topology(old, new, False), Fit)
        assert same_topology(old, new) is None
    assert changes(old, topology("sum_b", "count")) == (StateChange("u", ("sum_b()",), ("sum_a()",)),)
    assert changes(old, topology("sum_a", "count")) == ()


def keyed(text: str | None, **more: Any) -> Topology:
    return topology("count", **({} if text is None else {"keyed_by": {"k": text}}), **more)


def test_a_key_that_is_computed_otherwise_is_a_question_until_a_line_says_that_it_is_the_same() -> None:
    old, new = keyed("lower(name)"), keyed("upper(name)")
    for refused in (fit_topology(old, new, True), same_topology(old, new)):
        assert isinstance(refused, Refuse)
        assert "key 'k' was lower(name), and is now upper(name)" in refused.reason
        assert """`ckpt.migrate('u').rename('lower(name)', 'upper(name)')`""" in refused.reason
        assert """`ckpt.migrate('u').begin_empty()`""" in refused.reason
    said = [Rename("u", "lower(name)", "upper(name)")]
    assert isinstance(fit_topology(old, new, False, said), Fit)
    assert isinstance(same_topology(old, new, said), Refuse)  # so the job restores its checkpoint elsewhere
    assert carried_over(migrated(old, new, said), new, None).operators["u"]["keyed_by"] == {"k": "upper(name)"}
    assert same_topology(new, new, said) is None
    begun = fit_topology(old, new, False, [BeginEmpty("u")])
    assert isinstance(begun, Fit)
    assert begun.fresh_uids == ("u",)


def test_a_key_that_was_a_column_and_is_computed_now_is_a_question_with_a_line_that_is_taken() -> None:
    old, new = keyed("k"), keyed("upper(k)")
    refused = fit_topology(old, new, False)
    assert isinstance(refused, Refuse)
    assert "rename('k', 'upper(k)')" in refused.reason
    assert isinstance(fit_topology(old, new, False, [Rename("u", "k", "upper(k)")]), Fit)


def test_records_that_do_not_say_what_a_key_is_computed_by_go_on() -> None:
    for old, new in ((keyed(None), keyed("upper(k)")), (keyed("lower(k)"), keyed(None))):
        assert isinstance(fit_topology(old, new, False), Fit)
        assert same_topology(old, new) is None


def test_a_key_that_has_another_name_is_the_same_however_it_is_computed() -> None:
    old, new = keyed("lower(k)"), keyed(None)
    new.operators["u"].update(keys="client string", keyed_by={"client": "client"})  # type: ignore[attr-defined]
    assert isinstance(fit_topology(old, new, False), Refuse)
    assert isinstance(fit_topology(old, new, False, [Rename("u", "k", "client")]), Fit)


def test_families_come_and_go_with_their_aggregates_and_not_by_themselves() -> None:
    old, new = topology("count", "sum_a", families=("set",)), topology("count", families=("list",))
    fit = fit_topology(old, new, False)
    assert isinstance(fit, Fit)
    assert (fit.fresh_uids, fit.dropped_uids) == (("u.list",), ("u.set",))
    assert same_topology(old, new) is None
    gone = Topology(8, 8, ("in",), {}, ("out",))
    refused = fit_topology(old, gone, False)
    assert isinstance(refused, Refuse)
    assert "['u', 'u.set']" in refused.reason
    operators = {"u": {"state": "", "keys": "k string"}, "u.set": {"state": ""}}
    unlike = Topology(8, 8, ("in",), operators, ("out",))
    assert isinstance(same_topology(unlike, topology("count")), Refuse)


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (facts("sum_b"), "nothing of its state would go on: expected some of count int64, sum_a int64, found sum_b"),
        (facts("count", "sum_a", "first_a"), r"first_a\(\) cannot begin in keys that are there"),
        (
            facts("count", "sum_a") | {"types": {"count": "int64", "sum_a": "double"}},
            "'sum_a' .* was int64.*now double",
        ),
        (
            facts("count", "sum_a") | {"made_of": {"count": "count()", "sum_a": "max(a)"}},
            r"sum_a\(\) \(int64\) goes and max\(a\) \(int64\) comes.*begin_empty\('max\(a\)'\)",
        ),
        (
            facts("count", "sum_a") | {"made_of": {**WINDOWS, "w": "windows of 0:20:00"}},
            "key 'w' was of windows of 0:10:00, and is now of windows of 0:20:00",
        ),
    ],
)
def test_what_needs_more_is_refused_with_all_differences(new: dict[str, Any], why: str) -> None:
    old, made = topology("count", "sum_a", made_of=WINDOWS), Topology(8, 8, ("in",), {"u": new}, ("out",))
    for found in (fit_topology(old, made, False), same_topology(old, made)):
        assert isinstance(found, Refuse)
        with pytest.raises(Exception, match=why):
            raise found.error()


@pytest.mark.parametrize(
    "changed",
    [
        {"types": {"count": "int64", "sum_a": "decimal128(20, 0)"}},
        {"types": {"count": "int64", "sum_a": "decimal128(10, 0)", "note": "string"}},
        {"keys": "k decimal128(9, 2)"},
        {"u.set": {"state": "", "keys": "k string, v long", "types": {"more": "int64"}, "made_of": {}, FAMILY_OF: "u"}},
    ],
)
def test_what_a_query_may_change_but_not_at_the_location_that_has_rows_of_the_state(changed: dict[str, Any]) -> None:
    old = topology("count", "sum_a", types={"count": "int64", "sum_a": "decimal128(10, 0)"}, keys="k decimal128(5, 2)")
    family = {"state": "", "keys": "k string, v long", "types": {}, "made_of": {}, FAMILY_OF: "u"}
    old = replace(old, operators={**old.operators, "u.set": family})
    facts_now = {**old.operators["u"], **{k: v for k, v in changed.items() if k != "u.set"}}
    new = replace(old, operators={"u": facts_now, "u.set": changed.get("u.set", family)})
    assert same_topology(old, old) is None
    assert isinstance(fit_topology(old, new, False), Fit)
    refused = same_topology(old, new)
    assert isinstance(refused, Refuse)
    assert "starting at an empty location" in refused.reason


@pytest.mark.parametrize(("key", "step"), [("k int32", "begin_empty()"), ("client string", "rename('k', 'client')")])
def test_another_key_is_said_once_of_an_operator_and_its_other_tables(key: str, step: str) -> None:
    def made(key: str) -> Topology:
        kinds = {"n": "int64", "total": "int64", "most": "int32"}
        keys = {**dict.fromkeys(kinds, key), "set": f"{key}, item int64"}
        tables = {
            f"u.{n}": {"state": f"x {kinds.get(n)}", "keys": k, "types": {"x": kinds.get(n)}, FAMILY_OF: "u"}
            for n, k in keys.items()
        }
        return Topology(8, 8, ("in",), {"u": {"state": "", "keys": key, "types": {}}, **tables}, ("out",))

    refused = fit_topology(made("k string"), made(key), False)
    assert isinstance(refused, Refuse)
    assert refused.reason.count("the key schema changed") == 1
    assert re.findall(r"write `([^`]*)`", refused.reason) == [f"ckpt.migrate('u').{step}"]
    line = BeginEmpty("u") if step == "begin_empty()" else Rename("u", "k", "client")
    assert isinstance(fit_topology(made("k string"), made(key), False, [line]), Fit)


def test_a_migration_that_has_something_to_do_needs_a_location_without_rows() -> None:
    old, new, add = topology("count"), topology("count", "sum_a"), Add("u", "sum_a", 5)
    assert same_topology(old, new) is None
    assert isinstance(same_topology(old, new, [add]), Refuse)
    assert same_topology(new, new, [add]) is None
    both = Topology(8, 8, ("in",), {"u": facts("count"), "v": facts("count")}, ("out",))
    moved = [Moved("u", "v")]
    assert same_topology(both, both, moved) is None, "the query has both: each goes on under its own uid"
    assert isinstance(fit_topology(both, both, False, moved), Fit)
    one = Topology(8, 8, ("in",), {"v": facts("count")}, ("out",))
    refused = fit_topology(both, one, True, moved)
    assert isinstance(refused, Refuse)
    assert "moved('u', 'v'): expected one of them in the checkpoint, found both" in refused.reason


def test_an_operator_that_was_moved_twice_goes_on_from_any_of_its_uids() -> None:
    lines, new = [Moved("u", "v"), Moved("v", "w")], Topology(8, 8, ("in",), {"w": facts("count")}, ("out",))
    for uid in ("u", "v"):
        old = Topology(8, 8, ("in",), {uid: facts("count")}, ("out",))
        assert isinstance(fit_topology(old, new, False, lines), Fit)
        assert migrated(old, new, lines, 5).operators["w"]["from"] == {"checkpoint": 5, "table": uid}


def test_windows_of_a_record_that_does_not_say_which_go_on() -> None:
    assert same_topology(topology("count", "sum_a"), topology("count", "sum_a", made_of=WINDOWS)) is None


def test_a_record_that_does_not_list_the_columns_one_by_one_tells_them_by_its_text() -> None:
    old = Topology(8, 8, ("in",), {"u": {k: v for k, v in facts("count").items() if k != "types"}}, ("out",))
    assert isinstance(fit_topology(old, topology("count", "sum_a"), False), Fit)
    assert same_topology(old, topology("count")) is None
    retyped = topology("count", types={"count": "string"})
    assert isinstance(fit_topology(old, retyped, False), Refuse)


def test_an_aggregate_that_only_has_another_name_goes_on_by_itself() -> None:
    old = topology("count", "sum_a")
    named = topology(
        "count",
        "sum_b",
        made_of={"count": "count()", "sum_b": "sum_a()"},
        types=dict.fromkeys(("count", "sum_b"), "int64"),
    )
    assert isinstance(fit_topology(old, named, False), Fit)
    made = carried_over(migrated(old, named, ()), named, None)
    assert _u(made) == {"stored": {"sum_b": "sum_a"}}
    refused = same_topology(old, named)
    assert isinstance(refused, Refuse)
    assert "starting at an empty location" in refused.reason


def _u(made: Topology) -> dict[str, Any]:
    return {k: v for k, v in made.operators["u"].items() if k in ("stored", "gone", "since")}


def test_a_column_that_comes_back_has_a_name_that_no_file_has() -> None:
    first = topology("count", "sum_a")
    without = carried_over(first, topology("count"), None)
    assert _u(without) == {"gone": ["sum_a"]}
    back = carried_over(without, topology("count", "sum_a"), None)
    assert _u(back) == {"gone": ["sum_a"], "stored": {"sum_a": "sum_a_2"}}
    again = carried_over(carried_over(back, topology("count"), None), topology("count", "sum_a"), None)
    assert _u(again) == {"gone": ["sum_a", "sum_a_2"], "stored": {"sum_a": "sum_a_3"}}
    assert _u(carried_over(again, topology("count", "sum_a"), None)) == _u(again)
    assert _u(carried_over(first, topology("count", "sum_a"), None)) == {}


def test_what_begins_at_a_location_is_known_by_its_generation_there() -> None:
    first = topology("count", "sum_a", families=("set",))
    second = carried_over(first, topology("count"), 7)
    third = carried_over(second, topology("count", "sum_a", families=("set",)), 8)
    assert _u(third)["since"] == {"sum_a": 8}
    assert third.operators["u.set"]["since"] == 8
    fourth = carried_over(third, topology("count", "sum_a", families=("set",)), 9)
    assert (_u(fourth)["since"], fourth.operators["u.set"]["since"]) == ({"sum_a": 8}, 8)
    elsewhere = carried_over(third, topology("count", "sum_a", families=("set",)), None)
    assert ("since" in _u(elsewhere), "since" in elsewhere.operators["u.set"]) == (False, False)
