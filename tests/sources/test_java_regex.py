"""Patterns of options find what Java finds, or are refused: against what it made of generated ones. Without Spark."""

from __future__ import annotations

import json

import pytest

from spark_ckpt.expressions.java_regex import UnsureError, searcher
from tests.sources.regexes_oracle import MORE_TEXTS, RECORDED, TEXTS

OF_JAVA = json.loads(RECORDED.read_text())
REFUSED = "refused"


def finds(pattern: str, ascii_texts: bool) -> str:
    try:
        found = searcher(pattern, ascii_texts)
    except UnsureError:
        return REFUSED
    return "".join("01"[found.finds(text)] for text in (TEXTS if ascii_texts else TEXTS + MORE_TEXTS))


@pytest.mark.parametrize("ascii_texts", [True, False])
def test_a_pattern_finds_what_javas_finds_or_is_refused_and_what_java_refuses_is(ascii_texts: bool) -> None:
    found = [(pattern, expected, finds(pattern, ascii_texts)) for pattern, expected in OF_JAVA]
    wrong = [one for one in found if one[2] != REFUSED and (one[1] == REFUSED or not one[1].startswith(one[2]))]
    assert wrong == []
    accepted, read = sum(one[1] != REFUSED for one in found), sum(one[2] != REFUSED for one in found)
    assert read > 0.65 * accepted, "what is common is read"
    assert sum("1" in one[2] for one in found) > 300


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("t[a-c&&b-z]", ["tb", "tc", "my-tb"], ["ta", "t&", "td"]),
        ("^[a-z&&[^x]]+$", ["abc"], ["xx", "ax", "a&"]),
        ("[ab[x]]", ["a", "x"], ["[", "c"]),
        ("[^a-z&&[^def]]", ["d", "0"], ["a", "z"]),
        ("orders", ["orders", "orders-eu", "my.orders"], ["order"]),
        ("^orders$", ["orders"], ["orders-eu", "my.orders"]),
        ("(?:eu|us)-\\w+\\b", ["eu-1", "us-a.b"], ["de-1"]),
        ("\\Qa.b\\E+", ["a.b", "a.bb"], ["axb"]),
    ],
)
def test_patterns_that_python_reads_otherwise(pattern: str, matching: list[str], others: list[str]) -> None:
    found = searcher(pattern, True)
    assert [name for name in matching + others if found.finds(name)] == matching


@pytest.mark.parametrize(
    "pattern",
    ["a++", "(?>a)", "\\1", "\\p{L}", "(?s)a", "(a*)*", "(?<=a|bc)d", "[a&&[b]&c]", "\\h", "(?P<n>a)", "a{,3}"],
)
def test_what_may_mean_something_else_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(UnsureError, match=r"\S"):
        searcher(pattern, True)


def test_edges_of_words_are_read_in_ascii_alone() -> None:
    """In other texts Java's releases differ."""
    assert searcher("\\borders\\b", True).finds("my-orders")
    with pytest.raises(UnsureError, match=r"\\b"):
        searcher("\\borders\\b")
