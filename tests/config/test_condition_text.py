"""SQL texts of conditions, taken apart without Spark: what is certain, and nothing else."""

from __future__ import annotations

import pytest

from spark_ckpt.plan._condition_text import taken_apart

CASES = [
    ("a = b AND c >= d and c <= d + interval 1 hour", ("and", ["a = b", "c >= d and c <= d + interval 1 hour"])),
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
    *((text, None) for text in ("interval -1 hour", "a in (1, 2)", "a is null", "a is not distinct from b", "f(a, b)")),
    *(
        (text, None)
        for text in ("x not between 1 and 2", "a = b = c", "a | b", "a -- = b", "a /* */ = b", "(a = b", "", "-a")
    ),
    *((text, None) for text in ("a like 'x' = b", "a between 1 and 2 = c", "exists (select 1)", "a || b = c || d")),
]


@pytest.mark.parametrize(("text", "parts"), CASES)
def test_a_text_is_taken_apart_where_that_is_certain(text: str, parts: tuple[str, list[str]] | None) -> None:
    found = taken_apart(text)
    assert (found and (found[0], [part.strip() for part in found[1]])) == parts
