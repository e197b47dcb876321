"""``F.window(...)`` and ``F.session_window(...)``: what they say, read from the client's expressions. Driver; Spark
Connect."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.connect import expressions as E

from spark_ckpt.execution.event_time import simple_ms
from spark_ckpt.plan.relations._columns import column
from spark_ckpt.runtime.windows import WindowSize

Expression = Any

_WINDOWS = ("window", "session_window")


@dataclass(frozen=True)
class SessionCall:
    """``time`` is what it is a session of. ``gap`` is what a session ends after, an interval or its text; ``gap_us`` if
    it is the same for all rows and of one length."""

    time: Column
    gap: Column
    gap_us: int | None


def is_window(e: Expression) -> bool:
    """Whether it is a call of one, or of a session."""
    return isinstance(e, E.UnresolvedFunction) and e._name.lower() in _WINDOWS


def is_call(e: Expression) -> bool:
    return is_window(e) and e._name.lower() == "window"


def session_call(call: Expression) -> SessionCall:
    time, gap = call._args
    text = _text(gap)
    known = None if text is None else simple_ms(text)
    return SessionCall(column(time), column(gap), None if known is None else known * 1000)


def window_size(spark: Any, call: Expression) -> WindowSize:
    """Of a call of ``window`` that Spark takes."""
    texts = [str(_text(e)) for e in call._args[1:]]
    size = _micros(spark, texts[0])
    slide = _micros(spark, texts[1]) if len(texts) > 1 else size
    start = _micros_of_start(spark, texts[1], texts[2]) if len(texts) > 2 else 0
    return WindowSize(size, slide, start)


def _micros(spark: Any, text: str) -> int:
    known = simple_ms(text)
    if known is not None:
        return known * 1000
    window = F.window(F.timestamp_seconds(F.lit(0)), text)
    return _length(spark, window.end - window.start)


def _micros_of_start(spark: Any, slide: str, text: str) -> int:
    """Where a window begins, counted from 1970."""
    epoch = F.timestamp_seconds(F.lit(0))
    window = F.window(epoch, slide, slide, text)
    return _length(spark, window.start - epoch)


def _length(spark: Any, column: Column) -> int:
    found: timedelta = spark.range(1).select(column).first()[0]
    return found // timedelta(microseconds=1)


def _text(e: Expression) -> str | None:
    """The text that ``e`` is; None if it is no literal text."""
    value = getattr(e, "_value", None)
    return value if isinstance(value, str) else None
