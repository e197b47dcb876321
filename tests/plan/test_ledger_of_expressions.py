"""The ledger of expressions names every class of the kinds that matter to a stream, and nothing that Spark has not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from spark_ckpt.plan.analysed.ledger_of_expressions import (
    KINDS_OF_EXPRESSIONS,
    NEW_IN_4_3,
    Where,
    expressions_table,
    kind_of_expression,
    leaves_table,
    refused_aggregates,
)
from spark_ckpt.spark_versions import spark_version
from tests.plan.class_files import ClassFile, below, classes_of_spark, of_the_newest

pytestmark = pytest.mark.smoke

DOCS = Path(__file__).parents[2] / "docs"
_EXPRESSIONS = "org/apache/spark/sql/catalyst/expressions"
_BASES = (
    "Generator",
    "aggregate/AggregateFunction",
    "WindowFunction",
    "Nondeterministic",
    "ExpressionWithRandomSeed",
    "PlanExpression",
    "UserDefinedExpression",
    "CurrentTimestampLike",
)
_NAMED = {name for kind in KINDS_OF_EXPRESSIONS for name in kind.classes.split()}


@pytest.fixture(scope="module")
def classes() -> dict[str, ClassFile]:
    return classes_of_spark()


def _below(classes: dict[str, ClassFile], base: str) -> set[str]:
    return {name.rpartition("/")[2] for name in below(classes, f"{_EXPRESSIONS}/{base}")}


@pytest.mark.parametrize("base", _BASES)
def test_every_expression_of_these_kinds_is_named(classes: dict[str, ClassFile], base: str) -> None:
    found = _below(classes, base)
    assert found, "Spark has no such base any more"
    assert found - _NAMED == set()


@of_the_newest
def test_every_name_is_one_of_sparks(classes: dict[str, ClassFile]) -> None:
    newer = NEW_IN_4_3 if spark_version() < (4, 3) else frozenset()
    assert _NAMED - _below(classes, "Expression") - newer == set()


def test_no_expression_has_two_rows() -> None:
    names = Counter(name for kind in KINDS_OF_EXPRESSIONS for name in kind.classes.split())
    assert [name for name, times in names.items() if times > 1] == []


def test_an_expression_that_no_row_names_is_refused() -> None:
    assert kind_of_expression("AskTheOracle").where is Where.REFUSED


def test_what_is_refused_says_what_to_write() -> None:
    assert all(kind.says and kind.written for kind in KINDS_OF_EXPRESSIONS if kind.where is Where.REFUSED)
    assert refused_aggregates()["count_min_sketch"].startswith("count the values by themselves")


def test_the_pages_show_the_tables() -> None:
    assert expressions_table() in (DOCS / "methods.md").read_text(), "stale: run scripts/config_docs.py"
    assert leaves_table() in (DOCS / "design/front-door.md").read_text(), "stale: run scripts/config_docs.py"
