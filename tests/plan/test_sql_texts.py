"""SQL texts, taken apart without Spark: what is certain, and nothing else."""

from __future__ import annotations

import re

import pytest

from spark_ckpt.plan.relations._sql_texts import read, taken_apart

CASES = [
    ("a = b AND c >= d and c <= d + interval 1 hour", ("and", ["a = b AND c >= d", "c <= d + interval 1 hour"])),
    ("((a=b) and (c=d))", ("and", ["(a=b)", "(c=d)"])),
    ("(a) = (b)", ("=", ["(a)", "(b)"])),
    ("a or b and c", ("or", ["a", "b and c"])),
    ("not a = b and c", ("and", ["not a = b", "c"])),
    ("NOT a = b", ("not", ["a = b"])),
    ("x between y and z and q = 1", ("and", ["x between y and z", "q = 1"])),
    ("a between b - 1 and c + 1", ("between", ["a", "b - 1", "c + 1"])),
    ("f(a = b and c) > 'x and \\' y'", (">", ["f(a = b and c)", "'x and \\' y'"])),
    ("case when a = b and c then 1 else 2 end = c", ("=", ["case when a = b and c then 1 else 2 end", "c"])),
    ("`a b`.`c and` <=> `d``=`", ("<=>", ["`a b`.`c and`", "`d``=`"])),
    ("d + interval 1 hour - interval '1' day", ("-", ["d + interval 1 hour", "interval '1' day"])),
    ("-a + b", ("+", ["-a", "b"])),
    ("a = -b", ("=", ["a", "-b"])),
    ("a <> b", ("!=", ["a", "b"])),
    ("a = b = c", ("=", ["a = b", "c"])),
    ("a between 1 and 2 = c", ("between", ["a", "1", "2 = c"])),
    ("a || b = c || d", ("=", ["a || b", "c || d"])),
    ("b <= a + interval 1 month", ("<=", ["b", "a + interval 1 month"])),
    ("a - interval -1 hour 2 minutes", ("-", ["a", "interval -1 hour 2 minutes"])),
    ("a = interval '1 2' day to hour", ("=", ["a", "interval '1 2' day to hour"])),
    ("d < DATE'2024' and exists(xs, x -> x and y)", ("and", ["d < DATE'2024'", "exists(xs, x -> x and y)"])),
    ("a << 2 or (select max(x) or y from t) > 3", ("or", ["a << 2", "(select max(x) or y from t) > 3"])),
    ("x between y << 1 and 2 and z like 'b' escape '/'", ("and", ["x between y << 1 and 2", "z like 'b' escape '/'"])),
    ("(a, b) in (select c, d from t) and e", ("and", ["(a, b) in (select c, d from t)", "e"])),
    *((text, None) for text in ("interval -1 hour", "a in (1, 2)", "a is null", "a is not distinct from b", "f(a, b)")),
    *(
        (text, None)
        for text in (
            "x not between 1 and 2",
            "a | b",
            "a and",
            "and a",
            "a = ",
            "a b",
            "a -- = b",
            "a /* */ = b",
            "(a = b",
            "",
            "-a",
        )
    ),
    *((text, None) for text in ("a like 'x' = b", "exists (select 1)", "a << 2")),
]


@pytest.mark.parametrize(("text", "parts"), CASES)
def test_a_text_is_taken_apart_where_that_is_certain(text: str, parts: tuple[str, list[str]] | None) -> None:
    found = taken_apart(text)
    assert (found and (found[0], [part.strip() for part in found[1]])) == parts


READ = {
    "sum(v) / count(*) AS mean": "/(sum(v), count(unresolvedstar())) AS mean",
    "count(DISTINCT v)": "count(distinct v)",
    "max(v + 1) total": "max(v + 1) AS total",
    "round(sum(DISTINCT a.b) * -1, 2) > 0.5": ">(round(*(sum(distinct a.b), -1), 2), 0.5)",
    "2 * (max(x) - min(x))": "*(2, -(max(x), min(x)))",
    "max(x) <> 'a' and true": "and(not(=(max(x), a)), True)",
    "struct(max(x) AS `m n`, y)": "struct(max(x) AS m n, y)",
    "max(max(x).end)": "max(max(x)['end'])",
    "max(cast(x as int))": "max(cast(x as int))",
}


def test_a_text_is_read_up_to_the_calls_that_are_asked_for() -> None:
    assert {text: str(read(text, re.compile(r"\b(sum|count|max|min)\("))) for text in READ} == READ


@pytest.mark.parametrize(
    "text", ["", "a -- b", "max(x", "upper(x)", "CASE WHEN max(x) > 1 THEN 2 END", "max(x) IS NULL"]
)
def test_other_texts_are_left_to_the_server(text: str) -> None:
    assert read(text, re.compile(r"\b(sum|count|max|min)\(")) is None
