"""State that is written anew at a start: which tables, of which ones, and that it is done once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_ckpt.protocol.evolution import carried_over
from spark_ckpt.protocol.migration import Migration, migrated
from spark_ckpt.protocol.records import FAMILY_OF, CompletionRecord, TableRef, Topology
from spark_ckpt.protocol.rewriting import Rescale, Rewrite, Rewriting, rewritings, rewritten, with_rewrites
from spark_ckpt.protocol.source_starts import Moved
from spark_ckpt.protocol.topology import Fit, Refuse, fit_topology, same_topology


def facts(keys: str = "k string", columns: str = "n int64", **more: Any) -> dict[str, Any]:
    types = dict(c.split() for c in columns.split(", "))
    made = {c: f"{c}()" for c in types}
    return {"state": columns, "keys": keys, "timeout": "NoTimeout", "made_of": made, "types": types, **more}


def topology(groups: int = 4, **operators: dict[str, Any]) -> Topology:
    return Topology(groups, groups, ("in",), {t.replace("__", "."): f for t, f in operators.items()}, ("out",))


def checkpoint(of: Topology, number: int = 7) -> CompletionRecord:
    tables = {t: TableRef(number, f"manifests/{t}/{number}") for t in of.operators}
    return CompletionRecord(number, "checkpoint", 1, 1, 0, 0, {"in": {}}, tables, (), of, 0, 0)


def went_on(at: CompletionRecord, new: Topology, *steps: Migration) -> CompletionRecord:
    """The checkpoint that the query has when its first one has come."""
    asked = with_rewrites(new, steps)
    assert isinstance(fit_topology(at.topology, asked, False, steps, at.checkpoint), Fit)
    told = migrated(at.topology, asked, steps, at.checkpoint)
    made = {r.table: TableRef(99, f"new/{r.table}") for r in rewritings(told)}
    restored = replace(rewritten(at, told, made) if made else at, checkpoint=at.checkpoint + 1)
    fit = fit_topology(restored.topology, asked, False, steps, restored.checkpoint)
    assert isinstance(fit, Fit), fit
    assert fit.fresh_uids == ()
    again = migrated(restored.topology, asked, steps, restored.checkpoint)
    assert rewritings(again) == ()
    recorded = carried_over(again, asked, None)
    assert same_topology(recorded, asked, steps) is None
    return replace(checkpoint(recorded, at.checkpoint + 2), tables=restored.tables)


def to_write(at: CompletionRecord, new: Topology, *steps: Migration) -> tuple[Rewriting, ...]:
    return rewritings(migrated(at.topology, with_rewrites(new, steps), steps, at.checkpoint))


def test_a_function_is_done_once_whatever_it_makes_of_keys_and_columns_and_another_one_behind_it() -> None:
    at, new = checkpoint(topology(u=facts())), topology(u=facts("size int32", "total double"))
    by, more = Rewrite("u", "by_size"), Rewrite("u", "more")
    assert to_write(at, new, by, more) == (Rewriting("u", ("u",), ("by_size", "more")),)
    refused = same_topology(at.topology, new, [by])
    assert isinstance(refused, Refuse)
    assert "the state of 'u' by by_size is to be written anew" in refused.reason
    later = went_on(at, new, by)
    assert later.tables == {"u": TableRef(99, "new/u")}
    assert to_write(later, new, by) == ()
    assert to_write(later, new, by, more) == (Rewriting("u", ("u",), ("more",)),)
    assert to_write(at, new, by) != (), "back in front of it, it is done again"
    assert to_write(went_on(later, new), new, by) == (), "without the line it is still done"


def test_state_that_begins_empty_is_never_taken_for_the_old_one() -> None:
    at = checkpoint(topology(other=facts()))
    both = topology(other=facts(), u=facts())
    asked = with_rewrites(both, [Rewrite("u", "by_size")])
    assert to_write(at, both, Rewrite("u", "by_size")) == ()
    begun = checkpoint(carried_over(migrated(at.topology, asked, ()), asked, None))
    assert to_write(begun, both, Rewrite("u", "by_size")) == ()


def test_an_operator_of_another_uid_is_written_with_all_its_tables_or_not_at_all() -> None:
    family = facts("k string, v int64", "more int64", **{FAMILY_OF: "old"})
    at = checkpoint(topology(old=facts(), old__set=family))
    new = topology(u=facts("size int32"), u__set={**family, FAMILY_OF: "u"})
    moved, by = Moved("old", "u"), Rewrite("u", "by_size")
    refused = fit_topology(at.topology, new, False, [moved, by], 7)
    assert isinstance(refused, Refuse)
    assert "write `ckpt.migrate('u.set').by(...)`, too" in refused.reason
    later = went_on(at, new, moved, by, Rewrite("u.set", "sets"))
    assert set(later.tables) == {"u", "u.set"}
    alone = went_on(at, topology(u=facts("size int32")), moved, by)
    assert set(alone.tables) == {"u"}


def test_tables_of_others_are_split_and_merged_and_those_that_are_gone_are_no_loss() -> None:
    at = checkpoint(topology(whole=facts(), stays=facts()))
    new = topology(stays=facts(), a=facts(), b=facts())
    steps = [Rewrite(uid, "split", ("whole",)) for uid in ("a", "b")]
    assert to_write(at, new, *steps) == (Rewriting("a", ("whole",), ("split",)), Rewriting("b", ("whole",), ("split",)))
    later = went_on(at, new, *steps)
    assert later.tables["stays"] == at.tables["stays"]
    assert set(later.tables) == {"stays", "a", "b"}
    back = went_on(later, topology(stays=facts(), whole=facts()), Rewrite("whole", "merge", ("a", "b")))
    assert set(back.tables) == {"stays", "whole"}
    some = fit_topology(at.topology, new, False, [Rewrite("a", "merge", ("whole", "none"))])
    assert isinstance(some, Refuse)
    assert "expected the tables ['whole', 'none'] in the checkpoint, missing ['none']" in some.reason


def test_another_number_of_key_groups_is_refused_or_writes_all_tables_as_they_are() -> None:
    family = facts("k string, v int64", "more int64", **{FAMILY_OF: "u"})
    at = checkpoint(topology(4, u=facts(), u__set=family))
    new = topology(7, u=facts(), u__set=family)
    refused = fit_topology(at.topology, new, False)
    assert isinstance(refused, Refuse)
    assert "found 7; set spark.ckpt.maxParallelism=4, or write `ckpt.rescale()`" in refused.reason
    assert to_write(at, new, Rescale()) == (Rewriting("u", ("u",)), Rewriting("u.set", ("u.set",)))
    assert to_write(at, topology(4, u=facts(), u__set=family), Rescale()) == ()
    later = went_on(at, new, Rescale())
    assert later.topology.key_groups == 7
    assert to_write(later, new, Rescale()) == ()
    assert to_write(later, at.topology, Rescale()) != (), "and back"
    with pytest.raises(Exception, match="change maxParallelism in one start, and the columns in another"):
        migrated(at.topology, topology(7, u=facts(columns="n int64, m int64"), u__set=family), [Rescale()])
    by = (Rescale(), Rewrite("u", "by_size"), Rewrite("u.set", "sets"))
    assert {r.names for r in to_write(at, topology(7, u=facts("s int32"), u__set=family), *by)} == {
        ("by_size",),
        ("sets",),
    }
