"""What the text of an analysed plan tells about control rows."""

from __future__ import annotations

import pytest

from spark_ckpt.plan._plan_text import parse
from spark_ckpt.plan.relations._text_check import computed_control_column, keeps_control_rows

PLAN = """\
Project [k#0, a
b AS x#9, scalar-subquery#7 [] AS y#8]
:  +- Aggregate [max(z#41) AS max(z)#89]
:     +- LogicalRDD [k2#40, z#41], false
+- Join LeftOuter, ((k#0 = key#4) AND isnull(__ckpt_ctl#2))
   :- Filter (isnotnull(__ckpt_ctl#2) OR (k#0 = x))
   :  +- LocalRelation [k#0, __ckpt_tag#1L, __ckpt_ctl#2]
   +- ResolvedHint (strategy=broadcast)
      +- Aggregate [key#4], [key#4]
         +- Relation [key#4] parquet
"""


def test_a_plan_is_read_without_what_stands_in_subqueries() -> None:
    nodes = parse(PLAN)
    names = ["Project", "Join", "Filter", "LocalRelation", "ResolvedHint", "Aggregate", "Relation"]
    assert [n.name for n in nodes] == names
    assert nodes[0].text.startswith("Project [k#0, a\nb AS x#9"), "a line break in a literal belongs to its node"
    assert nodes[3].same == "LocalRelation [k, __ckpt_tag, __ckpt_ctl]"


@pytest.mark.parametrize(
    ("condition", "keeps"),
    [
        ("(isnotnull(__ckpt_ctl#5) OR (v#1L > 1))", True),
        ("((v#1L > 1) OR isnotnull(__ckpt_ctl#5))", True),
        ("isnotnull(__ckpt_ctl#5)", True),
        ("(((a#1 = 1) OR (b#2 = 2)) OR isnotnull(__ckpt_ctl#5))", True),
        ("((isnotnull(__ckpt_ctl#5) OR a#1) AND (b#2 OR isnotnull(__ckpt_ctl#5)))", True),
        ("((isnotnull(__ckpt_ctl#5) OR a#1) AND b#2)", False),
        ("NOT isnotnull(__ckpt_ctl#5)", False),
        ("NOT (isnotnull(__ckpt_ctl#5) OR a#1)", False),
        ("isnull(__ckpt_ctl#5)", False),
        ("(isnotnull(__ckpt_ctl#5) AND (v#1L > 1))", False),
        ("isnotnull(__ckpt_ctl_#5)", False),
        ("coalesce((v#1L > 1), true)", False),
    ],
)
def test_a_filter_keeps_control_rows_only_if_its_condition_proves_it(condition: str, keeps: bool) -> None:
    assert keeps_control_rows(condition) is keeps


def test_a_control_column_that_is_computed_is_seen() -> None:
    (same, new) = parse("Project [a#1 AS b#2, __ckpt_tag#3L AS __ckpt_tag#9L]"), parse("Project [1 AS __ckpt_ctl#2]")
    assert computed_control_column(same[0]) is None
    assert computed_control_column(new[0]) == "__ckpt_ctl"
