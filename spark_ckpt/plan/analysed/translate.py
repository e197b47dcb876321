"""Walks Spark's analysed plan and makes of each node what the ledger says. Driver; classic Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.columns import refuse_reserved
from spark_ckpt.execution.job_graph import Translated
from spark_ckpt.operators.walks import Over
from spark_ckpt.plan.analysed._aggregates import aggregate
from spark_ckpt.plan.analysed._joins import static_join, stream_join
from spark_ckpt.plan.analysed._lateral_joins import lateral_join
from spark_ckpt.plan.analysed._nodes import (
    OWN,
    Rows,
    analysed,
    is_stream_join,
    kind_of,
    place_in_sql,
    tag_of,
)
from spark_ckpt.plan.analysed._ranks import check_numbers_stay, filtered, ranked
from spark_ckpt.plan.analysed._readers import (
    batch_cogroups,
    batch_groups,
    deduplicate,
    distinct,
    function_with_state,
    limit,
    map_rows,
    numbered,
    output_times,
    processor,
    set_operation,
    sort,
    union,
)
from spark_ckpt.plan.analysed._row_by_row import (
    expand,
    metrics,
    names_only,
    over_frame,
    projected,
    row_by_row,
    sample,
)
from spark_ckpt.plan.analysed._rules import in_stream_form
from spark_ckpt.plan.analysed._streams_of_plan import StreamsOfPlan, spark_stream, streams_in
from spark_ckpt.plan.analysed._time_windows import assigned, time_window, watermark
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed.ledger import How, entry_of
from spark_ckpt.plan.analysed.own_operators import own_operator
from spark_ckpt.plan.analysed.uids import given_uid
from spark_ckpt.runtime.stateless import nullable
from spark_ckpt.types import CONTROL_COLUMNS

SparkDF = Any
JavaObject = Any
_FIELDS = 25
"""How many columns of a node are shown, as Spark has it."""
_PLACE = "In the SQL text it is"


def translated(session: Any, df: SparkDF) -> Translated:
    """``df``, a DataFrame of PySpark's over streams of ours, as a job of ``session``.

    Raises ``InvalidInputError`` for what the ledger refuses, naming the operation.
    """
    if not df.isStreaming:
        raise InvalidInputError(
            "expected a DataFrame that reads a stream, as of ckpt.readStream, found one of tables alone: write it by "
            "df.write"
        )
    plan = in_stream_form(analysed(df))
    walk = Walk(session, streams_in(plan))
    rows = walk.with_names(walk.rows(plan), df.columns)
    check_numbers_stay(walk, plan)
    return Translated(session, rows.recipe, rows.lineage, nullable(rows.schema), walk.steps[0])


class Walk(Translation):
    """From the sinks' end of a plan to its sources."""

    def __init__(self, session: Any, streams: StreamsOfPlan) -> None:
        super().__init__(session)
        self._streams = streams

    def made(self, node: JavaObject) -> Rows:
        rows = self._located(node)
        for operator in rows.lineage.operators:
            if operator.uid is None and not operator.stands_in:
                operator.marked(str(node.canonicalized()))
        return rows

    def said(self, node: JavaObject) -> str:
        return str(node.simpleString(_FIELDS))

    def uid(self, node: JavaObject) -> str | None:
        return given_uid(self.uses_of_uids, node)

    def computed(self, rows: Rows, columns: Mapping[str, Column]) -> Rows:
        return projected(self, rows, (), columns)

    def wider(self, rows: Rows, columns: Mapping[str, Column]) -> Rows:
        made = projected(self, rows, rows.attributes, columns)
        return self.with_names(made, [*rows.schema.names, *columns])

    def over_frame(self, node: JavaObject, rows: Rows, frame: SparkDF, over: Over) -> SparkDF:
        return over_frame(self, rows, frame, over)

    def _located(self, node: JavaObject) -> Rows:
        """A refusal says where in the user's SQL text the node is written; the innermost one that has a place."""
        try:
            made = self._made(node)
            refuse_reserved([n for n in made.schema.names if n.lower() in CONTROL_COLUMNS], kind_of(node))
            return made
        except InvalidInputError as refused:
            place = None if _PLACE in str(refused) else place_in_sql(node)
            if place is not None:
                refused.args = (f"{refused}. {_PLACE} {place}", *refused.args[1:])
            raise

    def _made(self, node: JavaObject) -> Rows:
        stream = self._streams.rows(node)
        if stream is not None:
            return stream
        kind = kind_of(node)
        entry = entry_of(kind)
        if entry.how is How.REFUSED or entry.by not in HANDLERS:
            raise InvalidInputError(f"{entry.refusal(kind)}. Spark's plan of it: {node.simpleString(200)}")
        return HANDLERS[entry.by](self, node)


def projection(of: Translation, node: JavaObject) -> Rows:
    window = time_window(node)
    return row_by_row(of, node) if window is None else assigned(of, window)


def expansion(of: Translation, node: JavaObject) -> Rows:
    window = time_window(node)
    return expand(of, node) if window is None else assigned(of, window)


def grouped(of: Translation, node: JavaObject) -> Rows:
    return batch_groups(of, node) if tag_of(node, OWN) is None else own_operator(of, node)


def join(of: Translation, node: JavaObject) -> Rows:
    return stream_join(of, node) if is_stream_join(node) else static_join(of, node)


HANDLERS: dict[str, Callable[[Translation, JavaObject], Rows]] = {
    "projection": projection,
    "row by row": row_by_row,
    "sort": sort,
    "spark stream": spark_stream,
    "names only": names_only,
    "aggregate": aggregate,
    "batch cogroups": batch_cogroups,
    "batch groups": grouped,
    "deduplicate": deduplicate,
    "distinct": distinct,
    "expand": expansion,
    "filter": filtered,
    "function with state": function_with_state,
    "join": join,
    "lateral join": lateral_join,
    "limit": limit,
    "map rows": map_rows,
    "metrics": metrics,
    "numbers": numbered,
    "output times": output_times,
    "processor": processor,
    "ranks": ranked,
    "sample": sample,
    "set operation": set_operation,
    "union": union,
    "watermark": watermark,
}
"""What the ledger names, by its name there."""
