"""``F.window(...)`` and ``F.session_window(...)`` as keys of ``groupBy``: what they say, read from the expression.
Driver; classic and Connect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, TimestampNTZType, TimestampType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._event_time import DELAY_KEY, simple_ms
from spark_ckpt.plan._java_classes import COLUMN, class_name, java_class
from spark_ckpt.plan.columns import free
from spark_ckpt.plan.key_columns import stored_name
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.runtime.windows import ShowSessions, ShowWindows, WindowSize

SparkDF = Any
S = TypeVar("S", bound="Session")
WINDOWS = ("window", "session_window")
WINDOW_KEYS = {"window": "spark.timeWindow", "session_window": "spark.sessionWindow"}
"""What Spark notes of a column that is a window (``TimeWindow.marker``): ``window_time`` asks for it."""


def _without_zone(field: StructField) -> bool:
    kind = field.dataType
    assert isinstance(kind, StructType)
    return isinstance(kind.fields[0].dataType, TimestampNTZType)


@dataclass(frozen=True)
class TimeWindow:
    """Windows of time in a column, which Spark shows as ``field`` says."""

    size: WindowSize
    field: StructField

    @property
    def event_time(self) -> bool:
        """Whether a watermark ends the windows."""
        return DELAY_KEY in self.field.metadata

    @property
    def local(self) -> bool:
        """Whether its times have no zone."""
        return _without_zone(self.field)

    def added(self, before: StructType, name: str) -> StructType:
        """``before``, with the windows, called ``name`` in the state, and their starts behind it."""
        shown, start = free(name, before.names), free(f"{name}_start", [*before.names, name])
        window = StructField(shown, self.field.dataType, True, self.field.metadata)
        return StructType([*before.fields, window, StructField(start, TimestampType())])

    def shown(self, before: StructType, start: str, name: str) -> tuple[Operation, StructType]:
        """What puts the windows, called ``name``, in the place of their ``start``; and the columns behind that."""
        window = StructField(name, self.field.dataType, True, self.field.metadata)
        fields = [window if f.name == start else f for f in before.fields]
        return ShowWindows(start, name, self.size.size, self.local), StructType(fields)


@dataclass(frozen=True)
class Session:
    """Sessions, which are key number ``place``, and which Spark shows as ``field`` says."""

    place: int
    field: StructField

    @property
    def event_time(self) -> bool:
        """Whether a watermark ends the sessions."""
        return DELAY_KEY in self.field.metadata

    def shown(self, before: StructType, start: str, end: str, name: str) -> tuple[Operation, StructType]:
        """What puts the sessions, called ``name``, in place of their two times; and the columns behind that."""
        fields = [f for f in before.fields if f.name not in (start, end)]
        fields.insert(self.place, StructField(name, self.field.dataType, True, self.field.metadata))
        return ShowSessions(start, end, name, self.place, _without_zone(self.field)), StructType(fields)


def the_session(found: Sequence[S | None]) -> S | None:
    """The one among the keys. Raises ``InvalidInputError`` for several, of which Spark's streams fail."""
    sessions = [session for session in found if session is not None]
    if len(sessions) > 1:
        raise InvalidInputError("groupBy: a session among the keys has to be the only one; Spark's streams fail there")
    return sessions[0] if sessions else None


def session_times(name: str, taken: Sequence[str]) -> tuple[str, str]:
    """What the start and the end of a session called ``name`` are called in the state."""
    start, end = (free(stored_name(f"{name}_{part}"), taken) for part in ("start", "end"))
    return start, end


@dataclass(frozen=True)
class WindowCall:
    """A call of ``window``. ``time`` is what it is a window of, ``name`` what its column is called."""

    time: Column
    name: str
    size: WindowSize


@dataclass(frozen=True)
class SessionCall:
    """As :class:`WindowCall`. ``gap`` is what a session ends after, an interval or its text; ``gap_us`` if it is the
    same for all rows and of one length.
    """

    time: Column
    name: str
    gap: Column
    gap_us: int | None


def time_window(df: SparkDF, column: Any) -> WindowCall | SessionCall | None:
    """What ``column`` says, if it is a window. Raises as Spark does for windows that it refuses."""
    if not isinstance(column, Column) or _call(column)[1] not in WINDOWS:
        return None
    name, call = _call(column)
    df.select(column).schema  # noqa: B018 - Spark says what is wrong with it; Connect when it is asked
    time, others = _arguments(column)
    if call == "session_window":
        (gap,) = others
        text = _text(gap)
        known = None if text is None else simple_ms(text)
        return SessionCall(time, name or call, _column(gap), None if known is None else known * 1000)
    texts = [str(_text(node)) for node in others]
    size = _micros(df, texts[0])
    slide = _micros(df, texts[1]) if len(texts) > 1 else size
    start = _micros_of_start(df, texts[1], texts[2]) if len(texts) > 2 else 0
    return WindowCall(time, name or "window", WindowSize(size, slide, start))


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
