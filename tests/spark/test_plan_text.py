"""What the text of an analysed plan tells about control rows."""

from __future__ import annotations

from spark_ckpt.execution.plan_text import parse

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
