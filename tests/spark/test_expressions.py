"""Filters and computed columns that run in Python give what Spark gives, cell by cell and error by error."""

from __future__ import annotations

import os
import re
import runpy
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F

from spark_ckpt.errors import ExpressionError
from spark_ckpt.execution.lineage import Stays
from spark_ckpt.expressions.evaluate import CHOOSING, FUNCTIONS
from spark_ckpt.expressions.tree import calls
from spark_ckpt.state.ipc import nullable_type
from tests.generated.typed_expressions import Writer, rows, shown
from tests.spark.in_arrow import in_arrow

SEED = int(os.environ.get("SEED", "1"))
AT_ONCE = 40
CONDITION = re.compile(r"\[[A-Z_]+")
"""Spark's name of it, without its kind."""
LONG_OVERFLOW = "long overflow"
"""Of Java's arithmetic, which Spark hands on as it is."""


class Oracle:
    """Spark's results of expressions over one table, and ours."""

    def __init__(self, spark: Any, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._df = spark.createDataFrame(pa.Table.from_batches([batch])).coalesce(1)

    def spark(self, *texts: str) -> pa.Table:
        return self._df.selectExpr(*[f"{text} AS c{i}" for i, text in enumerate(texts)]).toArrow()

    def translated(self, text: str) -> Any:
        return in_arrow(self._df, self._df.selectExpr(f"{text} AS c0"))

    def ours(self, operations: Any) -> pa.Array:
        batches: Iterator[pa.RecordBatch] = iter([self._batch])
        for operation in operations:
            batches = operation(batches)
        [batch] = batches
        return batch.column(0)


def check(spark: Any, random: Random, count: int, ansi: bool) -> None:
    """``count`` expressions, with Spark's results or its error."""
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    # To its optimizer the constants 0.0 and -0.0 are one: of IF between them it makes the first, always.
    spark.conf.set("spark.sql.optimizer.excludedRules", "org.apache.spark.sql.catalyst.optimizer.SimplifyConditionals")
    oracle, writer = Oracle(spark, rows(random, 8 if ansi else 200, mild=ansi)), Writer(random)
    texts: dict[str, Any] = {}
    stayed: Counter[str] = Counter()
    while len(texts) < count:
        text = writer.any(random.choice([1, 2, 3]))
        try:
            found = oracle.translated(text)
        except AnalysisException:  # two types that Spark does not compare
            continue
        if isinstance(found, Stays):
            stayed[found.why] += 1
        else:
            texts[text] = found
    assert stayed.total() <= count // 4, stayed.most_common(10)
    names = list(texts)
    for start in range(0, count, 1 if ansi else AT_ONCE):
        compare(oracle, {name: texts[name] for name in names[start : start + (1 if ansi else AT_ONCE)]})


def compare(oracle: Oracle, texts: dict[str, Any]) -> None:
    try:
        expected = oracle.spark(*texts)
    except Exception as e:
        if len(texts) > 1:  # one of them fails, whatever the mode
            for one in texts.items():
                compare(oracle, dict([one]))
            return
        [(text, operations)] = texts.items()
        condition = CONDITION.match(str(e))
        if condition is None and LONG_OVERFLOW not in str(e):
            raise
        with pytest.raises(ExpressionError, match=re.escape(LONG_OVERFLOW if condition is None else condition[0])):
            oracle.ours(operations)
        return
    for column, (text, operations) in zip(expected.columns, texts.items(), strict=True):
        found = oracle.ours(operations)
        assert found.type == nullable_type(column.type) or pa.types.is_timestamp(found.type), text
        wrong = [pair for pair in zip(shown(found), shown(column.combine_chunks()), strict=True) if pair[0] != pair[1]]
        assert not wrong, f"{text}: ours and Spark's differ in {len(wrong)} rows, first {wrong[0]}"


def test_random_expressions_have_sparks_values(spark: Any) -> None:
    check(spark, Random(SEED), 120, ansi=False)


def test_random_expressions_fail_where_spark_fails(spark: Any) -> None:
    check(spark, Random(SEED), 30, ansi=True)


@pytest.mark.soak
def test_many_random_expressions_are_sparks(spark: Any) -> None:
    for seed in range(SEED, SEED + int(os.environ.get("SEEDS", "10"))):
        check(spark, Random(f"many {seed}"), 400, ansi=False)
        check(spark, Random(f"many ansi {seed}"), 200, ansi=True)


ARGUMENTS = {
    **dict.fromkeys(("+", "-", "*", "/", "%", "div", "&", "|", "^", "=", "<>", "<", "<=", ">", ">=", "<=>"), "l {} i"),
    **dict.fromkeys(("and", "or"), "b {} (d > 1)"),
    "not": "not (l > 1)", "~": "~ l", "between": "l between 1 and i", "in": "i in (1, l)",
    "case when": "case when b then i when d > 1 then l end", "when": "case when b then i end", "bitwise_not": "~l",
    "between numbers": "cast(d as int)", "round of a decimal": "round(m, 1)",
    "boolean to number and back": "cast(cast(b as int) as boolean)",
    "anything but floats to string": "concat(cast(b as string), cast(m as string), cast(at as string))",
    "string to anything": "coalesce(cast(cast(u as boolean) as int), cast(u as int), cast(u as double))",
    "between date and timestamp": "cast(cast(at as date) as timestamp)", "like": "s like 'a%'",
    "number to timestamp and back": "cast(cast(i as timestamp) as double)",
    "plus and minus an interval": "at + INTERVAL 1 HOUR - INTERVAL 2 DAY", "an element of one": "xs[1]",
    **dict.fromkeys(("array_size", "cardinality", "size"), "{}(xs)"), "array_contains": "array_contains(xs, 1)",
    **dict.fromkeys(("element_at", "get"), "{}(xs, 1)"), **dict.fromkeys(("greatest", "least"), "{}(l, i)"),
    **dict.fromkeys(("btrim", "initcap", "lcase", "lower", "reverse", "ucase", "upper"), "{}(s)"),
    "concat_ws": "concat_ws('-', s, t)", "instr": "instr(s, 'b')",
    **dict.fromkeys(("locate", "position"), "{}('b', s)"),
    **dict.fromkeys(("left", "right", "repeat"), "{}(s, 2)"), **dict.fromkeys(("lpad", "rpad"), "{}(s, 4, 'ab')"),
    **dict.fromkeys(("regexp", "regexp_like", "rlike"), "{}(s, '^a|b$')"),
    "regexp_extract": "regexp_extract(s, '(a)(b)?', 2)",
    "regexp_replace": "regexp_replace(s, 'a+', 'x')", "replace": "replace(s, 'a', 'x')", "split": "split(s, 'b')",
    "substring_index": "substring_index(s, 'b', 1)", "translate": "translate(s, 'ab', 'x')",
    "add_months": "add_months(day, 1)", "date_format": "date_format(at, 'yyyy-MM-dd HH:mm')",
    "date_trunc": "date_trunc('hour', at)",
    "from_unixtime": "from_unixtime(l)", "to_date": "coalesce(to_date(v), to_date(v, 'yyyy-MM-dd'))",
    "trunc": "trunc(day, 'MM')",
    "to_timestamp": "coalesce(to_timestamp(v), to_timestamp(v, 'yyyy-MM-dd HH:mm:ss'))",
    "to_unix_timestamp": "to_unix_timestamp(at)",
    "a field of one": "st.x", "from_json": "from_json(concat('{{\"a\": ', i, '}}'), 'a int, b string')",
    "get_json_object": "get_json_object(concat('{{\"a\": ', i, '}}'), '$.a')",
    "json_array_length": "json_array_length(concat('[', i, ']'))",
    "json_object_keys": "json_object_keys(concat('{{\"a\": ', i, '}}'))",
    "named_struct": "named_struct('x', i)", "struct": "struct(i, s)", "if": "if(b, i, l)",
    **dict.fromkeys(("coalesce", "ifnull", "nullif", "nvl", "equal_null"), "{}(l, i)"), "nvl2": "nvl2(s, i, l)",
    "nanvl": "nanvl(d, d / 2)",
    **dict.fromkeys(("abs", "ceil", "ceiling", "floor", "negative", "positive", "sqrt", "isnan"), "{}(d)"),
    "negate": "negative(d)", **dict.fromkeys(("isnull", "isnotnull"), "{}(st)"), "concat": "concat(s, t, 'x')",
    **dict.fromkeys(("contains", "startswith", "endswith"), "{}(s, 'a')"),
    **dict.fromkeys(("substr", "substring"), "{}(s, 2, 3)"),
    **dict.fromkeys(("char_length", "character_length", "length", "trim", "ltrim", "rtrim"), "{}(s)"),
    **dict.fromkeys(("date_add", "date_sub"), "{}(day, i16)"),
    **dict.fromkeys(("date_diff", "datediff"), "{}(day, day)"),
    **dict.fromkeys(("timestamp_micros", "timestamp_millis", "timestamp_seconds"), "{}(i)"),
    **dict.fromkeys(("hour", "minute", "second", "unix_timestamp"), "{}(at)"),
    **dict.fromkeys(("unix_micros", "unix_millis", "unix_seconds"), "{}(at)"),
}  # fmt: skip
"""Of functions of the docs' table; those of a date are left out."""


def test_every_function_of_the_docs_runs_in_python(spark: Any) -> None:
    """The page is made of the same list."""
    check_functions(spark)


def check_functions(spark: Any, in_spark: Mapping[str, str] | None = None) -> None:
    """``in_spark``: functions that run there all the same, and the class of Spark's that each of them is."""
    there = in_spark or {}
    named = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "site_docs.py"))["HERE"]
    oracle = Oracle(spark, rows(Random(0), 20))
    spark.conf.set("spark.sql.ansi.enabled", "false")
    texts = [ARGUMENTS.get(name, "{}(day)").format(name) for names in named.values() for name in names]
    found = {text: oracle.translated(text) for text in texts}
    stays = {text for text, why in found.items() if isinstance(why, Stays)}
    assert stays == {ARGUMENTS[name].format(name) for name in there}
    found = {text: ops for text, ops in found.items() if text not in stays}
    seen = {call.function for ops in found.values() for op in ops for _, tree in op.columns for call in calls(tree)}
    known = (FUNCTIONS.keys() | CHOOSING.keys()) - set(there.values())
    assert seen == known, seen ^ known
    compare(oracle, found)


def test_a_zone_that_only_spark_knows_keeps_times_there(spark: Any) -> None:
    oracle = Oracle(spark, rows(Random(0), 20))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    for other, stays in (("GMT+3", True), ("+05:30", True), ("Asia/Kolkata", False)):
        spark.conf.set("spark.sql.session.timeZone", other)
        texts = ("hour(at)", "cast(at as string)", "cast(v as timestamp)", "unix_date(day)")
        found = {text: oracle.translated(text) for text in texts}
        assert [isinstance(why, Stays) for why in found.values()] == [stays, stays, stays, False]
        compare(oracle, {text: why for text, why in found.items() if not isinstance(why, Stays)})
    spark.conf.set("spark.sql.session.timeZone", zone)


def test_a_day_that_no_timestamp_has_fails_as_in_spark(spark: Any) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    oracle = Oracle(spark, rows(Random(0), 20))
    last, behind = (f"cast(date_add(date'1970-01-01', i * 0 + {day}) as timestamp)" for day in (106751900, 106752100))
    with pytest.raises(Exception, match=LONG_OVERFLOW):
        oracle.spark(behind)
    compare(oracle, {text: oracle.translated(text) for text in (last, behind, "day")})


PATTERNS = [
    "a$", "^$", "^a|b$", r"(\d+)[-/](\d+)?", r"[^\w\s]", "(?i)[b-d]x?", "a{2,3}?b", ".", r"\.", "x.y", "(?:ab)+c?",
    r"[\d.,-]+$", "(a|ab)(c|bcd)(d)?", "[ä-ö]", r"\S+\s",
]  # fmt: skip
TEXTS = [
    "", "a", "a\n", "a\r\n", "a\r", "\n", "12-34/5", "abcd", "ababc", "aaab", "AxbX", "x\ny", "x\u0085y", "xßy",
    "ö.ä", "1,5 - x", "\u0660", "\u2028", "😀a", "k\u212a",
]  # fmt: skip


def test_regular_expressions_find_what_javas_find(spark: Any) -> None:
    oracle = Oracle(spark, pa.RecordBatch.from_pydict({"s": [*TEXTS, None]}))
    functions = ("s RLIKE {}", "regexp_extract(s, {}, 0)", "regexp_replace(s, {}, '<$0>')", "regexp_replace(s, {}, '')")
    texts = {f.format(repr(p)): oracle.translated(f.format(repr(p))) for p in PATTERNS for f in functions}
    stay = [text for text, found in texts.items() if isinstance(found, Stays)]
    assert [text for text in stay if "regexp_replace" not in text or "'^$'" not in text] == []
    compare(oracle, {text: found for text, found in texts.items() if text not in stay})


@pytest.mark.soak
def test_every_letter_has_sparks_cases(spark: Any) -> None:
    """Sigma apart, whose small letter depends on its neighbours."""
    letters = [chr(c) for c in range(1, 0x1FA00) if not 0xD800 <= c < 0xE000]
    oracle = Oracle(spark, pa.RecordBatch.from_pydict({"s": letters}))
    for text in ("upper(s)", "lower(concat('a', s, 'b'))", "initcap(s)", "initcap(concat('b ', s, 'B'))"):
        compare(oracle, {text: oracle.translated(text)})


def test_a_stream_computes_in_python_what_it_can(
    ckpt: Any, new_input: Any, job: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    source = new_input("input", "k string, v long")
    source.add(*[(f"k{i % 5}", i) for i in range(60)], (None, None))
    source.add(("k1", 100), ("K1", -7))
    stream = source.stream(ckpt).where("v % 16 <> 3").withColumn("v", F.col("v") * 2 + 1)
    stream = stream.select(F.soundex("k").alias("k"), "v").where(F.col("k").isNotNull())
    ckpt.explain(stream)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(". ")[0] for line in shown[:-1]] == [
        "Filter: in Arrow, if its rows are there",
        "Project: in Spark: soundex runs in Spark only",
        "Project: in Arrow, if its rows are there",
        "Filter: in Arrow, if its rows are there",
    ]
    job.run(stream)
    expected = source.table(ckpt.spark).where("v % 16 <> 3").selectExpr("soundex(k) AS k", "v * 2 + 1 AS v")
    assert sorted(job.rows()) == sorted(tuple(row) for row in expected.where("k IS NOT NULL").collect())


def test_what_python_computed_may_be_read_by_spark(ckpt: Any, new_input: Any, job: Any) -> None:
    """A literal is never null, which Spark notes of a column and Arrow batches do not."""
    source = new_input("input", "k string, v long")
    source.add(("a", 1), ("b", 2))
    one, two = (source.stream(ckpt).withColumn("of", F.lit(n)).where("v > 1") for n in ("one", "two"))
    job.run(one.union(two))
    assert job.rows() == [("b", 2, "one"), ("b", 2, "two")]


def test_a_value_without_a_result_fails_the_query_as_in_spark(ckpt: Any, new_input: Any, job: Any) -> None:
    source = new_input("input", "k string, v long")
    ckpt.spark.conf.set("spark.sql.ansi.enabled", "true")
    source.add(("a", 1), ("b", 2**62))
    job.run(source.stream(ckpt).where("v < 5").withColumn("v", F.col("v") * 2))
    assert job.rows() == [("a", 2)]
    source.add(("c", 2**62))
    with pytest.raises(StreamingQueryException, match=r"\[ARITHMETIC_OVERFLOW\] in multiply of int64: a value"):
        job.run(source.stream(ckpt).withColumn("v", F.col("v") * 2))
