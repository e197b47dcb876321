"""A time window among the keys of ``groupBy``: where its columns come from. Driver only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.key_columns import resolve_keys
from spark_ckpt.plan.windows import TimeWindow, time_window
from spark_ckpt.runtime.stateless import with_control
from spark_ckpt.runtime.windows import AssignWindows, ShowWindows

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

_WINDOW = T.StructType([T.StructField("start", T.TimestampType()), T.StructField("end", T.TimestampType())])


class WindowKey:
    """The one window among a grouping's keys.

    Its start is the operator's key, in the column ``key``; users see the window, as ``window.name``. ``time`` is the
    column that it is a window of.
    """

    def __init__(self, parent: CkptDataFrame, window: TimeWindow) -> None:
        self.window = window
        self.key = f"{window.name}_start"
        taken = [n for n in (window.name, self.key) if n.lower() in {c.lower() for c in parent.columns}]
        if taken:
            raise InvalidInputError(
                f"the window needs the column name(s) {taken}, which the DataFrame has: rename those, or give the "
                'window a name of its own, F.window(...).alias("w")'
            )
        (time, field, plain), *_ = resolve_keys(parent._preview, parent.columns, [window.time])
        if isinstance(field.dataType, T.TimestampNTZType):
            raise InvalidInputError(
                f"the window's time {field.name!r} has no time zone (timestamp_ntz), and watermarks have one; cast it "
                'first: F.col("t").cast("timestamp")'
            )
        self.is_column = plain and isinstance(field.dataType, T.TimestampType)
        self.time = field.name if self.is_column else f"{window.name}_time"
        self._computed = time.cast("timestamp")

    @property
    def shown(self) -> Column:
        return F.col(quoted(self.window.name))

    def in_front(self, df: CkptDataFrame) -> CkptDataFrame:
        """With the time in a column."""
        return df if self.is_column else df.withColumn(self.time, self._computed)

    def analysed(self, frame: Any) -> Any:
        """A plain DataFrame with a window in it, by which Spark may analyse what is said of it."""
        return frame.withColumn(self.window.name, F.lit(None).cast(_WINDOW))

    def refuse_inside(self, computed: Iterable[str]) -> None:
        """``computed`` are texts of what is computed before there is a window."""
        for text in computed:
            if re.search(rf"(?<!\w){re.escape(self.window.name)}(?!\w)", text):
                raise InvalidInputError(
                    f"agg: {text} is an aggregate of the window itself; compute it behind agg(...), of the key"
                )

    def assigned(self, df: CkptDataFrame) -> CkptDataFrame:
        """Each row once for each of its windows."""
        fields = [
            T.StructField(self.window.name, _WINDOW),
            T.StructField(self.key, T.TimestampType()),
        ]
        made = AssignWindows(self.time, self.window.name, self.key, self.window.size)
        return df._python_operation(made, with_control(T.StructType([*df.schema.fields, *fields])))

    def shown_in(self, df: CkptDataFrame) -> CkptDataFrame:
        """The operator's output, with the window in place of its start."""
        fields = [T.StructField(self.window.name, _WINDOW) if f.name == self.key else f for f in df.schema.fields]
        operation = ShowWindows(self.key, self.window.name, self.window.size.size)
        return df._python_operation(operation, with_control(T.StructType(fields)))


def window_key(parent: CkptDataFrame, cols: list[Any]) -> tuple[WindowKey | None, list[Any]]:
    """The window among ``cols``, and ``cols`` with the operator's key in its place."""
    found = [time_window(parent._preview, c) for c in cols]
    windows = [w for w in found if w is not None]
    if len(windows) > 1:
        raise InvalidInputError("groupBy takes one window, as in Spark; several would be a cartesian product of them")
    if not windows:
        return None, cols
    key = WindowKey(parent, windows[0])
    return key, [c if w is None else F.col(quoted(key.key)) for c, w in zip(cols, found, strict=True)]
