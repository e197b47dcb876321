"""``F.window(...)`` as a key of ``groupBy``: what it says, read from the expression. Driver; classic and Connect."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.durations import simple_ms
from spark_ckpt.runtime.windows import WindowSize

SparkDF = Any
OTHERS = ("session_window",)
"""Windows of Spark's that there are not."""


@dataclass(frozen=True)
class TimeWindow:
    """``time`` is what it is a window of, ``name`` what its column is called."""

    time: Column
    name: str
    size: WindowSize


def time_window(df: SparkDF, column: Any) -> TimeWindow | None:
    """What ``column`` says, if it is ``F.window(...)``. Raises as Spark does for windows that it refuses."""
    if not isinstance(column, Column):
        return None
    name, call = _call(column)
    if call in OTHERS:
        raise InvalidInputError(
            f"groupBy({call}(...)) is not there on a checkpointed stream; F.window(...) is, and for sessions "
            "applyInPandasWithState with an event-time time-out"
        )
    if call != "window":
        return None
    df.select(column).schema  # noqa: B018 - Spark says what is wrong with it; Connect when it is asked
    time, texts = _arguments(column)
    size = _micros(df, texts[0])
    slide = _micros(df, texts[1]) if len(texts) > 1 else size
    start = _micros_of_start(df, texts[1], texts[2]) if len(texts) > 2 else 0
    return TimeWindow(time, name or "window", WindowSize(size, slide, start))


def _micros(df: SparkDF, text: str) -> int:
    known = simple_ms(text)
    if known is not None:
        return known * 1000
    window = F.window(F.timestamp_seconds(F.lit(0)), text)
    return _length(df.sparkSession, window.end - window.start)


def _micros_of_start(df: SparkDF, slide: str, text: str) -> int:
    """Where a window begins, counted from 1970."""
    epoch = F.timestamp_seconds(F.lit(0))
    window = F.window(epoch, slide, slide, text)
    return _length(df.sparkSession, window.start - epoch)


def _length(spark: Any, column: Column) -> int:
    found: timedelta = spark.range(1).select(column).first()[0]
    return found // timedelta(microseconds=1)


def _call(column: Any) -> tuple[str | None, str]:
    """(the alias, the function's name or nothing)."""
    if hasattr(column, "_jc"):
        node, name = column._jc.node(), None
        if _class(node) == "Alias":
            name, node = node.name().head(), node.child()
        return name, str(node.functionName()).lower() if _class(node) == "UnresolvedFunction" else ""
    tree, name = _bare(column)
    return name, str(getattr(tree, "_name", "")).lower() if type(tree).__name__ == "UnresolvedFunction" else ""


def _arguments(column: Any) -> tuple[Column, list[str]]:
    """(the time, the durations as texts)."""
    if hasattr(column, "_jc"):
        from pyspark.sql.classic.column import Column as ClassicColumn

        node = column._jc.node()
        node = node.child() if _class(node) == "Alias" else node
        found = [node.arguments().apply(i) for i in range(node.arguments().size())]
        java = _jvm().org.apache.spark.sql.Column
        return ClassicColumn(java(found[0])), [str(a.value()) for a in found[1:]]
    from pyspark.sql.connect.column import Column as ConnectColumn

    tree, _ = _bare(column)
    return ConnectColumn(tree._args[0]), [str(a._value) for a in tree._args[1:]]


def _bare(column: Any) -> tuple[Any, str | None]:
    tree = column._expr
    return (tree._child, tree._alias[0]) if type(tree).__name__ == "ColumnAlias" else (tree, None)


def _class(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _jvm() -> Any:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    assert context is not None
    return context._jvm
