"""``limit``: the first rows of a whole query come out; what is kept is how many have."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, Changed, StateFunction, Touched

COUNT = "_rows"
"""The one value column of the state."""


class FirstRows(StateFunction):
    """Lets ``n`` rows pass, of all that ever came, in order of arrival. All rows have one key.

    As ``StreamingGlobalLimitExec`` of Spark: late rows count, and a query that is started again with another ``n``
    goes on from the rows that it had put out.
    """

    kind = "limit"
    state_schema = pa.schema([pa.field(COUNT, pa.int64())])
    passes_rows = True

    def __init__(self, n: int, key_schema: pa.Schema, output_schema: pa.Schema) -> None:
        self.n, self.key_schema, self.output_schema = n, key_schema, output_schema

    def combine(self, rows: pa.Table) -> pa.Table:
        """No task can have more than all of them."""
        return rows.slice(0, self.n)

    def recombine(self, parts: list[pa.Table]) -> pa.Table:
        return self.combine(pa.concat_tables(parts))

    def process(self, ctx: CallContext, touched: Touched) -> Changed:
        before = touched.state[COUNT][0].as_py() if touched.exists[0] else 0
        out = touched.rows.slice(0, max(self.n - before, 0))
        state = pa.table({COUNT: [before + out.num_rows]}, schema=self.state_schema)
        columns = out.select(self.output_schema.names)
        write, timeouts = np.array([out.num_rows > 0]), np.array([NO_TIMEOUT])
        return Changed(columns, state, write, np.zeros(1, bool), timeouts)
