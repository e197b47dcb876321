"""``F.window(...)`` and ``F.session_window(...)`` as keys of ``groupBy``: what they say, read from the expression.
Driver; classic and Connect.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, TimestampNTZType

from spark_ckpt.plan._event_time import simple_ms
from spark_ckpt.plan._java_classes import COLUMN, class_name, java_class
from spark_ckpt.runtime.windows import WindowSize

SparkDF = Any
WINDOWS = ("window", "session_window")
WINDOW_KEYS = {"window": "spark.timeWindow", "session_window": "spark.sessionWindow"}
"""What Spark notes of a column that is a window (``TimeWindow.marker``): ``window_time`` asks for it."""


def without_zone(field: StructField) -> bool:
    """Whether the times of the windows in the column ``field`` have no zone."""
    kind = field.dataType
    assert isinstance(kind, StructType)
    return isinstance(kind.fields[0].dataType, TimestampNTZType)


def in_place(schema: StructType, start: str, name: str, field: StructField) -> StructType:
    """``schema`` with windows as ``field`` shows them, called ``name``, in the place of their ``start``."""
    shown = StructField(name, field.dataType, True, field.metadata)
    return StructType([shown if f.name == start else f for f in schema.fields])


@dataclass(frozen=True)
class TimeWindow:
    """``time`` is what it is a window of, ``name`` what its column is called."""

    time: Column
    name: str
    size: WindowSize


@dataclass(frozen=True)
class SessionWindow:
    """As :class:`TimeWindow`. ``gap`` is what a session ends after, an interval or its text; ``gap_us`` if it is the
    same for all rows and of one length.
    """

    time: Column
    name: str
    gap: Column
    gap_us: int | None


def _has_sessions(kind: StructType) -> bool:
    """In a struct, too, where Spark finds them."""
    noted = WINDOW_KEYS["session_window"]
    return any(
        noted in field.metadata or (isinstance(field.dataType, StructType) and _has_sessions(field.dataType))
        for field in kind.fields
    )


def is_window_call(column: Any) -> bool:
    """Whether it is a window as it is, at most under another name."""
    return isinstance(column, Column) and _call(column)[1] in WINDOWS


def time_window(df: SparkDF, column: Any) -> TimeWindow | SessionWindow | None:
    """What ``column`` says, if it is a window. Raises as Spark does for windows that it refuses."""
    if not is_window_call(column):
        return None
    name, call = _call(column)
    df.select(column).schema  # noqa: B018 - Spark says what is wrong with it; Connect when it is asked
    time, others = _arguments(column)
    if call == "session_window":
        (gap,) = others
        text = _text(gap)
        known = None if text is None else simple_ms(text)
        return SessionWindow(time, name or call, _column(gap), None if known is None else known * 1000)
    texts = [str(_text(node)) for node in others]
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
        node, name = _bare_node(column)
        return name, str(node.functionName()).lower() if class_name(node) == "UnresolvedFunction" else ""
    tree, name = _bare(column)
    return name, str(getattr(tree, "_name", "")).lower() if type(tree).__name__ == "UnresolvedFunction" else ""


def _arguments(column: Any) -> tuple[Column, list[Any]]:
    """(the time, the trees of what else it is given)."""
    if hasattr(column, "_jc"):
        node, _ = _bare_node(column)
        found = [node.arguments().apply(i) for i in range(node.arguments().size())]
    else:
        tree, _ = _bare(column)
        found = list(tree._args)
    return _column(found[0]), found[1:]


def _column(tree: Any) -> Column:
    if hasattr(tree, "getClass"):
        from pyspark.sql.classic.column import Column as ClassicColumn

        return ClassicColumn(java_class(COLUMN)(tree))
    from pyspark.sql.connect.column import Column as ConnectColumn

    return ConnectColumn(tree)


def _text(tree: Any) -> str | None:
    """The text that ``tree`` is; None if it is no literal text."""
    if hasattr(tree, "getClass"):
        value = tree.value() if class_name(tree) == "Literal" else None
    else:
        value = getattr(tree, "_value", None)
    return value if isinstance(value, str) else None


def _bare_node(column: Any) -> tuple[Any, str | None]:
    """Without aliases, of which the outermost counts."""
    node, name = column._jc.node(), None
    while class_name(node) == "Alias":
        node, name = node.child(), name or node.name().head()
    return node, name


def _bare(column: Any) -> tuple[Any, str | None]:
    tree, name = column._expr, None
    while type(tree).__name__ == "ColumnAlias":
        tree, name = tree._child, name or tree._alias[0]
    return tree, name
