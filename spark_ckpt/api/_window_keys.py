"""What a time window and a session among the keys of ``groupBy`` have in common. Driver only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.api._intervals import with_months_as_numbers, without_calendar_intervals
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import free, quoted
from spark_ckpt.plan.event_time import DELAY_KEY
from spark_ckpt.plan.key_columns import resolve_keys
from spark_ckpt.plan.windows import WINDOW_KEYS, EarlierSession, EarlierWindow
from spark_ckpt.state.aggregates.function import AggregateFunction

if TYPE_CHECKING:
    from spark_ckpt.agg import AggSpec
    from spark_ckpt.api.dataframe import CkptDataFrame

_TIMES = (T.TimestampType, T.TimestampNTZType)
_Item = TypeVar("_Item")


class WindowColumn:
    """The one window among a grouping's keys, in place ``place`` of them. Users see it as the column ``called``, which
    is ``name`` unless another column of the rows has that.

    ``time`` is the column that it is a window of; ``event_time``: rows are late, and windows end, by it; ``local``: it
    has no zone.
    """

    kind: str
    takes_key: bool
    """Whether one of the operator's keys stands in its place."""
    inputs: tuple[str, ...] = ()
    """Columns that the operator reads besides what is aggregated."""

    def __init__(self, parent: CkptDataFrame, name: str, time: Column, place: int) -> None:
        self._hides = any(f.name == name and _is_window(f) for f in parent.schema.fields)
        self.called, self.name, self.place = name, name if self._hides else free(name, parent.columns), place
        time = time_of(parent, time)
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


class EarlierColumn(WindowColumn):
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


def _free(name: str, taken: list[str]) -> str:
    while name.lower() in {c.lower() for c in taken}:
        name += "_"
    return name


def _is_window(field: T.StructField) -> bool:
    return not set(WINDOW_KEYS.values()).isdisjoint(field.metadata)


def time_of(parent: CkptDataFrame, time: Column) -> Column:
    """Spark takes a window for a time, too: it is that of ``window_time``."""
    found = parent._preview.select(time).schema.fields[0]
    return F.window_time(time) if isinstance(found.dataType, T.StructType) else time


def _delay_us(parent: CkptDataFrame, time: Column) -> int | None:
    """The delay of the watermark that ``time`` is an event time of, be it an earlier window's. None: it is none."""
    noted = parent._preview.select(time).schema.fields[0].metadata.get(DELAY_KEY)
    return None if noted is None or not parent._lineage.watermarks else int(noted) * 1000
