"""A time window or session among the keys of ``groupBy``: where its columns come from. Driver only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.api._intervals import with_months_as_numbers, without_calendar_intervals
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.event_time import DELAY_KEY
from spark_ckpt.plan.key_columns import resolve_keys, stored_name
from spark_ckpt.plan.windows import (
    SIZE_KEY,
    WINDOW_KEYS,
    EarlierSession,
    EarlierWindow,
    SessionWindow,
    TimeWindow,
    earlier_session,
    earlier_window,
    time_window,
)
from spark_ckpt.runtime.stateless import Project, with_control
from spark_ckpt.runtime.windows import (
    AssignSessions,
    AssignWindows,
    ShowSessions,
    ShowWindows,
    TakeSessions,
    TakeStarts,
    WindowSize,
)
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.aggregates.kinds import in_any_order
from spark_ckpt.state.aggregates.sessions import SessionAggregate
from spark_ckpt.state.aggregates.windowed import WindowedAggregate
from spark_ckpt.types import CONTROL_COLUMNS

if TYPE_CHECKING:
    from spark_ckpt.agg import AggSpec
    from spark_ckpt.api.dataframe import CkptDataFrame

_TIMES = (T.TimestampType, T.TimestampNTZType)
_Item = TypeVar("_Item")


class WindowColumn:
    """The one window among a grouping's keys, in place ``place`` of them. Users see it as the column ``name``.

    ``time`` is the column that it is a window of; ``event_time``: rows are late, and windows end, by it; ``local``: it
    has no zone.
    """

    kind: str
    takes_key: bool
    """Whether one of the operator's keys stands in its place."""
    inputs: tuple[str, ...] = ()
    """Columns that the operator reads besides what is aggregated."""

    def __init__(self, parent: CkptDataFrame, name: str, time: Column, place: int, own: Iterable[str]) -> None:
        self.name, self.place = name, place
        self._hides = any(f.name == name and _is_window(f) for f in parent.schema.fields)
        names = {c.lower() for c in parent.columns if c != name or not self._hides}
        taken = [n for n in (name, *own) if n.lower() in names]
        if taken:
            raise InvalidInputError(
                f"the window needs the column name(s) {taken}, which the DataFrame has: rename those, or give the "
                f'window a name of its own, F.{self.kind}(...).alias("w")'
            )
        time = _of_window(parent, time)
        (computed, field, plain), *_ = resolve_keys(parent._preview, parent.columns, [time])
        self.local = isinstance(field.dataType, T.TimestampNTZType)
        self.is_column = plain and isinstance(field.dataType, _TIMES)
        self.time = field.name if self.is_column else _free(f"{name}_time", parent.columns)
        self._computed = computed if self.local else computed.cast("timestamp")
        self.delay_us = _delay_us(parent, time)

    @property
    def struct(self) -> T.StructType:
        """What users see of a window."""
        time = T.TimestampNTZType() if self.local else T.TimestampType()
        return T.StructType([T.StructField("start", time), T.StructField("end", time)])

    @property
    def event_time(self) -> bool:
        return self.delay_us is not None

    @property
    def mode(self) -> str | None:
        """The one output mode that it has, complete aside; None: append and update."""
        return None if self.event_time else "update"

    @property
    def shown(self) -> Column:
        return F.col(quoted(self.name))

    @property
    def column(self) -> Column:
        """The column of the rows that has it, if one has."""
        return self.shown

    def among(self, keys: list[_Item], shown: _Item) -> list[_Item]:
        """What is said of the operator's ``keys``, with the window's in its place."""
        return [*keys[: self.place], shown, *keys[self.place + self.takes_key :]]

    def in_front(self, df: CkptDataFrame) -> CkptDataFrame:
        """With the time in a column, and without an earlier window that the new one takes the name of."""
        timed = df if self.is_column else df.withColumn(self.time, self._computed)
        return timed._columns([c for c in timed.columns if c != self.name]) if self._hides else timed

    def analysed(self, frame: Any) -> Any:
        """A plain DataFrame with a window in it, by which Spark may analyse what is said of it."""
        return frame.withColumn(self.name, F.lit(None).cast(self.struct))

    def refuse_inside(self, computed: Iterable[str]) -> None:
        """``computed`` are texts of what is computed before there is a window."""
        for text in computed:
            if re.search(rf"(?<!\w){re.escape(self.name)}(?!\w)", text):
                told = f"agg: {text} is an aggregate of the window itself; compute it behind agg(...), of the key"
                if self._hides:
                    told = (
                        f"agg: in {text}, {self.name} would be the rows' own column, of which the new window takes the "
                        f"name; rename it in front: withColumnRenamed({self.name!r}, 'earlier_{self.name}')"
                    )
                raise InvalidInputError(told)

    def _field(self) -> T.StructField:
        """Its column, with what Spark notes of one: ``window_time`` and windows of windows look for it."""
        delay = {} if self.delay_us is None else {DELAY_KEY: self.delay_us // 1000}
        return T.StructField(self.name, self.struct, True, {WINDOW_KEYS[self.kind]: True, **delay})

    def assigned(self, df: CkptDataFrame, specs: Iterable[AggSpec] = ()) -> CkptDataFrame:
        """Each row once for each of its windows, as far as what computes ``specs`` does not repeat it itself."""
        wanted = list(specs)
        rows = without_calendar_intervals(df, {s.column for s in wanted})
        return with_months_as_numbers(rows, lambda passed: self._assigned(passed, wanted))

    def _assigned(self, df: CkptDataFrame, specs: list[AggSpec]) -> CkptDataFrame:
        raise NotImplementedError

    def function(
        self, by: pa.Schema, inputs: pa.Schema, specs: Mapping[str, AggSpec], **kwargs: Any
    ) -> AggregateFunction:
        """What aggregates the windows' rows."""
        raise NotImplementedError

    def shown_in(self, df: CkptDataFrame) -> CkptDataFrame:
        """The operator's output, with the window as users see it."""
        raise NotImplementedError


class WindowKey(WindowColumn):
    """``F.window``: its start is the operator's key, in the column ``key``."""

    kind = "window"
    takes_key = True

    def __init__(self, parent: CkptDataFrame, window: TimeWindow, place: int) -> None:
        self.key, self.size = stored_name(f"{window.name}_start"), window.size
        super().__init__(parent, window.name, window.time, place, [self.key])

    def _assigned(self, df: CkptDataFrame, specs: list[AggSpec]) -> CkptDataFrame:
        return self.in_windows(df, self._sliced(specs))

    def in_windows(self, df: CkptDataFrame, newest: bool) -> CkptDataFrame:
        """Each row once for each of its windows, or for the ``newest`` of them."""
        fields = [T.StructField(self.name, self.struct), T.StructField(self.key, T.TimestampType())]
        made = AssignWindows(self.time, self.name, self.key, self.size, newest, self.local)
        return df._python_operation(made, with_control(T.StructType([*df.schema.fields, *fields])))

    def _sliced(self, specs: Iterable[AggSpec]) -> bool:
        """Whether rows between two starts of windows, all of which are in the same windows, are added up first."""
        whole = self.size.most > 1 and self.size.size % self.size.slide == 0
        return self.event_time and whole and in_any_order(specs)

    def function(
        self, by: pa.Schema, inputs: pa.Schema, specs: Mapping[str, AggSpec], **kwargs: Any
    ) -> AggregateFunction:
        kwargs["windows"] = {self.key: self.size.text}
        if not self.event_time:
            return AggregateFunction(by, inputs, specs, **kwargs)
        slide = self.size.slide if self._sliced(specs.values()) else None
        return WindowedAggregate(by, inputs, specs, window=self.key, size_us=self.size.size, slide_us=slide, **kwargs)

    def _field(self) -> T.StructField:
        field = super()._field()
        return T.StructField(self.name, self.struct, True, {**field.metadata, SIZE_KEY: self.size.size})

    def shown_in(self, df: CkptDataFrame) -> CkptDataFrame:
        fields = [self._field() if f.name == self.key else f for f in df.schema.fields]
        operation = ShowWindows(self.key, self.name, self.size.size, self.local)
        return df._python_operation(operation, with_control(T.StructType(fields)))


class _Earlier(WindowColumn):
    """A column that has windows or sessions already."""

    _found: EarlierWindow | EarlierSession

    @property
    def column(self) -> Column:
        return self._found.window

    def in_front(self, df: CkptDataFrame) -> CkptDataFrame:
        return df if self._found.is_column else df.select("*", self._found.window)

    def analysed(self, frame: Any) -> Any:
        return frame

    def refuse_inside(self, computed: Iterable[str]) -> None:
        """It is there before it is a key; what is asked of a session is each row's own, as in Spark."""


class EarlierKey(_Earlier, WindowKey):
    """A column of earlier windows, ``groupBy("window")``: rows are in the window that they have."""

    def __init__(self, parent: CkptDataFrame, found: EarlierWindow, place: int) -> None:
        self._found = found
        if not found.is_column and found.name in parent.columns:
            raise InvalidInputError(f"the window is called {found.name!r}, as a column is: give it a name of its own")
        time, size = F.window_time(F.col(quoted(found.name))), WindowSize(found.size_us, found.size_us)
        super().__init__(self.in_front(parent), TimeWindow(time, found.name, size), place)

    def _assigned(self, df: CkptDataFrame, specs: list[AggSpec]) -> CkptDataFrame:
        key = T.StructField(self.key, T.TimestampType())
        return df._python_operation(
            TakeStarts(self.name, self.key), with_control(T.StructType([*df.schema.fields, key]))
        )


class SessionKey(WindowColumn):
    """``F.session_window``: no key. Rows come with the session that each makes by itself, and the operator merges."""

    kind = "session_window"
    takes_key = False

    def __init__(self, parent: CkptDataFrame, session: SessionWindow, place: int) -> None:
        self.start, self.end = stored_name(f"{session.name}_start"), stored_name(f"{session.name}_end")
        self.inputs = (self.start, self.end)
        self._gap, self._gap_us = session.gap, session.gap_us
        super().__init__(parent, session.name, session.time, place, self.inputs)

    @property
    def mode(self) -> str:
        """Without a watermark none ends."""
        return "append" if self.event_time else "complete"

    def in_front(self, df: CkptDataFrame) -> CkptDataFrame:
        """With the end in a column, too, where it takes Spark to know it."""
        df = super().in_front(df)
        if self._gap_us is not None:
            return df
        return df.withColumn(self.end, F.col(quoted(self.time)) + self._gap.cast("interval"))

    def _assigned(self, df: CkptDataFrame, specs: list[AggSpec]) -> CkptDataFrame:
        fields = [f for f in df.schema.fields if f.name not in self.inputs]
        fields += [T.StructField(name, T.TimestampType()) for name in self.inputs]
        made = AssignSessions(self.time, self.start, self.end, self._gap_us)
        return df._python_operation(made, with_control(T.StructType(fields)))

    def function(
        self, by: pa.Schema, inputs: pa.Schema, specs: Mapping[str, AggSpec], **kwargs: Any
    ) -> AggregateFunction:
        return SessionAggregate(by, inputs, specs, start=self.start, end=self.end, **kwargs)

    def shown_in(self, df: CkptDataFrame) -> CkptDataFrame:
        fields = [f for f in df.schema.fields if f.name not in self.inputs]
        fields.insert(self.place, self._field())
        operation = ShowSessions(self.start, self.end, self.name, self.place)
        return df._python_operation(operation, with_control(T.StructType(fields)))


class EarlierSessionKey(_Earlier, SessionKey):
    """A column of sessions, ``groupBy("session_window", "k")``: rows come with the session that they have."""

    def __init__(self, parent: CkptDataFrame, found: EarlierSession, place: int) -> None:
        self._found = found
        if not found.is_column and found.name in parent.columns:
            raise InvalidInputError(f"the session is called {found.name!r}, as a column is: give it another name")
        time = F.window_time(F.col(quoted(found.name)))
        super().__init__(self.in_front(parent), SessionWindow(time, found.name, F.lit(None), None), place)

    def _assigned(self, df: CkptDataFrame, specs: list[AggSpec]) -> CkptDataFrame:
        times = [T.StructField(name, T.TimestampType()) for name in self.inputs]
        made = TakeSessions(self.name, self.start, self.end)
        return df._python_operation(made, with_control(T.StructType([*df.schema.fields, *times])))


def window_key(parent: CkptDataFrame, cols: list[Any]) -> tuple[WindowColumn | None, list[Any]]:
    """The first window among ``cols``, a session before others, and the operator's keys: others are columns."""
    found = [_found(parent, c) for c in cols]
    windows = [(place, w) for place, w in enumerate(found) if w is not None]
    sessions = [(place, w) for place, w in windows if isinstance(w, SessionWindow | EarlierSession)]
    if not windows:
        return None, cols
    if len(sessions) > 1:
        raise InvalidInputError("groupBy: a session among the keys has to be the only one; Spark's streams fail there")
    place, window = (sessions or windows)[0]
    if isinstance(window, SessionWindow):
        return SessionKey(parent, window, place), [*cols[:place], *cols[place + 1 :]]
    if isinstance(window, EarlierSession):
        return EarlierSessionKey(parent, window, place), [*cols[:place], *cols[place + 1 :]]
    key = _of_times(parent, window, place)
    return key, key.among(cols, F.col(quoted(key.key)))


def _found(parent: CkptDataFrame, col: Any) -> Any:
    preview, columns = parent._preview, parent.columns
    return time_window(preview, col) or earlier_window(preview, columns, col) or earlier_session(preview, columns, col)


def window_column(df: CkptDataFrame, call: Column, name: str) -> CkptDataFrame:
    """``df`` with each row once for each of its windows, which column ``name`` has, behind the others. ``call`` is
    ``F.window(...)`` or ``F.session_window(...)``."""
    return with_months_as_numbers(df, lambda rows: _with_window(rows, call, name))


def _with_window(df: CkptDataFrame, call: Column, name: str) -> CkptDataFrame:
    found = time_window(df._preview, call)
    assert found is not None
    window, place, key = replace(found, name=name), len(df.columns), None
    if isinstance(window, SessionWindow):
        session = SessionKey(df, window, place)
        made = session.shown_in(session.assigned(session.in_front(df)))
    else:
        key = WindowKey(df, window, place)
        made = key.in_windows(key.in_front(df), newest=False)
    shown = [*df.columns, name]
    noted = {f.name: f for f in made.schema.fields} | ({} if key is None else {name: key._field()})
    fields = T.StructType([noted[column] for column in shown])
    out = made._python_operation(Project([*shown, *CONTROL_COLUMNS]), with_control(fields))
    return out if df._alias is None else out.alias(df._alias)


def _of_times(parent: CkptDataFrame, window: TimeWindow | EarlierWindow, place: int) -> WindowKey:
    if isinstance(window, EarlierWindow):
        return EarlierKey(parent, window, place)
    return WindowKey(parent, window, place)


def _free(name: str, taken: list[str]) -> str:
    while name.lower() in {c.lower() for c in taken}:
        name += "_"
    return name


def _is_window(field: T.StructField) -> bool:
    return not set(WINDOW_KEYS.values()).isdisjoint(field.metadata)


def _of_window(parent: CkptDataFrame, time: Column) -> Column:
    """Spark takes a window for a time, too: it is that of ``window_time``."""
    found = parent._preview.select(time).schema.fields[0]
    return F.window_time(time) if isinstance(found.dataType, T.StructType) else time


def _delay_us(parent: CkptDataFrame, time: Column) -> int | None:
    """The delay of the watermark that ``time`` is an event time of, be it an earlier window's. None: it is none."""
    noted = parent._preview.select(time).schema.fields[0].metadata.get(DELAY_KEY)
    return None if noted is None or not parent._lineage.watermarks else int(noted) * 1000
