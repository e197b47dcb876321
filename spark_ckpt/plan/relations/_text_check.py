"""SQL texts in a relation: what they have become in Spark's plan must let each control row out exactly once. Driver.

Only the server knows what is in a text. So its analysed plan is read, and what that does not prove is tried on a
control row. Most mistakes are found here, before the query starts, with the operation's name.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import ControlColumnsError, InvalidInputError
from spark_ckpt.execution.plan_text import OF_FILES, Node, plan_nodes
from spark_ckpt.execution.refused_types import has_type
from spark_ckpt.execution.spark_errors import no_window_function
from spark_ckpt.types import CTL, TAG

SparkDF = Any

_SAFE = {
    "CollectMetrics", "Filter", "Project", "RebalancePartitions", "Repartition", "RepartitionByExpression",
    "ResolvedHint", "SubqueryAlias",
}  # fmt: skip
"""A text adds no filter: the one of ``where`` has our condition beside it."""
_ROW_BY_ROW = {"Expand", "Generate"}
"""These look at each row alone, so one control row speaks for all."""
_WAYS = {
    "Aggregate": 'Aggregate with groupBy("k").agg(...).',
    "Window": 'For running values of a key: groupBy("k").aggregate(emit="rows", orderBy="t", ...).',
    "Generate": "Write the generator as a function, and nothing around it: select(F.explode(...)).",
}
_ANY_WAY = "Write it with methods and pyspark.sql.functions, or use mapInArrow or mapInPandas."
_RAISED = re.compile(r"[\w.]*(Error|Exception|Exit|Interrupt)\b.*")
_PYTHON_UDF = re.compile(r"\)#\d+")
_DATA_ROWS_ONLY = re.compile(rf"[^\s(]\(isnotnull\({CTL}#\d+\)[,)]")
_READ = re.compile(rf"(?<!AS ){TAG}#\d+L?\b(?! AS {TAG}#)")
_COMPUTED = re.compile(r"(\S+) AS (__ckpt_tag|__ckpt_ctl)#")


def check_texts(what: str, before: SparkDF, after: SparkDF) -> None:
    """``what`` made ``after`` of ``before``, which has one control row and no data.

    Raises ``InvalidInputError`` if it could drop, multiply or mix control rows, or asks for the file that Spark reads;
    ``ControlColumnsError`` if it reads or computes their columns.
    """
    known = Counter(n.same for n in plan_nodes(before))
    # What was there before stands below what the operation added.
    new = [n for n in reversed(plan_nodes(after)) if not _taken(known, n)]
    asked = next((found[0] for n in new if (found := OF_FILES.search(n.text))), None)
    if asked is not None:
        raise InvalidInputError(
            f"{what}: {asked} would be empty in every row, as Spark does not read the sources of spark_ckpt. Let it "
            "read the files: "
            'ckpt.readStream.spark(spark.readStream.schema(...).json(path).select("*", "_metadata.file_name"))'
        )
    suspects = [n for n in new if not _is_safe(what, n)]
    if suspects:
        _try(what, before, after, suspects[0])
    if any(n.name in ("Project", "Filter") and calls_python(n) for n in new):
        _try_python(what, after)


def _taken(known: Counter[str], node: Node) -> bool:
    there = known[node.same] > 0
    known[node.same] -= there
    return there


def _is_safe(what: str, node: Node) -> bool:
    """False if the operation must be tried. Raises if that would prove nothing."""
    computed = computed_control_column(node)
    if computed is not None:
        raise ControlColumnsError(
            f"{what} computes {computed} anew, which carries the barriers; name the columns that are to change"
        )
    if reads_control_column(node):
        raise ControlColumnsError(
            f"{what}: a star inside of it takes in the columns that carry the barriers; name the columns, as in "
            "F.struct(*df.columns)"
        )
    if node.name in _SAFE:
        return True
    if node.name in _ROW_BY_ROW:
        return False
    raise _refusal(what, node, "works on several rows together")


def _try(what: str, before: SparkDF, after: SparkDF, suspect: Node) -> None:
    """Run the operation on a control row: the previews hold one for each stream."""
    try:
        found, expected = _control_rows(after), _control_rows(before)
    except Exception as e:
        raise InvalidInputError(
            f"{what} was tried on a row whose columns are all null, as control rows are, and failed: {e}. "
            f"{_way(suspect)}"
        ) from e
    if found != expected:
        raise _refusal(what, suspect, f"{'drops' if len(found) < len(expected) else 'multiplies'} control rows")


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


def _refusal(what: str, node: Node, why: str) -> InvalidInputError:
    text = node.text if len(node.text) < 120 else f"{node.text[:117]}..."
    told = (
        f"{what} cannot stand in a checkpointed stream: in Spark's plan of it, {text!r} {why}; the barriers travel in "
        f"control rows, each of which must come out exactly once. {_way(node)}"
    )
    return no_window_function(told, node.detail) if node.name == "Window" else InvalidInputError(told)


def _way(node: Node) -> str:
    return _WAYS.get(node.name, _ANY_WAY)


def reads_control_column(node: Node) -> bool:
    """Whether the epochs go into an expression: a projection that only passes them on names them once."""
    if node.name not in ("Project", "Filter", "Generate"):
        return False
    return len(_READ.findall(node.text)) > (node.name == "Project")


def computed_control_column(node: Node) -> str | None:
    """A control column that the node does not hand on as it is."""
    for value, name in _COMPUTED.findall(node.text):
        if not re.fullmatch(rf"\[*{name}#\d+L?", value):
            return str(name)
    return None


def calls_python(node: Node) -> bool:
    """Whether an expression calls a Python function for control rows, too: Spark writes those with an id behind the
    arguments, and one that is told of control rows (:mod:`spark_ckpt.runtime.udf_rows`) hears of them first.
    """
    return len(_PYTHON_UDF.findall(node.text)) > len(_DATA_ROWS_ONLY.findall(node.text))
