"""What tables joined with streams are known by further on: their aliases, and ``table["k"]``. Spark is the oracle."""

from __future__ import annotations

import pytest

from tests.generated.lab import Lab
from tests.generated.named_programs import assert_as_in_spark, assert_rows_as_in_spark

BY_V = "q = q.join(b, ['v'])"
TABLES_TWICE = [
    ["q = q.join(s, ['v', 'k'], 'left_anti')", "q = q.join(s, a['k'] == s['k'])", "q = q.drop(s['k'])"],
    ["q = q.join(s, 'v', 'left_semi')", "q = q.join(s, a['k'] == s['k'])", "q = q.select(a['k'], s['k'], s['v'])"],
    [BY_V, "q = q.join(s, 'v', 'left_semi')", "q = q.join(s, a['k'] == s['k'])", "q = q.drop(s['k'])"],
    ["q = q.join(s, 'k').join(c, 'v')", "q = q.join(s, 'v')"],
]


@pytest.mark.soak
def test_a_table_that_is_joined_twice_is_told_as_in_spark(lab: Lab) -> None:
    """The preview is no stream: Spark gave the second one's columns new ids there, so ``s["k"]`` was not found."""
    assert_as_in_spark(lab, TABLES_TWICE, TABLES_TWICE[:1])


X_Z, BY_KEY = "q = q.alias('x').join(s.alias('z'), F.col('x.k') == F.col('z.k'))", "q = q.join(s, a['k'] == s['k'])"
AND_B = f"{BY_KEY}.join(b, a['k'] == b['k'])"
TABLES_IN_FRONT = [
    [X_Z, "q = q.join(b.alias('y'), F.col('z.v') == F.col('y.v'))", "q = q.select('x.k', 'z.k', 'y.v', 'z.*')"],
    [
        "q = q.alias('x').join(s.alias('z'), 'k').where('x.v > 1').withColumn('n', F.col('x.v') + F.col('z.v'))",
        "q = q.join(b.alias('y'), F.col('x.k') == F.col('y.k'))",
        "q = q.select('n', 'x.*', 'y.k')",
    ],
    [BY_KEY, "q = q.join(b, (a['k'] == b['k']) & (s['v'] > b['v']))", "q = q.select(s['v'], b['v'], a['v'])"],
    ["q = b.join(q.alias('x').join(s.alias('z'), 'k'), F.col('x.k') == b['k'])", "q = q.select('z.v', b['v'])"],
    [AND_B, "q = q.drop(s['v'], b['v']).where('v > 1')"],
    [AND_B, "q = q.where(s['v'] > 2).withColumn('n', s['v'] + b['v'] + a['v'])"],
    [AND_B, "q = q.join(d, d['K'] == s['k'])", "q = q.select(d['w'], s['k'], b['w'])"],
    [f"{BY_KEY}.join(b.join(d, b['w'] == d['w']), s['k'] == d['K'])", "q = q.select(d['w'], s['k'], b['w'])"],
    [f"{BY_KEY}.alias('n').join(b.alias('y'), F.col('n.t') == F.col('y.u'))", "q = q.select('n.K3', s['v'])"],
    [
        "q = q.alias('x').join(s.alias('z'), 'k')",
        "q = q.groupBy('z.K3', 'x.k').agg(F.sum('z.v').alias('n'))",
        "q = q.select('z.K3', 'x.k', 'n', s['K3'])",
    ],
]


@pytest.mark.soak
def test_a_table_in_front_of_a_join_of_streams_or_an_operator_is_known_behind_it(lab: Lab) -> None:
    """By its alias, and as ``table["k"]``: there it is Spark's no more, and it was refused."""
    assert_as_in_spark(lab, TABLES_IN_FRONT, TABLES_IN_FRONT[1:2])


BY_O_C, AND_WEIGHT = "q = a.alias('o').join(s.alias('c'), F.expr('o.k = c.k'))", "agg(F.sum('o.v').alias('n'))"
TWO_TABLES = ".join(s.alias('y'), F.expr('o.k = y.k'), 'left').join(s.alias('z'), F.expr('p.k = z.k'), 'left')"
BEHIND_OPERATORS = [
    [BY_O_C, "q = q.withWatermark('t', '1 hour')", "q = q.groupBy(F.window('o.t', '1 hour'), 'c.K3').count()"],
    [f"{BY_O_C}.groupBy('o.k', 'c.k').{AND_WEIGHT}", "q = q.where('c.k > o.k or n > 1').select('c.k', 'o.*', 'n')"],
    [f"{BY_O_C}.groupBy('o.k', 'c.k').{AND_WEIGHT}", "q = q.drop(F.col('c.k')).select('k', 'o.k')"],
    [f"{BY_O_C}.groupBy(F.lower('o.k').alias('k'), 'c.k').count()", "q = q.select('c.k', 'count')"],
    [f"{BY_KEY}.groupBy(s['K3'], a['k']).agg(F.max(s['v']).alias('m'))", "q = q.select(s['K3'], a['k'], 'm')"],
    [
        f"{AND_B}.join(s.alias('y'), a['k'] == F.col('y.k'))",
        "q = q.groupBy(F.window('t', '1 hour'), 'y.K3').agg(F.max('y.v'))",
    ],
    [f"{BY_KEY}.groupBy(s['K3']).count().drop(s['K3'])"],
    [f"{BY_KEY}.groupBy(s['K3']).count().where(s['K3'] > 'A').orderBy(s['K3'])"],
    [f"{BY_KEY}.groupBy(s['k'], 't').count().join(d, s['k'] == d['K'])", "q = q.select(s['k'], d['K'], 'w')"],
    ["q = q.join(s, 'k').dropDuplicates(['k'])", "q = q.select(a['k'], s['K3'], s['v'])"],
    [f"q = a.alias('o').join(b.alias('p'), a['v'] == b['w']){TWO_TABLES}", "q = q.select('o.v', 'y.K3', 'y.k', 'z.*')"],
    [f"q = a.alias('o').join(b.alias('p'), a['v'] == b['w']){TWO_TABLES}", "q = q.where('y.v > z.v').select('y.*')"],
    [
        f"{AND_B}.join(s.alias('y'), a['k'] == F.col('y.k'))",
        "q = q.join(d, F.col('y.v') == d['w']).select('y.k', d['K'])",
    ],
]


@pytest.mark.soak
def test_a_table_in_front_of_operators_and_of_another_table_is_known_behind_them(lab: Lab) -> None:
    """What keys and de-duplicated rows are of, no Spark knows where rows come out of Python."""
    assert_as_in_spark(lab, BEHIND_OPERATORS)


@pytest.mark.soak  # in the test command, rows of such programs: test_generated_names.py
@pytest.mark.parametrize(
    "programs", [TABLES_TWICE, TABLES_IN_FRONT, BEHIND_OPERATORS], ids=["twice", "front", "behind"]
)
def test_rows_of_all_these_programs_are_those_of_spark(lab: Lab, programs: list[list[str]]) -> None:
    assert_rows_as_in_spark(lab, programs)
