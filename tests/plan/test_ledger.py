"""The ledger names every class of logical plan that Spark has, and nothing that Spark does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ckpt.plan.analysed.ledger import LEDGER, NEW_IN_4_3, ONLY_IN_4_0, How, entry_of, ledger_table, name_of
from spark_ckpt.spark_versions import spark_version
from tests.plan.class_files import below, classes_of_spark, of_the_newest

pytestmark = pytest.mark.smoke

PAGE = Path(__file__).parents[2] / "docs/design/front-door.md"
ROWS = [node for entry in LEDGER for node in entry.nodes.split()]
_LOGICAL = "org/apache/spark/sql/catalyst/plans/logical"


@pytest.fixture(scope="module")
def nodes() -> set[str]:
    """The simple names of all logical plans but commands."""
    classes = classes_of_spark()
    found = below(classes, f"{_LOGICAL}/LogicalPlan") - below(classes, f"{_LOGICAL}/Command")
    return {name.rpartition("/")[2] for name in found}


def test_every_node_of_sparks_plans_is_named(nodes: set[str]) -> None:
    assert len(nodes) > 150
    assert {node for node in nodes if name_of(node) is None} == set()


@of_the_newest
def test_every_name_is_one_of_sparks(nodes: set[str]) -> None:
    newer = NEW_IN_4_3 if spark_version() < (4, 3) else frozenset()
    used = {name_of(node) for node in nodes}
    assert set(ROWS) - used <= newer | ONLY_IN_4_0, "some of them came with 4.2.1 already"


def test_no_node_has_two_rows() -> None:
    assert len(ROWS) == len(set(ROWS))


def test_a_pattern_is_only_for_what_no_query_has() -> None:
    patterns = {node for node in ROWS if "*" in node}
    assert {entry_of(node).how for node in patterns} <= {How.ABSENT, How.REFUSED}


def test_a_node_that_no_row_names_is_refused() -> None:
    assert name_of("AskTheOracle") is None
    assert entry_of("AskTheOracle").how is How.REFUSED


def test_what_is_refused_says_why() -> None:
    assert all(entry.says for entry in LEDGER if entry.how is How.REFUSED)


def test_the_page_shows_the_ledger() -> None:
    assert ledger_table() in PAGE.read_text(), "docs/design/front-door.md is stale: run scripts/config_docs.py"
