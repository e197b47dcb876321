"""Windows of time and sessions: what is noted of their columns, and what they are in the state. Driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql.types import StructField, StructType, TimestampNTZType, TimestampType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.event_time import DELAY_KEY
from spark_ckpt.names import free
from spark_ckpt.operators.key_columns import stored_name
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.runtime.windows import ShowSessions, ShowWindows, WindowSize

S = TypeVar("S", bound="Session")
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
