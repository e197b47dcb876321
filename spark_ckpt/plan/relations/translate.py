"""Walks the tree of Spark Connect's client and makes of each relation what the ledger says. Driver; Spark Connect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.chain import Chain, Recipe, StreamRows
from spark_ckpt.execution.columns import refuse_reserved
from spark_ckpt.execution.job_graph import Translated
from spark_ckpt.execution.plan_text import OF_FILES
from spark_ckpt.execution.spark_errors import no_window_function
from spark_ckpt.execution.spark_stream_rows import spark_stream_rows
from spark_ckpt.operators.walks import Over
from spark_ckpt.plan.analysed.ledger import Entry, How, entry_of
from spark_ckpt.plan.relations._aggregates import aggregate
from spark_ckpt.plan.relations._columns import column
from spark_ckpt.plan.relations._joins import join
from spark_ckpt.plan.relations._lateral_joins import lateral_join
from spark_ckpt.plan.relations._names import TEXTS, node_of, why_not
from spark_ckpt.plan.relations._pivots import summary
from spark_ckpt.plan.relations._readers import (
    batch_cogroups,
    batch_groups,
    deduplicate,
    function_with_state,
    has_numbers,
    limit,
    map_rows,
    numbered,
    processor,
    sample,
    sort,
    union,
)
from spark_ckpt.plan.relations._row_by_row import over_frame, step
from spark_ckpt.plan.relations._rules import in_stream_form
from spark_ckpt.plan.relations._stars import without_stars
from spark_ckpt.plan.relations._translation import Rows, Translation, rows_of
from spark_ckpt.plan.relations._tree import all_parts, kind_of, known_as
from spark_ckpt.plan.relations._windows import call_in, watermark, with_window
from spark_ckpt.plan.relations.leaves import stream_of
from spark_ckpt.plan.relations.own_operators import asked_of, own_operator
from spark_ckpt.plan.relations.uids import given_uid
from spark_ckpt.runtime.stateless import nullable, with_control
from spark_ckpt.types import CONTROL_COLUMNS

SparkDF = Any
Relation = Any


def translated(session: Any, df: SparkDF) -> Translated:
    """As :func:`spark_ckpt.plan.analysed.translate.translated`, of a DataFrame of Spark Connect."""
    walk = Walk(session)
    walk.schema(df._plan)  # what Spark refuses, it refuses as the user wrote it
    rows = walk.rows(in_stream_form(walk, df._plan))
    return Translated(session, rows.recipe, rows.lineage, nullable(rows.schema), walk.steps[0])


class Walk(Translation):
    """From the sinks' end of a tree to its sources."""

    def uid(self, node: Relation) -> str | None:
        return given_uid(self.uses_of_uids, node)

    def computed(self, rows: Rows, columns: Mapping[str, Column]) -> Rows:
        return step(self, P.Project(rows.plan, [c.alias(name) for name, c in columns.items()]), rows)

    def wider(self, rows: Rows, columns: Mapping[str, Column]) -> Rows:
        listed = [column(E.UnresolvedStar(None)), *(c.alias(name) for name, c in columns.items())]
        made = step(self, P.Project(rows.plan, listed), rows)
        return self.with_names(made, [*rows.schema.names, *columns])

    def over_frame(self, node: Relation, rows: Rows, frame: SparkDF, over: Over) -> SparkDF:
        return over_frame(self, node, rows, frame, over)

    def made(self, node: Relation) -> Rows:
        stream = stream_of(node)
        if stream is not None:
            made = StreamRows(stream.recipe, stream.lineage, stream.schema)  # one recipe: read once
            return rows_of(made, node)
        entry = self._entry(node)
        if entry.how is How.REFUSED:
            raise InvalidInputError(entry.refusal(kind_of(node)))
        handler = OF_KINDS.get(kind_of(node)) or HANDLERS.get(entry.by)
        if handler is None:
            raise InvalidInputError(f"{kind_of(node)}: it is not translated over Spark Connect")
        made = handler(self, node)
        refuse_reserved([n for n in made.schema.names if n.lower() in CONTROL_COLUMNS], kind_of(node))
        if not all(source.by_spark for source in made.lineage.sources):
            _refuse_files(node)
        return made

    def _entry(self, node: Relation) -> Entry:
        if kind_of(node) in (*TEXTS, "Read") and not getattr(node, "_is_streaming", False):
            raise InvalidInputError(
                f"{kind_of(node)}: over Spark Connect, the client does not see what a SQL text or a view has of a "
                "stream; write it with methods of the stream's DataFrame"
            )
        name = node_of(node)
        if name is None:
            raise InvalidInputError(f"{kind_of(node)}: {why_not(node)}")
        return entry_of(name)


def computed(of: Translation, node: Relation) -> Rows:
    if has_numbers(node):
        return numbered(of, node)
    _refuse_ranks(node)
    rows = of.rows(node._child)
    node = without_stars(of, node, rows)
    call = call_in(node)
    return step(of, node, rows) if call is None else with_window(of, node, rows, call)


def _refuse_files(node: Relation) -> None:
    """Raises ``InvalidInputError`` for what Spark answers of a file that it reads itself."""
    called = (f"{e._name.lower()}()" for e in all_parts(node) if isinstance(e, E.UnresolvedFunction))
    written = (e._expr.lower() for e in all_parts(node) if isinstance(e, E.SQLExpression))
    found = next(filter(None, map(OF_FILES.search, (*called, *written))), None)
    if found is not None:
        raise InvalidInputError(
            f"{kind_of(node)}: {found[0]} is asked for: it would be empty in every row, as over Spark Connect Spark "
            "does not read the sources of spark_ckpt. Read the files by spark.readStream and write by "
            "ckpt.writeStream(df), or put their names into a column"
        )


def _refuse_ranks(node: Relation) -> None:
    found = next((e for e in all_parts(node) if isinstance(e, E.WindowExpression)), None)
    if found is not None:
        raise no_window_function(
            f"{kind_of(node)}: over Spark Connect a stream has no functions of a window of rows. For the first rows of "
            'each key write groupBy("k").topN(3, F.desc("v")), for running values groupBy("k").aggregate(emit="rows", '
            'orderBy="t", total=agg.sum("v")), over spans of time groupBy(F.window(...))',
            str(getattr(found._windowFunction, "_name", "a window function")),
        )


def grouped(of: Translation, node: Relation) -> Rows:
    """``applyInPandas``, ``applyInArrow``, and methods of ours that look so."""
    asked = asked_of(node)
    return batch_groups(of, node) if asked is None else own_operator(of, node, asked)


def spark_stream(of: Translation, node: Relation) -> Rows:
    """A stream that Spark itself reads, with barriers beside its rows."""
    made = spark_stream_rows(of.spark, of.frame(node), None)
    full = with_control(made.schema)

    def make(ctx: Any) -> Chain:
        return Chain(of.frame(known_as(ctx.frame(made.recipe)._plan, node._plan_id)), full)

    return rows_of(replace(made, recipe=Recipe(make, (made.recipe,))), node)


HANDLERS: dict[str, Callable[[Translation, Relation], Rows]] = {
    "projection": computed,
    "row by row": computed,
    "names only": computed,
    "expand": computed,
    "filter": computed,
    "aggregate": aggregate,
    "batch cogroups": batch_cogroups,
    "batch groups": grouped,
    "deduplicate": deduplicate,
    "function with state": function_with_state,
    "join": join,
    "lateral join": lateral_join,
    "limit": limit,
    "metrics": computed,
    "map rows": map_rows,
    "processor": processor,
    "sample": sample,
    "sort": sort,
    "spark stream": spark_stream,
    "union": union,
    "watermark": watermark,
}
"""What the ledger names, by its name there."""

OF_KINDS: dict[str, Callable[[Translation, Relation], Rows]] = {"StatDescribe": summary, "StatSummary": summary}
"""Relations that become several nodes."""
