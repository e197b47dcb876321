"""A time window among the keys of ``groupBy``, or in a column: where its columns come from. Driver only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.api._intervals import with_months_as_numbers
from spark_ckpt.api._session_keys import EarlierSessionKey, SessionKey
from spark_ckpt.api._window_keys import EarlierColumn, WindowColumn
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import free, quoted
from spark_ckpt.plan.key_columns import stored_name
from spark_ckpt.plan.windows import (
    SIZE_KEY,
    EarlierSession,
    EarlierWindow,
    SessionWindow,
    TimeWindow,
    earlier_session,
    earlier_window,
    time_window,
)
from spark_ckpt.runtime.stateless import Project, with_control
from spark_ckpt.runtime.windows import AssignWindows, ShowWindows, TakeStarts, WindowSize
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.aggregates.kinds import in_any_order
from spark_ckpt.state.aggregates.windowed import WindowedAggregate
from spark_ckpt.types import CONTROL_COLUMNS

if TYPE_CHECKING:
    from spark_ckpt.agg import AggSpec
    from spark_ckpt.api.dataframe import CkptDataFrame


class WindowKey(WindowColumn):
    """``F.window``: its start is the operator's key, in the column ``key``."""

    kind = "window"
    takes_key = True

    def __init__(self, parent: CkptDataFrame, window: TimeWindow, place: int) -> None:
        self.key, self.size = free(stored_name(f"{window.name}_start"), parent.columns), window.size
        super().__init__(parent, window.name, window.time, place)

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


class EarlierKey(EarlierColumn, WindowKey):
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
