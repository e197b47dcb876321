"""Each relation of Spark Connect's client has its place: the ledger's, or none in a stream."""

from __future__ import annotations

import inspect

import pytest

plan = pytest.importorskip("pyspark.sql.connect.plan")

from spark_ckpt.plan.analysed.ledger import How, entry_of, name_of  # noqa: E402
from spark_ckpt.plan.relations._names import NODES, NOT_OF_STREAMS, TEXTS  # noqa: E402
from spark_ckpt.plan.relations.translate import HANDLERS  # noqa: E402


def test_every_relation_of_the_client_has_its_place() -> None:
    classes = {
        name for name, each in inspect.getmembers(plan, inspect.isclass)
        if issubclass(each, plan.LogicalPlan) and each is not plan.LogicalPlan and "plan" in vars(each)
    }  # fmt: skip
    others = {kind for kinds in NOT_OF_STREAMS.values() for kind in kinds}
    base = {"BaseTransformWithStateInPySpark"}
    assert not classes - {*NODES, *others, *TEXTS} - base


def test_the_ledger_has_a_row_of_each_node_that_a_relation_becomes() -> None:
    assert None not in map(name_of, NODES.values())
    assert not [node for node in NODES.values() if entry_of(node).how is How.ABSENT]


def test_what_connect_has_no_handler_for_is_known() -> None:
    """A handler that gets another name in the ledger would be missing here without a word."""
    asked = {entry_of(node).by for node in NODES.values() if entry_of(node).how is not How.REFUSED}
    assert asked - set(HANDLERS) == set()
