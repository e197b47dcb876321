"""The numbers of the two sides of a join. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import types as T

from spark_ckpt.execution.spark_errors import RefusedAsInSparkError, unsupported
from spark_ckpt.spark_versions.sql_types import DATETIME
from spark_ckpt.state.joins.predicate import Predicate

LEFT, RIGHT = 0, 1


FLIPPED = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
ORDERED = (
    T.NumericType,
    T.BooleanType,
    *DATETIME,
    T.StringType,
    T.BinaryType,
    T.DayTimeIntervalType,
)


@dataclass(frozen=True)
class Key:
    """An equality of an expression of each side. ``names``: the sides' columns, where it is just a column.

    ``ends``: it is the end of a window that rows are late by, which is an event time, too.
    """

    columns: tuple[Column, Column]
    kind: T.DataType
    null_safe: bool
    names: tuple[str | None, str | None]
    ends: bool = False


@dataclass(frozen=True)
class Bound:
    """Rows of ``side``, by a time in ``column``, match no row of the other later than its watermark column's, plus
    ``shift_ms``."""

    side: int
    column: str
    other_column: str
    shift_ms: int


@dataclass
class Parts:
    """``alone``: of each side, what its rows have to satisfy by themselves. ``computed``: columns that the condition
    compares, by side."""

    keys: list[Key] = field(default_factory=list)
    alone: tuple[list[Column], list[Column]] = field(default_factory=lambda: ([], []))
    computed: tuple[dict[str, Column], dict[str, Column]] = field(default_factory=lambda: ({}, {}))
    condition: Predicate | None = None
    bounds: list[Bound] = field(default_factory=list)


INNER, LEFT_OUTER, RIGHT_OUTER, FULL, SEMI = "inner", "left", "right", "full", "left_semi"
_KINDS = {
    **dict.fromkeys(("inner", "cross"), INNER),
    **dict.fromkeys(("left", "leftouter"), LEFT_OUTER),
    **dict.fromkeys(("right", "rightouter"), RIGHT_OUTER),
    **dict.fromkeys(("outer", "full", "fullouter"), FULL),
    **dict.fromkeys(("semi", "leftsemi"), SEMI),
}
_IN_SPARK = {LEFT_OUTER: "LeftOuter", RIGHT_OUTER: "RightOuter", FULL: "FullOuter", SEMI: "LeftSemi"}
_RANGE_WAY = (
    'Call withWatermark on both sides, and have a range of time in the condition, such as (a["at"] >= b["at"]) & '
    '(a["at"] <= b["at"] + F.expr("interval 1 hour")), or the event-time column among the columns that must be equal'
)

Times = tuple[str | None, str | None]
"""The event-time column of each side."""


def join_kind(how: str | None) -> str:
    """Which join ``how`` is, by any of Spark's names. Raises ``RefusedAsInSparkError``."""
    plain = "inner" if how is None else str(how).lower().replace("_", "")
    if plain in ("anti", "leftanti"):
        raise unsupported(
            "LeftAnti joins with a streaming DataFrame/Dataset on the right are not supported: that nothing matches is "
            'known when time is over. A left join, and where(b["k"].isNull()) behind it, gives those rows then. EXCEPT '
            "is a LeftAnti join by all columns"
        )
    if plain not in _KINDS:
        supported = "inner, left, right, full, left_semi"
        raise RefusedAsInSparkError(
            f"join expects how= inner, left, right, full or left_semi, found {how!r}",
            "UNSUPPORTED_JOIN_TYPE",
            {"typ": str(how), "supported": supported},
        )
    return _KINDS[plain]


def is_outer(how: str, side: int) -> bool:
    """Whether rows of ``side`` come out that find no other."""
    return how in ((LEFT_OUTER, FULL) if side == LEFT else (RIGHT_OUTER, FULL))


@dataclass(frozen=True)
class Until:
    """A side's rows end when the watermark plus ``shift_ms`` reaches the time in ``column``, or in the key ``key``."""

    column: str | None = None
    key: int | None = None
    shift_ms: int = 0


def until(how: str, parts: Parts, times: Times) -> tuple[Until | None, Until | None]:
    """Until when the rows of each side are kept; None: for ever. Raises ``RefusedAsInSparkError``."""
    if not parts.keys:
        raise unsupported(
            "Stream-stream join without equality predicate is not supported: the condition needs an equality of an "
            'expression of each side, such as a["k"] == b["k"]. '
            'For all pairs of rows, by one task, give both a constant, withColumn("one", F.lit(1)), and join by "one"'
        )
    key = _time_key(parts, times)
    shifts = [_shift(parts, times, side) for side in (LEFT, RIGHT)]
    if how in _IN_SPARK and key is None:
        asked = {LEFT_OUTER: [LEFT], SEMI: [LEFT], RIGHT_OUTER: [RIGHT]}.get(how, [LEFT, RIGHT])
        if all(shifts[side] is None for side in asked):
            raise unsupported(
                f"Stream-stream {_IN_SPARK[how]} join between two streaming DataFrame/Datasets is not supported without"
                " a watermark in the join keys, or a watermark on the nullable side and an appropriate range condition."
                f" {_RANGE_WAY}{'. INTERSECT is a LeftSemi join by all columns' if how == SEMI else ''}"
            )
    found = [_until(key, times[side], shifts[side]) for side in (LEFT, RIGHT)]
    return found[LEFT], found[RIGHT]


def grows(ends: tuple[Until | None, Until | None]) -> str | None:
    """What to tell of rows that are kept for ever."""
    sides = [name for name, end in zip(("left", "right"), ends, strict=True) if end is None]
    if not sides:
        return None
    return f"join keeps every row of its {' and its '.join(sides)} side for ever, so its state grows. {_RANGE_WAY}."


def _until(key: int | None, time: str | None, shift: int | None) -> Until | None:
    if key is not None:
        return Until(key=key)
    return None if time is None or shift is None else Until(column=time, shift_ms=shift)


def _time_key(parts: Parts, times: Times) -> int | None:
    """The first key that is an event time; what equals it is one, too."""
    for side in (LEFT, RIGHT):
        for number, key in enumerate(parts.keys):
            if times[side] is not None and key.names[side] == times[side]:
                return number
    return next((number for number, key in enumerate(parts.keys) if key.ends), None)


def _shift(parts: Parts, times: Times, side: int) -> int | None:
    """By how much the other side's watermark tells when rows of ``side`` match no more; None if it does not."""
    other = times[RIGHT if side == LEFT else LEFT]
    found = [b.shift_ms for b in parts.bounds if b.side == side and b.other_column == other]
    return min(found, default=None)
