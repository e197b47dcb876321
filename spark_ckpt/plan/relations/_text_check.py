"""SQL texts in a relation: in Spark's plan they must be values of one row, and nothing else. Driver; Spark Connect.

Only the server knows what is in a text, or in a function that is called by its name. So its analysed plan is read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import types as T

from spark_ckpt.errors import ControlColumnsError, InvalidInputError
from spark_ckpt.execution.plan_text import OF_FILES, Node, plan_nodes
from spark_ckpt.execution.refused_types import has_type
from spark_ckpt.execution.spark_errors import no_window_function
from spark_ckpt.types import CONTROL_COLUMNS

SparkDF = Any

_WINDOW = "Write the window as F.window(...)."
_WAYS = {
    "Aggregate": 'Aggregate with groupBy("k").agg(...).',
    "Expand": _WINDOW,
    "Filter": _WINDOW,
    "Window": 'For running values of a key: groupBy("k").aggregate(emit="rows", orderBy="t", ...).',
    "Generate": "Write the generator as a function, and nothing around it: select(F.explode(...)).",
}
_STAR = re.compile(r"[(,]\s*(?:[\w`]+\s*\.\s*)*\*\s*[,)]")
"""Among arguments. Of many columns, Spark's plan shows the first ones only."""
_ANY_WAY = "Write it with methods and pyspark.sql.functions, or use mapInArrow or mapInPandas."
_RAISED = re.compile(r"[\w.]*(Error|Exception|Exit|Interrupt)\b.*")
_PYTHON_UDF = re.compile(r"\)#\d+")
"""Spark writes the id of a Python function's result behind its arguments; and that of a column called ``sum(v)``."""


def check_texts(
    what: str, texts: Sequence[str], before: SparkDF, after: SparkDF, on_control_row: Callable[[], SparkDF]
) -> None:
    """``texts`` in ``what`` are in columns of ``after``, computed of ``before``; both have no rows. ``on_control_row``:
    the same of a control row, for functions in Python.

    Raises ``InvalidInputError`` if one could drop, multiply or mix control rows, or asks for the file that Spark reads;
    ``ControlColumnsError`` if it reads the columns of control rows.
    """
    known = Counter(n.same for n in plan_nodes(before))
    # What was there before stands below what the texts added.
    new = [n for n in reversed(plan_nodes(after)) if not _taken(known, n)]
    for node in new:
        _check(what, node)
    if any(map(_STAR.search, texts)) or any(name in node.text for node in new for name in CONTROL_COLUMNS):
        raise ControlColumnsError(
            f"{what}: a star inside of it takes in the columns that carry the barriers; name the columns, as in "
            "F.struct(*df.columns)"
        )
    if any(_PYTHON_UDF.search(n.text) for n in new):
        _try_python(what, on_control_row())


def _taken(known: Counter[str], node: Node) -> bool:
    there = known[node.same] > 0
    known[node.same] -= there
    return there


def _check(what: str, node: Node) -> None:
    asked = OF_FILES.search(node.text)
    if asked is not None:
        raise InvalidInputError(
            f"{what}: {asked[0]} would be empty in every row, as Spark does not read the sources of spark_ckpt. Let it "
            "read the files: "
            'ckpt.readStream.spark(spark.readStream.schema(...).json(path).select("*", "_metadata.file_name"))'
        )
    if node.name != "Project":
        raise _refusal(what, node)


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


def _refusal(what: str, node: Node) -> InvalidInputError:
    text = node.text if len(node.text) < 120 else f"{node.text[:117]}..."
    told = (
        f"{what}: over Spark Connect, a SQL text may compute a value of one row. In Spark's plan of this one there is "
        f"{text!r}, where control rows, which carry the barriers, could be lost. {_WAYS.get(node.name, _ANY_WAY)}"
    )
    return no_window_function(told, node.detail) if node.name == "Window" else InvalidInputError(told)
