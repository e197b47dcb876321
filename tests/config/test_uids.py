"""Uids of keyed operators that nobody gave: derived, the same for the same program, and never another's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spark_ckpt.errors import TopologyError
from spark_ckpt.execution.build import name_operators, name_sources, query_topology
from spark_ckpt.execution.lineage import Lineage, OperatorNode, SourceNode, in_plan_order
from spark_ckpt.state.lsm.layout import StateLayout

LAYOUT = StateLayout(pa.schema([("k", pa.int64())]), pa.schema([("n", pa.int64())]))


def operator(behind: Lineage, kind: str, uid: str | None = None) -> Lineage:
    return behind.through(
        OperatorNode(uid, LAYOUT, behind.sources, "NoTimeout", {}, kind=kind, behind=behind.operators)
    )


def stream(uid: str | None = None) -> Lineage:
    return Lineage(1, (SourceNode("files", {}, None, uid),))


def named(lineage: Lineage, **options: Any) -> list[str]:
    return list(name_operators(lineage, name_sources(lineage), **options).values())


def test_a_uid_is_the_kind_and_the_place_in_the_query_where_none_is_given() -> None:
    one = operator(operator(stream(), "dropDuplicates"), "aggregate", "totals")
    both = one.union(operator(stream(), "dropDuplicates"))
    assert named(operator(both, "aggregate")) == ["dropDuplicates-0", "totals", "dropDuplicates-2", "aggregate-3"]
    assert named(both) == named(both)


def test_a_derived_uid_is_never_a_given_one() -> None:
    # As if an operator had been put in front of one that is to keep its state.
    later = operator(operator(stream("count-1"), "count"), "count", "count-0")
    assert named(operator(later, "count")) == ["count-2", "count-0", "count-3"]


def test_the_order_in_sparks_plan_is_from_the_sink_to_the_sources_and_from_left_to_right() -> None:
    """Whose progress is whose: Spark tells it by that order."""
    left = operator(operator(stream(), "windows"), "best")
    right = operator(operator(stream(), "once").union(operator(stream(), "twice")), "join")
    both = operator(left.union(right), "outer")
    found = [node.kind for node in in_plan_order(both.operators)]
    assert found == ["outer", "best", "windows", "join", "once", "twice"]
    assert [node.kind for node in in_plan_order(left.union(right).operators)] == found[1:]


def test_one_operator_on_both_sides_of_a_union_is_refused_with_and_without_a_uid() -> None:
    for uid, said in ((None, "count"), ("mine", "mine")):
        one = operator(stream(), "count", uid)
        with pytest.raises(TopologyError, match=rf"both sides of the union .*\['{said}'\]"):
            operator(one, "sum").union(one)
    with pytest.raises(TopologyError, match="both sides of the union"):
        operator(stream(), "count", "a").union(operator(stream(), "sum", "a"))


def test_required_uids_are_missed_by_the_operators_kind() -> None:
    with pytest.raises(TopologyError, match=r"^count: .* needs a uid"):
        named(operator(operator(stream(), "sum", "total"), "count"), required=True)
    assert named(operator(stream(), "sum", "total"), required=True) == ["total"]


def test_checkpoints_record_which_uids_are_derived_and_of_which_sources() -> None:
    lineage = operator(operator(stream("orders").union(stream("returns")), "count"), "sum", "total")
    sources = name_sources(lineage)
    recorded = query_topology(lineage, sources, (), 4, name_operators(lineage, sources)).operators
    assert recorded["count-0"]["derived"] == ["orders", "returns"]
    assert "derived" not in recorded["total"]
    assert recorded["total"]["keys"] == "k int64"
