"""Random programs of DataFrames whose columns have each other's names, behind joins and projections.

``make soak PYTEST_ARGS="tests/generated/test_generated_names.py -s" CHAINS=2000 SEED=7`` tries more, and says what is
refused here and not in Spark.
"""

from __future__ import annotations

import collections
import itertools
import os
import random
import re
from dataclasses import replace
from typing import Any

import pytest

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.analysed.translate import HANDLERS
from tests.generated.lab import Lab
from tests.generated.named_programs import (
    KINDS,
    REFUSED,
    UNTOLD,
    ProgramMaker,
    assert_as_in_spark,
    assert_rows_as_in_spark,
    check_programs,
    first_difference,
    made_sides,
)
from tests.generated.test_generated_chains import SEED, SOAKED, Tally, say
from tests.generated.two_sides import Query

IN_A_QUERY = int(os.environ.get("IN_A_QUERY", "5"))
METHODS = [
    *("agg", "alias", "colRegex", "count", "cube", "distinct", "drop", "dropDuplicates", "dropna", "explode", "fillna"),
    *("getField", "groupBy", "hint", "join", "max", "repartition", "replace", "rollup", "select", "selectExpr"),
    *("struct", "toDF", "union", "unionByName", "where", "withColumn", "withColumnRenamed", "withColumns"),
    "withColumnsRenamed",
]
TEXTS = ("['*']", ".*'", "'left'", "'left_semi'", "a['k']", ".k", "`x.y`", "Größe", "a``b", "q[", "p1[", "st.k")


def test_programs_of_names_do_what_they_do_in_spark(lab: Lab) -> None:
    check_programs(lab.spark, lab.folder, 12, 3)


@pytest.mark.soak
def test_many_programs_of_names_do_what_they_do_in_spark(lab: Lab) -> None:
    tally, refused = Tally(), collections.Counter[str]()

    def check(seed: int) -> None:
        for finding in check_programs(lab.spark, lab.folder, seed, IN_A_QUERY):
            method = finding.statements[-1].partition("(")[0]
            refused[f"{method}: {finding.kind}: " + re.sub(r"'[^']*'|`[^`]*`|\d+", "_", finding.told)[:200]] += 1

    for seed in itertools.islice(itertools.count(SEED * 1000), max(1, SOAKED // (4 * IN_A_QUERY))):
        tally.count(IN_A_QUERY, lambda seed=seed: check(seed))  # type: ignore[misc]
    for told, times in refused.most_common(40):
        say(f"{times} times {told}")
    assert not tally.wrong, "\n\n".join(tally.wrong)


@pytest.mark.soak
def test_every_method_is_in_a_program_that_both_take(lab: Lab) -> None:
    """Looked for until all are found: which of them a seed has, depends on what was taken in front."""
    sides = made_sides(lab.spark, lab.folder / "every name", random.Random(1))
    methods, texts = {f".{name}(" for name in METHODS}, set(TEXTS)
    for seed, kind in itertools.product(range(150), KINDS):
        made = "\n".join(["", *ProgramMaker(f"{seed}/{kind}", sides).made(kind, 8).statements])
        methods, texts = ({one for one in left if one not in made} for left in (methods, texts))
        if not methods | texts:
            break
    assert methods | texts == set()


ITSELF, BY_NAME = "p1 = a.where(a['v'] > 1)", "q = q.join(p1, ['v'])"
OF_ITSELF = ["drop(p1['k'], p1['t'])", "drop(a['k'], 'st')", "select(a['*'], p1['v'])"]
MENDED: list[list[str]] = [
    ["q = q.join(b, a['k'] == b['k'])", "q = q.select(a['*'], b['v'].alias('v2'), b['*'])"],
    ["q = q.join(b, a['k'] == b['k'])", "q = q.select(F.col('*'), q['*'])"],
    ["q = q.alias('x').join(b.alias('y'), F.col('x.k') == F.col('y.k'))", "q = q.select('x.*', F.col('y.*'))"],
    ["q = q.join(s.alias('y'), F.col('y.k') == q['k'], 'left')", "q = q.withColumn('st', F.struct(c['k'], q['st']))"],
    ["q = q.join(s, 'v', 'left')", "q = q.fillna(0)"],
    ["q = q.join(d, q['v'] == d['w'])", "q = q.select('*')"],
    ["q = q.toDF('m', 'l', 'f', 'g', 'h', 'j')", "q = q.withColumnRenamed('m', 'e')", "q = q.where(F.col('k') > 'a')"],
    ["q = q.join(b, ['v'])", "q = q.drop(b['v'], b['k'])"],
    ["q = q.join(b, a['k'] == b['k'])", "q = q.withColumnsRenamed({'x.y': 'K', 'k': 'g', 'v': 'w', 'w': 'v'})"],
    ["q = q.join(b, a['k'] == b['w'])"],
    *([ITSELF, BY_NAME, f"q = q.{asked}"] for asked in OF_ITSELF),
    ["q = q.alias('x').select(F.upper('k').alias('e'))", "q = q.groupBy('e').count()"],
    ["q = q.alias('x').select('k', 'v').toDF('e', 'f')", "q = q.distinct()", "q = q.dropDuplicates(['e'])"],
    ["q = q.groupBy('`X.Y`', q['V']).count()"],
    ["q = q.groupBy(a['t'].cast('string'), a['v'].cast('string')).count()"],
    [
        "p1 = a.select(a['v'] + 1, 'k').toDF('v', 'e')",
        "q = q.join(p1, a['v'] == p1['v'])",
        "q = q.join(b, q['t'] == b['u'])",
    ],
    ["q = q.drop('k')", "q = q.join(c, 'v')", "q = q.drop(c['k'])"],
    ["p1 = a.withColumnRenamed('k', 'e')", "q = q.join(p1, a['k'] == p1['e'])", "q = q.select(a['k'], p1['e'])"],
    ["q = q.select(a['v'], 'v', 'k')", "q = q.join(s, 'k').join(c, ['v'])"],
    ["q = b.join(q.select(a['v'], 'v', 'k'), 'v')"],
    ["q = q.alias('y').union(a)", "q = q.where('y.st.x > 1').select('y.k', 'y.*')"],
    ["q = q.join(b, q['`x.y`'] == b['w'])", "q = q.alias('x')", "q = q.withColumn('x.y', b['v'].isNull())"],
    ["q = q.join(b, q['t'] == b['u'])", "q = q.alias('B')", "q = q.groupBy(F.col('W') + 1).agg(F.max('B.W'))"],
    ["p1 = b.where('w > 1')", "q = q.join(b, a['k'] == p1['k'])", "q = q.select(a['k'], p1['w'], b['v'])"],
    [
        "p1 = b.where('w > 1')",
        "q = q.join(b, a['k'] == b['k'])",
        "q = q.join(c.toDF('x', 'y'), F.col('x') == p1['k'])",
    ],
]
"""Which went another way than in Spark, once."""
SELECTED = "q = q.select('v', 'xs', F.col('v'))"
TWICE = [
    [SELECTED, "q = q.withColumn('K', F.explode('xs'))", "q = q.toDF(*'vwvw')", "q = q.withColumn('e', F.lit(5))"],
    [SELECTED, "q = q.where(F.size('xs') > 0)", "q = q.withColumnRenamed('x', 'y')"],
    ["q = q.alias('y')", "q = q.withColumnRenamed('st', 'K')", "q = q.select('y.*', F.lit(5).alias('f'))"],
    ["q = q.join(b, a['k'] == b['k'])", "q = q.select(a['*'], b['v'].alias('v2'))"],
]


@pytest.mark.soak
def test_what_was_mended_is_as_in_spark(lab: Lab) -> None:
    assert_as_in_spark(lab, MENDED, MENDED[:2])


@pytest.mark.soak
def test_names_that_come_twice_reach_the_rows(lab: Lab) -> None:
    """They were refused by Spark at ``start()``, or by Python in the first batch."""
    sides = made_sides(lab.spark, lab.folder / "twice", random.Random(1))
    assert sides.difference([Query(tuple(statements)) for statements in TWICE]) is None


ST = "q = q.alias('st').join(b, ['k'])"
OF_AN_ALIAS = [
    [ST, "q = q.drop(b['v'])", "q = q.select('st.k')"],
    [ST, "q = q.drop(b['v'])", "q = q.where(F.col('st.k') == 'a')", "q = q.where(b['v'].isNull() | (b['v'] > 0))"],
    [ST, "q = q.drop(b['v'])", "q = q.dropna(subset=['k']).dropDuplicates(['k'])", "q = q.select('st.k')"],
    [ST, "q = q.select('st', 'k', 'w')", "q = q.select('st.k', 'st.x', 'w')"],
    [ST, "q = q.select('st.*', b['v'])", "q = q.where(F.col('st.k') == 'a')", "q = q.select(F.col('st.k'), b['v'])"],
    ["q = q.alias('st').dropDuplicates(['k'])", "q = q.withColumn('x', F.lit(5))", "q = q.select('st.k', 'st.x')"],
    ["q = q.alias('st').groupBy('st.k', 'st').count()", "q = q.where(F.col('st.k') == 'a')"],
    [ST, "q = q.select(q['st.k'], q['st.v'] + 1)"],
    [
        "q = q.alias('x').join(b.alias('y'), F.col('x.k') == F.col('y.k'))",
        "q = q.groupBy('x.k', 'y.v').count()",
        "q = q.where(\"x.k > ''\").select('y.v', 'x.*', a['k'])",
    ],
    [ST, "q = q.select(F.posexplode('xs'), 'k', 'w', b['v'])", "q = q.select('st.k', a['k'], b['v'].alias('n'))"],
    ["q = q.alias('x')", "q = q.where(q['x.v'] > 0)", "q = q.select(q['x.st.x'], q['x.v'] + 1)"],
    ["q = q.withColumnRenamed('k', 'e').alias('x').join(b, 'v')", "q = q.drop('Größe')", "q = q.where('x.e > \"\"')"],
]


@pytest.mark.soak
def test_an_alias_stands_in_front_of_columns_behind_joins_and_operators(lab: Lab) -> None:
    """``st.k`` was taken for a field of the column ``st``."""
    assert_as_in_spark(lab, OF_AN_ALIAS, OF_AN_ALIAS[3:4])


BY_FIRST = [
    [
        "q = q.join(b, a['v'] == b['v'])",
        "q = q.join(s, 'k')",
        "q = q.where(b['k'] == 'b').select(a['k'], s['k'], s['v'])",
    ],
    ["q = q.join(b, a['v'] == b['v'])", "q = q.join(s, ['V', 'k'], 'left_semi')", "q = q.drop(b['k'])"],
    ["q = q.join(b, a['v'] == b['v'])", "q = a.join(q, 'k')", "q = q.select('*')"],
    [
        "q = q.alias('x').join(b.alias('y'), F.col('x.v') == F.col('y.v'))",
        "q = q.join(s.alias('z'), 'k')",
        "q = q.select('x.k', 'y.k', 'z.v', 'x.*')",
        "q = q.where(F.col('y.k') == 'b')",
    ],
]


@pytest.mark.soak
def test_a_join_by_a_name_that_comes_twice_is_by_the_first_of_them(lab: Lab) -> None:
    assert_as_in_spark(lab, BY_FIRST)


SAME_NAMES = [
    ["q = q.join(b, a['k'] == b['k'])", "q = q.groupBy(a['v'], b['v'], 'xs').agg(F.sum('w'), F.max('w').alias('v'))"],
    ["q = q.groupBy('st.k', 'k').count()", "q = q.select(a['k'], 'count')"],
    ["q = q.groupBy('k').agg(F.max('v').alias('k'), F.count('*').alias('n'), F.min('v').alias('N'))"],
    ["q = q.groupBy('v', 'v').agg((F.sum('v') + F.col('v')).alias('v'))"],
    ["q = q.groupBy('k', F.upper('k').alias('k')).agg(F.count('*'), F.max('k'))"],
    ["q = q.agg(F.count('*').alias('n'), F.sum('v').alias('n'))"],
    ["q = q.groupBy(F.window('t', '1 hour'), F.window('t', '1 hour').alias('window')).count()"],
    ["q = q.groupBy(q['K'], F.col('k').alias('K')).count()", "q = q.select(a['k'], 'count')"],
    [
        "q = q.alias('x').join(b, ['k'])",
        "q = q.groupBy('x.k', b['v'], 'x.v').count()",
        "q = q.select('x.*', 'count', b['v'])",
    ],
]


@pytest.mark.soak
def test_keys_and_results_may_have_one_name(lab: Lab) -> None:
    sides = assert_as_in_spark(lab, SAME_NAMES)
    assert [sides.difference([Query(tuple(made), "update")]) for made in SAME_NAMES[2:3]] == [None]


@pytest.mark.soak
@pytest.mark.parametrize(
    "programs", [MENDED, OF_AN_ALIAS, BY_FIRST, SAME_NAMES], ids=["mended", "alias", "first", "same"]
)
def test_rows_of_all_these_programs_are_those_of_spark(lab: Lab, programs: list[list[str]]) -> None:
    assert_rows_as_in_spark(lab, programs)


def mixed_up(true: Any) -> Any:
    """A translation of joins in which two columns of one name are taken for each other."""

    def joined(walk: Any, node: Any) -> Any:
        made = true(walk, node)
        names, mixed = [str(a.name()).lower() for a in made.attributes], list(made.attributes)
        for place, name in enumerate(names):
            first = names.index(name)
            mixed[place], mixed[first] = mixed[first], mixed[place]
        return replace(made, attributes=tuple(mixed))

    return joined


def raising(error: Exception) -> Any:
    def raised(*_: Any) -> Any:
        raise error

    return raised


BY_KEYS = ["q = q.join(b, a['k'] == b['k'])", "q = q.select(a['v'], b['v'].alias('w'))"]


def test_columns_of_one_name_that_are_mixed_up_are_told(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = made_sides(lab.spark, lab.folder / "mixed up", random.Random(1))
    assert sides.difference([Query(tuple(BY_KEYS))]) is None
    monkeypatch.setitem(HANDLERS, "join", mixed_up(HANDLERS["join"]))
    assert "here alone" in (sides.difference([Query(tuple(BY_KEYS))]) or "")


@pytest.mark.parametrize(("error", "kind"), [(InvalidInputError("no"), REFUSED), (ValueError("no"), UNTOLD)])
def test_what_is_refused_is_told(lab: Lab, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: str) -> None:
    sides = made_sides(lab.spark, lab.folder / kind.replace(" ", "-"), random.Random(1))
    assert first_difference(sides, BY_KEYS) is None
    monkeypatch.setitem(HANDLERS, "join", raising(error))
    assert (first_difference(sides, BY_KEYS) or [""])[0] == kind
