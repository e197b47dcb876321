"""De-duplication: the first row of each key comes out; what is kept of a key is that it was there, and until when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.state.aggregates.function import MIN_REDUCTION
from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, Changed, StateFunction, Touched
from spark_ckpt.state.ipc import plain_array
from spark_ckpt.state.keys.grouping import Segments, group_rows, packed, rows_per_key
from spark_ckpt.types import EVENT_TIME, KEY_HASH, TIMEOUT_MS

SEEN = "_seen"
"""The one value column of the state: a table without any would not know how many rows it has."""

_LONG_AGO = NO_TIMEOUT - 1
"""A time-out of the event times before 1970: the watermark is never before them."""


@dataclass(frozen=True)
class Expiry:
    """A key is forgotten when the watermark reaches the event time of its row, in ``column``, and never without one.

    With ``delay_us`` so much later; a row without event time then counts as one of 1970, as in Spark.
    """

    column: str
    delay_us: int | None = None

    def timeouts_ms(self, rows: pa.Table) -> np.ndarray:
        """Time-outs fire strictly behind their millisecond, a key is forgotten at its microsecond."""
        times = plain_array(rows[self.column]).cast(pa.timestamp("us", "UTC")).view(pa.int64())
        micros = times.fill_null(0).to_numpy() + (self.delay_us or 0)
        timeouts = (micros - 1) // 1000
        timeouts[timeouts < 0] = _LONG_AGO
        if self.delay_us is None and times.null_count:
            timeouts[pc.is_null(times).to_numpy(zero_copy_only=False)] = NO_TIMEOUT
        return np.asarray(timeouts)


class DistinctRows(StateFunction):
    """Lets the first row of each key pass, of those that are not late, in order of arrival.

    ``output_schema`` are the rows' columns; a key that is none of them is computed in front of the operator. ``kind``
    is the method that users call. ``watermark``: the stream has one, so late rows do not count, as in Spark; nor do
    they with ``late``, where it is the end of a window that says so. Keys are kept for ever if there is no ``expiry``,
    which needs a watermark.

    As in ``StreamingDeduplicateExec`` of Spark, keys are forgotten behind the rows of their batch.
    """

    state_schema = pa.schema([pa.field(SEEN, pa.bool_())])
    passes_rows = True

    def __init__(
        self,
        kind: str,
        key_schema: pa.Schema,
        output_schema: pa.Schema,
        watermark: bool = False,
        expiry: Expiry | None = None,
        late: bool = False,
    ) -> None:
        self.kind, self.key_schema, self.output_schema, self.expiry = kind, key_schema, output_schema, expiry
        self.timeout, self._late = "EventTimeTimeout" if watermark else "NoTimeout", late

    @property
    def drops_late(self) -> bool:
        return self._late or super().drops_late

    @property
    def ends_between_rows(self) -> bool:
        """The event time as a key: a row that comes behind the end of its key's state is late."""
        return self.expiry is not None and self.expiry.delay_us is not None

    def last_passing(self, rows: pa.Table, watermarks_ms: np.ndarray) -> pa.Table:
        """Of each key the last row that comes out, if ``rows`` come one by one in their order within the key, each at
        its own watermark. What these rows leave as state is what all of them leave."""
        assert self.expiry is not None
        seg = group_rows(rows[KEY_HASH].to_numpy(), rows.select(self.key_schema.names), whole=True)
        order = np.arange(seg.rows) if seg.order is None else seg.order
        timeouts = self.expiry.timeouts_ms(rows.select([self.expiry.column]))[order].tolist()
        now_ms = watermarks_ms[order].tolist()
        last = seg.starts.tolist()
        for key, (start, end) in enumerate(zip(last, seg.ends.tolist(), strict=True)):
            for at in range(start + 1, end):
                if timeouts[last[key]] < now_ms[at]:
                    last[key] = at
        return rows.take(pa.array(np.sort(order[np.array(last, np.int64)])))

    @property
    def made_of(self) -> Mapping[str, str]:
        """Until when keys are kept. How long a delay is may change: Spark allows it, too."""
        if self.timeout == "NoTimeout":
            return {}
        if self.expiry is None:
            return {TIMEOUT_MS: "nothing"}
        delay = "" if self.expiry.delay_us is None else " and a delay"
        return {TIMEOUT_MS: f"the event time {self.expiry.column}{delay}"}

    def combine(self, rows: pa.Table) -> pa.Table:
        """Rows that cannot be their key's first are left out."""
        hashes = rows[KEY_HASH].to_numpy()
        per_key = rows_per_key(hashes)
        if len(hashes) < 2 or per_key < MIN_REDUCTION:
            return rows
        seg = group_rows(hashes, rows.select(self.key_schema.names), per_key, whole=True)
        if len(seg.starts) == seg.rows:
            return rows
        return rows.take(pa.array(np.sort(self._candidates(rows, seg))))

    def recombine(self, parts: list[pa.Table]) -> pa.Table:
        return parts[0] if len(parts) == 1 else self.combine(pa.concat_tables(parts))

    def _candidates(self, rows: pa.Table, seg: Segments) -> np.ndarray:
        """Which rows are late is known behind the shuffle only: whatever the watermark, the first row that is not late
        is later than all in front of it."""
        if EVENT_TIME not in rows.column_names:
            return seg.firsts()
        times = plain_array(rows[EVENT_TIME]).fill_null(np.iinfo(np.int64).max)  # without one, no row is late
        key, micros = np.repeat(np.arange(len(seg.starts)), seg.counts), seg.arrange(times).to_numpy()
        both = packed(key, micros)
        if both is None:
            distinct, rank = np.unique(micros, return_inverse=True)
            rank = rank + key * len(distinct)
        else:
            rank = both.numbers
        highest = np.maximum.accumulate(rank)
        leads = np.concatenate(([True], rank[1:] > highest[:-1]))
        order = np.arange(seg.rows) if seg.order is None else seg.order
        return np.asarray(order[leads])

    def process(self, ctx: CallContext, touched: Touched) -> Changed:
        n = touched.keys.num_rows
        seg, found = touched.by_key()
        new = ~touched.exists[found]
        keys, firsts = found[new], seg.firsts()[new]
        write, timeouts = np.zeros(n, bool), np.full(n, NO_TIMEOUT, np.int64)
        write[keys] = True
        rows = touched.rows
        if self.expiry is not None and len(keys):
            timeouts[keys] = self.expiry.timeouts_ms(rows.select([self.expiry.column]).take(pa.array(firsts)))
        if len(firsts) < rows.num_rows:
            first = np.zeros(rows.num_rows, bool)
            first[firsts] = True
            rows = rows.filter(pa.array(first))
        state = pa.table({SEEN: pa.repeat(True, n)}, schema=self.state_schema)
        return Changed(rows.select(self.output_schema.names), state, write, touched.timed_out, timeouts)
