"""Relations that look at each row alone. Spark computes them. Driver; Spark Connect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.connect import plan as P
from pyspark.sql.connect.dataframe import DataFrame

from spark_ckpt.execution.lineage import Leaves, Stays
from spark_ckpt.operators.walks import Over
from spark_ckpt.plan.relations._columns import bare, column, is_data, is_generator, is_star, is_text
from spark_ckpt.plan.relations._control_rows import aliased, carried, guarded
from spark_ckpt.plan.relations._generators import for_control_rows
from spark_ckpt.plan.relations._parts import apart, is_apart, located, marked, parts_behind
from spark_ckpt.plan.relations._python_calls import for_data_rows
from spark_ckpt.plan.relations._text_check import check_texts
from spark_ckpt.plan.relations._translation import Part, Rows, Translation
from spark_ckpt.plan.relations._tree import alias_of, all_parts, empty, expressions_of, ids_in, kind_of, known_as
from spark_ckpt.runtime.stateless import control_row, with_control
from spark_ckpt.types import CONTROL_COLUMNS

Relation = Any


def step(of: Translation, node: Relation, rows: Rows) -> Rows:
    """What ``node`` makes of ``rows``."""
    own = guarded(of, node, rows)
    placed = located(own, rows)
    _check_texts(of, node, rows)
    stays = Stays(Leaves.OPERATION, "Spark Connect")
    made = of.carried_step(
        node, rows, lambda child: carried(of, placed if is_apart(child) else own, rows, child), stays
    )
    return replace(made, parts=_parts(of, placed, rows))


def _parts(of: Translation, node: Relation, rows: Rows) -> tuple[Part, ...]:
    """Whose columns they are behind ``node``."""
    if not rows.parts or kind_of(node) == "SubqueryAlias":
        return ()
    known = replace(rows, schema=marked(rows.schema))
    before = under_names(node, known, of.frame(empty(with_control(known.schema))))
    return parts_behind(rows, of.schema(carried(of, node, known, before)))


def over_frame(of: Translation, node: Relation, rows: Rows, df: DataFrame, over: Over) -> DataFrame:
    """What ``over`` makes of ``df``, which has the columns of ``rows`` and the control columns behind them."""
    child = under_names(node, rows, df)
    before, after = of.frame(child), of.frame(over(child))
    return for_data_rows(for_control_rows(after, before), before)


def under_names(node: Relation, rows: Rows, df: DataFrame) -> Relation:
    """``df``, whose columns are known by all that ``node`` may know those of ``rows`` by. Out of Python come names, and
    nothing else; what Spark found by a plan id or an alias is the column of that name."""
    made = df._plan
    if rows.plan._plan_id not in ids_in(made) and rows.parts:
        made = known_as(apart(rows, made), rows.plan._plan_id)
    elif rows.plan._plan_id not in ids_in(made):
        if tuple(rows.schema.names) != rows.shown:
            made = P.ToDF(made, [*rows.shown, *CONTROL_COLUMNS])
        alias = alias_of(rows.plan)
        made = made if alias is None else aliased(P.SubqueryAlias(None, alias), made)
        made = known_as(made, rows.plan._plan_id)
    placed = located(node, rows) if is_apart(made) else node
    asked = ids_in(rows.plan).intersection(getattr(e, "_plan_id", None) for e in all_parts(placed))
    for plan_id in asked - ids_in(made):
        made = known_as(made, plan_id)
    return made


def _check_texts(of: Translation, node: Relation, rows: Rows) -> None:
    """Only the server knows what is in a SQL text. Raises ``InvalidInputError`` for what is no value of one row."""
    texts = [e for e in all_parts(node) if is_text(e)]
    if not texts:
        return
    full = with_control(rows.schema)
    child = under_names(node, rows, of.frame(empty(full)))
    node = located(node, rows) if is_apart(child) else node
    asked = [column(e) for e in all_parts(node) if is_text(e)]
    if not of.resolves(child, F.struct(*asked)):
        # A generator, or one that knows an alias in front of it in the same list.
        asked = [column(e) for e in expressions_of(node) if not (is_star(bare(e)) or is_generator(bare(e)))]

    def on_control_row() -> DataFrame:
        before = of.frame(under_names(node, rows, of.spark.createDataFrame(control_row(full), full)))
        values = [F.when(is_data(), c) for c in asked]
        return for_data_rows(of.frame(P.Project(before._plan, values)), before)

    after = of.frame(P.Project(child, asked))
    check_texts(kind_of(node), [str(e) for e in texts], of.frame(child), after, on_control_row)
