"""A session among the keys of ``groupBy``: where its columns come from. Driver only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.api._window_keys import EarlierColumn, WindowColumn
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import free, quoted
from spark_ckpt.plan.key_columns import stored_name
from spark_ckpt.plan.windows import EarlierSession, SessionWindow
from spark_ckpt.runtime.stateless import with_control
from spark_ckpt.runtime.windows import AssignSessions, ShowSessions, TakeSessions
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.aggregates.sessions import SessionAggregate

if TYPE_CHECKING:
    from spark_ckpt.agg import AggSpec
    from spark_ckpt.api.dataframe import CkptDataFrame


class SessionKey(WindowColumn):
    """``F.session_window``: no key. Rows come with the session that each makes by itself, and the operator merges."""

    kind = "session_window"
    takes_key = False

    def __init__(self, parent: CkptDataFrame, session: SessionWindow, place: int) -> None:
        self.start, self.end = (
            free(stored_name(f"{session.name}_{part}"), parent.columns) for part in ("start", "end")
        )
        self.inputs = (self.start, self.end)
        self._gap, self._gap_us = session.gap, session.gap_us
        super().__init__(parent, session.name, session.time, place)

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


class EarlierSessionKey(EarlierColumn, SessionKey):
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
