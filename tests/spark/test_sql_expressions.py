"""SQL texts as trees of Spark Connect's client: what is read, by Spark's precedence, and what is left to Spark."""

from __future__ import annotations

import pytest
from pyspark.sql.connect import expressions as E

from spark_ckpt.plan._sql_expressions import read
from spark_ckpt.plan._sql_literals import Interval

ZONE = "America/New_York"
READ = {
    "a AND NOT b OR c = 1": "or(and(a, not(b)), =(c, 1))",
    "!a and b": "and(not(a), b)",
    "not a = b": "not(=(a, b))",
    "a = b IS NOT NULL": "isnotnull(=(a, b))",
    "a + b * -2 - c": "-(+(a, *(b, -2)), c)",
    "a - 1": "-(a, 1)",
    "-a * ~b": "*(negative(a), ~(b))",
    "a | b ^ c & d + 1 div 2": "|(a, ^(b, &(c, +(d, div(1, 2)))))",
    "a <> b": "not(=(a, b))",
    "x NOT BETWEEN 1 AND 2 AND y": "and(not(between(x, 1, 2)), y)",
    "s LIKE 'a%' AND t NOT IN ('x', u)": "and(like(s, a%), not(in(t, x, u)))",
    "s IS NOT DISTINCT FROM t": "<=>(s, t)",
    "s IS DISTINCT FROM t": "not(<=>(s, t))",
    "b IS NOT TRUE": "not(<=>(b, True))",
    "CASE WHEN a THEN 1 ELSE 2 END": "when(a, 1, 2)",
    "CASE a WHEN 1 THEN 'x' END": "when(=(a, 1), x)",
    "cast(a as decimal(10, 2)) AS q": "CAST(a AS DECIMAL(10, 2)) AS q",
    "try_cast(a AS int)": "TRY_CAST(a AS INT)",
    "a::int + 1": "+(CAST(a AS INT), 1)",
    "s.x + xs[0].`y z`": "+(s.x, xs['0']['y z'])",
    "`a b`.c q": "`a b`.c AS q",
    r"concat(s, '\\d\'', \"'\")".replace(r"\"", '"'): r"concat(s, \d', ')",
    "s || t || 'x'": "concat(concat(s, t), x)",
    "trim(BOTH 'a' FROM s)": "trim(a, s)",
    "trim(LEADING 'a' FROM s)": "ltrim(a, s)",
    "struct(a AS x, b)": "struct(a AS x, b)",
    "DATE'2024-03-01'": "2024-03-01",
    "date": "date",
    "f()": "f()",
    "count(*) / sum(DISTINCT a)": "/(count(unresolvedstar()), sum(distinct a))",
}
LEFT = (
    "a +", "a b c", "a << 2", "x -> x + 1", "exists (select 1)",
    "a IN (select b from t)",
    "'it''s'", "'\\u0041'", "'\\%'", "a LIKE 'b' ESCAPE '/'", "a -- b", "300Y", "position('a' IN s)",
    "substring(s FROM 2)", "INTERVAL 1 MONTH", "INTERVAL '1 2' DAY TO HOUR", "interval 1.5 hour",
    "INTERVAL 1 DAY TO HOUR",
    "TIMESTAMP'2024-01-01 00:00:00+01:00'", "DATE'2024'", "cast(a AS array<int>)", "a ILIKE 'b'", "a NOT b", "",
)  # fmt: skip


def test_texts_are_read_by_sparks_precedence() -> None:
    assert {text: str(read(text, ZONE)) for text in READ} == READ


@pytest.mark.parametrize("text", LEFT)
def test_what_is_not_certain_is_left_to_spark(text: str) -> None:
    assert read(text, ZONE) is None


def test_numbers_have_sparks_types() -> None:
    texts = ("1", "2147483648", "-9223372036854775808", "9223372036854775808", "1.50", ".0", "007.0", "1e3", "2L", "3Y",
             "4S", "1.5D", "1F", "2BD", "-0.001")  # fmt: skip
    found = [read(text, ZONE) for text in texts]
    kinds = [e and e._dataType.simpleString() for e in found]
    assert kinds == ["int", "bigint", "bigint", "decimal(19,0)", "decimal(3,2)", None, "decimal(2,1)", "double",
                     "bigint", "tinyint", "smallint", "double", "float", "decimal(1,0)", "decimal(3,3)"]  # fmt: skip
    assert [str(e and e._value) for e in found[:3]] == ["1", "2147483648", "-9223372036854775808"]


def test_times_are_of_the_sessions_clock() -> None:
    moments = {
        "TIMESTAMP'2024-01-01 00:00:00'": 1_704_085_200_000_000,
        "TIMESTAMP'2024-03-10 02:30:00'": 1_710_055_800_000_000,  # not there: an hour later
        "TIMESTAMP'2024-11-03 01:30:00'": 1_730_611_800_000_000,  # twice: the first
    }
    found = {text: read(text, ZONE) for text in moments}
    assert {text: isinstance(e, E.LiteralExpression) and e._value for text, e in found.items()} == moments
    lengths = {
        "INTERVAL '-2' DAY": -172_800,
        "interval 1 week 2 Days -3 hours": 766_800,
        "INTERVAL 5 minutes '7' second": 307,
    }
    read_as = {text: read(text, ZONE) for text in lengths}
    assert {text: isinstance(e, Interval) and e.micros // 10**6 for text, e in read_as.items()} == lengths
    assert [e and e._expr for e in read_as.values()] == list(lengths)
