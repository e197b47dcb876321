"""What ``dropDuplicates``, ``dropDuplicatesWithinWatermark`` and ``distinct`` keep of rows: their keys, and how long.
Driver.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.plan._distinct_keys import as_text
from spark_ckpt.plan._event_time import EventTimeColumn, event_time, event_time_among, event_times, late_by_window
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.key_columns import Keys, arrow_columns, is_key
from spark_ckpt.plan.spark_errors import unsupported
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.state.functions.distinct_rows import SEEN, DistinctRows, Expiry

_log = logging.getLogger("spark_ckpt")

DROP_DUPLICATES, WITHIN, DISTINCT = "dropDuplicates", "dropDuplicatesWithinWatermark", "distinct"


@dataclass(frozen=True)
class DistinctBy:
    """Rows of ``schema`` are told apart by the columns ``wanted``. ``kind`` is the method; ``open_watermarks``: no
    operator is between the rows and their watermark."""

    kind: str
    schema: T.StructType
    wanted: Sequence[str]
    open_watermarks: bool

    def function(self) -> tuple[DistinctRows, Keys]:
        """What keeps the keys. Raises ``InvalidInputError`` for columns that cannot be compared, and as Spark does
        where a watermark is missing or there are several."""
        keys, expiry, watermark = self._keys(), self._expiry(), bool(event_times(self.schema))
        late = late_by_window(self.schema) is not None
        rows = arrow_columns(self.schema, self.schema.names)
        if expiry is None:
            _log.warning(
                "%s keeps every key for ever, so its state grows with each new one. %s", self.kind, self._way(watermark)
            )
        return DistinctRows(self.kind, arrow_schema(keys.schema), rows, watermark, expiry, late), keys

    def time(self, wanted: Iterable[str] | None = None) -> EventTimeColumn | None:
        """The event time that counts, of those among the columns."""
        if self.kind == WITHIN:
            return event_time(self.schema, self.kind)
        names = self.wanted if wanted is None else list(wanted)
        return event_time_among(self.schema, self.kind, names, not self.open_watermarks)

    def _expiry(self) -> Expiry | None:
        time = self.time()
        if self.kind == WITHIN:
            if time is None:
                raise unsupported(
                    f"{self.kind} is not supported on streaming DataFrames/Datasets without watermark: call "
                    'withWatermark("at", "1 hour") in front of it'
                )
            return Expiry(time.name, time.delay_us)
        return None if time is None or time.name not in self.wanted else Expiry(time.name)

    def _way(self, watermark: bool) -> str:
        if watermark:
            return f"Have the event-time column among its columns, or use {WITHIN}, to forget those of long ago."
        return (
            'To forget those of long ago, call withWatermark("at", "1 hour") in front of it and have "at" among the '
            f"columns of {self.kind}, or use {WITHIN}."
        )

    def _keys(self) -> Keys:
        """Columns that cannot be keys go by what is written of them; without any column, all rows have one key."""
        names, wanted = self.schema.names, list(self.wanted)
        if not wanted:
            return Keys({"all": F.lit(True)}, T.StructType().add("all", "boolean"), frozenset()).named_for(names, [])
        types = {f.name: f.dataType for f in self.schema.fields}
        plain = frozenset(name for name in wanted if is_key(types[name]))
        columns = {name: F.col(quoted(name)) for name in wanted}
        expressions = {n: c if n in plain else as_text(self.kind, n, c, types[n]) for n, c in columns.items()}
        fields = [T.StructField(name, types[name] if name in plain else T.StringType(), True) for name in wanted]
        return Keys(expressions, T.StructType(fields), plain).named_for(names, [SEEN])
