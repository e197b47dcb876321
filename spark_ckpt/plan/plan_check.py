"""Does an operation keep every control row exactly once? Looked at when it is built. Driver; classic and Connect.

Spark's analysed plan tells: names of methods do not (``window(...)`` adds a filter by itself). What is known to keep
every row is accepted; what works on each row alone, but could drop or multiply it, is tried on a control row; what
works on several rows together is refused, and so is what is not known.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import ControlColumnsError, InvalidInputError
from spark_ckpt.plan import _plan_text as plan_text
from spark_ckpt.plan._plan_text import Node
from spark_ckpt.plan.refused_types import has_type
from spark_ckpt.plan.spark_errors import no_window_function
from spark_ckpt.types import CTL, TAG

SparkDF = Any

_SAFE = {
    "Project",
    "SubqueryAlias",
    "View",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
    "ResolvedHint",
    "CollectMetrics",
}
_ROW_BY_ROW = {"Filter", "Generate", "Expand", "MapInPandas", "MapInArrow"}
"""These look at each row alone (the last two as far as one can know), so one control row speaks for all."""

OF_FILES = re.compile(r"\binput_file_(?:name|block_start|block_length)\(\)")
"""What Spark knows of the file that it reads a row from."""
_RAISED = re.compile(r"[\w.]*(Error|Exception|Exit|Interrupt)\b.*")

WINDOW_WAY = (
    "A window is there in select, withColumn, where and groupBy of the stream itself, written with F.window: "
    'df.withColumn("start", F.window("t", "1 hour").start), then where or groupBy("start").'
)
SAMPLE = "stream.sample(0.1)"
_JOIN_WAY = (
    "Join with a static DataFrame by the stream's own join(static, on, how), which keeps them: inner, left, left_semi, "
    "left_anti and cross."
)
_LIMIT_WAY = f"Filter row by row instead; for a sample: {SAMPLE}."
_WAYS = {
    "Deduplicate": 'Call dropDuplicates(["k"]) or distinct() of the stream itself.',
    "Aggregate": 'Aggregate with groupBy("k").aggregate(n=agg.count(), ...).',
    "Window": 'For running values of a key: groupBy("k").aggregate(emit="rows", orderBy="t", ...).',
    "Sort": "Rows inside a batch have no order here; sort where the results are read.",
    "Union": "Union two streams with stream.union(other) or stream.unionByName(other).",
    "Join": _JOIN_WAY,
    "GlobalLimit": _LIMIT_WAY,
    "LocalLimit": _LIMIT_WAY,
    "Offset": _LIMIT_WAY,
    "Sample": _LIMIT_WAY,
    "Generate": (
        "Write the generator as a function, and nothing around it: select(F.explode(...)), not expr(...) of a text; or "
        "use mapInArrow."
    ),
    "Filter": (
        "Filter behind ckpt.wrap, where where(...) and dropna(...) keep them; or add "
        '| F.col("__ckpt_ctl").isNotNull() to the condition.'
    ),
    "Expand": "Use the stream's own unpivot(...).",
}
_ANY_WAY = (
    "Use select, where, withColumn, mapInArrow or mapInPandas for what works on each row, groupBy(...).aggregate / "
    "applyInPandasWithState / applyInArrowWithState for what works on several."
)


def plan_nodes(df: SparkDF) -> list[Node]:
    """The nodes of the analysed plan of ``df``."""
    if not _is_classic(df):
        # Behind the headline stands the schema: in one line only if no name in it has a line break.
        text = df.select(F.lit(0))._explain_string(mode="extended")
        start = text.index("== Analyzed Logical Plan ==\n")
        body = text[start : text.index("\n== Optimized Logical Plan ==", start)].split("\n", 2)[2]
        return [Node(node.text, node.depth - 1) for node in plan_text.parse(body)[1:]]
    analyzed = df._jdf.queryExecution().analyzed()
    # Every column, where a user's plan would say "... 30 more fields".
    return plan_text.parse(analyzed.treeString(True, False, 1_000_000, False, False))


def check_operation(what: str, before: SparkDF, known: list[Node], after: SparkDF, spark_reads: bool = False) -> None:
    """``before`` and ``after`` are the previews around the operation ``what``; ``known`` are the nodes of ``before``.

    Raises ``InvalidInputError`` if the operation could drop, multiply or mix control rows, or, unless ``spark_reads``
    the source, if it asks for the file that Spark reads.
    """
    whole = plan_nodes(after)
    gone = Counter(n.same for n in known) - Counter(n.same for n in whole)
    gone -= _widened(gone, whole)
    if gone:
        raise _refusal(
            what, Node(next(iter(gone)), 0), "is missing", "Begin with the DataFrame that the function gets."
        )
    new = _added(known, whole)
    asked = next((found[0] for n in new if (found := OF_FILES.search(n.text))), None)
    if asked is not None and not spark_reads:
        raise InvalidInputError(
            f"{what}: {asked} would be empty in every row, as Spark does not read the sources of spark_ckpt. Let it "
            "read the files: "
            'ckpt.readStream.spark(spark.readStream.schema(...).json(path).select("*", "_metadata.file_name"))'
        )
    suspects = [n for n in reversed(new) if not _is_safe(what, n)]
    if suspects:
        window = any("precisetimestampconversion(" in n.text for n in new)
        _try(what, before, after, suspects[-1], WINDOW_WAY if window else _WAYS.get(suspects[-1].name, _ANY_WAY))
    if any(n.name in ("Project", "Filter") and plan_text.calls_python(n) for n in new):
        _try_python(what, after)


def _widened(gone: Counter[str], whole: list[Node]) -> Counter[str]:
    """Those of ``gone`` that stand in ``whole`` with columns more at the end: where a column is asked for that a join
    by names hides, such as the key of its right side, Spark lets it pass all projections in between."""
    projections = [n.same[:-1] for n in whole if n.name == "Project"]
    return Counter({
        text: times for text, times in gone.items()
        if sum(other.startswith(f"{text[:-1]}, ") for other in projections) >= times
    })  # fmt: skip


def _added(known: list[Node], whole: list[Node]) -> list[Node]:
    """The nodes of ``whole`` that are not ``known``, from the leaves up."""
    count, added = Counter(n.same for n in known), []
    for node in reversed(plan_text.without_right_sides(whole)):
        # What was there before stands below what the operation added.
        if count[node.same]:
            count[node.same] -= 1
        else:
            added.append(node)
    return added


def _is_safe(what: str, node: Node) -> bool:
    """False if the operation must be tried. Raises if that would prove nothing."""
    computed = plan_text.computed_control_column(node)
    if computed is not None:
        raise ControlColumnsError(
            f"{what} computes {computed} anew, which carries the barriers; name the columns that are to change, or use "
            "the stream's own fillna(...) and replace(...)"
        )
    if plan_text.reads_control_column(node):
        raise ControlColumnsError(
            f"{what}: a star inside of it takes in the columns that carry the barriers; name the columns, as in "
            "F.struct(*df.columns)"
        )
    if node.name in _SAFE:
        return True
    if node.name == "Filter":
        return plan_text.keeps_control_rows(node.detail)
    if node.name in _ROW_BY_ROW:
        return False
    if node.name == "Join" and _keeps_left(node):
        return True
    raise _refusal(what, node, "works on several rows together", _WAYS.get(node.name, _ANY_WAY))


def _keeps_left(node: Node) -> bool:
    kind, _, condition = node.detail.partition(", ")
    return kind in ("LeftOuter", "LeftAnti") and plan_text.joins_data_rows_only(condition)


def _try(what: str, before: SparkDF, after: SparkDF, suspect: Node, way: str) -> None:
    """Run the operation on a control row: the previews hold one for each stream."""
    try:
        found, expected = _control_rows(after), _control_rows(before)
    except Exception as e:
        raise InvalidInputError(
            f"{what} was tried on a row whose columns are all null, as control rows are, and failed: {e}. {way}"
        ) from e
    if found != expected:
        raise _refusal(what, suspect, f"{'drops' if len(found) < len(expected) else 'multiplies'} control rows", way)


def _try_python(what: str, after: SparkDF) -> None:
    """Spark calls Python functions for every row, whatever stands around them in the expression.

    Left are those that Spark Connect knows by a name only: what was registered cannot be had back from the server.
    """
    try:
        unwritten = [f.name for f in after.schema.fields if has_type(f.dataType, T.CalendarIntervalType)]
        after.drop(*unwritten).write.format("noop").mode("overwrite").save()
    except Exception as e:
        lines = [line.strip() for line in str(e).splitlines() if _RAISED.match(line.strip())]
        raise InvalidInputError(
            f"{what}: a Python function in it fails on a row whose columns are all null, as control rows are, and "
            f"Spark calls it for those too: {lines[-1] if lines else e}. On Spark Connect, use the function itself and "
            "not the name it was registered by: what spark.udf.register(...) returns is called for data rows only. So "
            "are the functions of mapInPandas and mapInArrow."
        ) from e


def _control_rows(df: SparkDF) -> list[tuple[Any, ...]]:
    rows = df.where(F.col(CTL).isNotNull()).select(TAG, CTL).collect()
    return sorted((row[0], bytes(row[1])) for row in rows)


def _refusal(what: str, node: Node, why: str, way: str) -> InvalidInputError:
    text = node.text if len(node.text) < 120 else f"{node.text[:117]}..."
    told = (
        f"{what} cannot stand in a checkpointed stream: in Spark's plan of it, {text!r} {why}; the barriers travel in "
        f"control rows, each of which must come out exactly once. {way}"
    )
    return no_window_function(told, node.detail) if node.name == "Window" else InvalidInputError(told)


def _is_classic(df: SparkDF) -> bool:
    return type(df).__module__.startswith("pyspark.sql.classic")
