"""``applyInArrowWithState``: the user's function sees all touched keys of a task as Arrow tables; no loop over keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from spark_ckpt.arrow_types import exact_cast
from spark_ckpt.errors import UserFunctionError
from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, Changed, Touched, UserStateFunction, nothing_in
from spark_ckpt.state.functions.user_error import raised
from spark_ckpt.state.ipc import plain_array
from spark_ckpt.types import TIMEOUT_MS

KEY_ROW = "_key"
EXISTS = "_exists"
TIMED_OUT = "_timed_out"
REMOVED = "_removed"
WRITE = "_write"

UserFunction = Callable[[pa.Table, pa.Table, CallContext], "tuple[pa.Table, pa.Table | None]"]


class ArrowStateFunction(UserStateFunction):
    """Runs ``func(rows, state, ctx) -> (output, new_state)`` once for all touched keys of a subtask.

    ``rows``: the input columns in order of arrival, and ``_key`` (int32), the row of ``state`` each belongs to.
    ``state``: one row a touched key with the key columns, the value columns (null without state), ``_exists`` and
    ``_timed_out`` (bool) and, where time-outs are used, ``_timeout_ms`` (int64, null: none).

    ``output`` has the columns of ``output_schema`` in any order. ``new_state`` has a row for each row of ``state``, in
    the same order, with the value columns and optionally ``_removed`` (bool: the key's state ends), ``_write`` (bool,
    default true: false keeps what was stored) and ``_timeout_ms`` (epoch milliseconds, null: none; left out: as it
    was). None keeps all state. A time-out that passed is cleared unless the call sets another one.

    Raises ``UserFunctionError`` when the function raises or its tables do not fit.
    """

    kind = "applyInArrowWithState"

    def __init__(
        self,
        func: UserFunction,
        key_schema: pa.Schema,
        input_schema: pa.Schema,
        output_schema: pa.Schema,
        state_schema: pa.Schema,
        timeout: str = "NoTimeout",
    ) -> None:
        self.func = func
        self.key_schema, self.input_schema = key_schema, input_schema
        self.output_schema, self.state_schema, self.timeout = nullable(output_schema), nullable(state_schema), timeout

    def begins(self, family: str = "") -> Mapping[str, pa.Scalar] | None:
        return nothing_in(self.state_schema)

    def process(self, ctx: CallContext, touched: Touched) -> Changed:
        rows = touched.rows.select(self.input_schema.names)
        rows = rows.append_column(KEY_ROW, pa.array(touched.key_index.astype(np.int32)))
        try:
            result = self.func(rows, self._state_in(touched), ctx)
        except Exception as e:
            raise UserFunctionError(raised(_where(ctx), e)) from e
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], pa.Table)):
            raise UserFunctionError(
                f"{_where(ctx)}: expected a tuple (output pyarrow.Table, state pyarrow.Table or None), "
                f"found {_shape(result)}."
            )
        output = self._fit(ctx, "output", result[0], self.output_schema)
        return self._kept(touched, output) if result[1] is None else self._changed(ctx, touched, output, result[1])

    def _state_in(self, touched: Touched) -> pa.Table:
        table = touched.keys.select(self.key_schema.names)
        for f in self.state_schema:
            table = table.append_column(f, touched.state[f.name])
        table = table.append_column(EXISTS, pa.array(touched.exists))
        table = table.append_column(TIMED_OUT, pa.array(touched.timed_out))
        if self.timeout == "NoTimeout":
            return table
        none = touched.timeout_ms == NO_TIMEOUT
        return table.append_column(TIMEOUT_MS, pa.array(touched.timeout_ms, pa.int64(), mask=none))

    def _kept(self, touched: Touched, output: pa.Table) -> Changed:
        none = np.zeros(touched.keys.num_rows, bool)
        timeout_ms = np.where(touched.timed_out, NO_TIMEOUT, touched.timeout_ms)
        return Changed(output, touched.state, touched.timed_out.copy(), none, timeout_ms)

    def _changed(self, ctx: CallContext, touched: Touched, output: pa.Table, new: object) -> Changed:
        n = touched.keys.num_rows
        if not isinstance(new, pa.Table) or new.num_rows != n:
            raise UserFunctionError(
                f"{_where(ctx)}: expected a state pyarrow.Table of {n} rows, one for each row of the state passed in, "
                f"found {_shape(new)}."
            )
        remove = self._flags(ctx, new, REMOVED, np.zeros(n, bool))
        write = self._flags(ctx, new, WRITE, np.ones(n, bool)) & ~remove
        state = self._fit(ctx, "state", new, self.state_schema)
        timeout_ms = self._timeouts(ctx, touched, new)
        lapsed = touched.timed_out & ~write & ~remove
        if lapsed.any():
            state = _choose(lapsed, touched.state, state)
            timeout_ms = np.where(lapsed, NO_TIMEOUT, timeout_ms)
        return Changed(output, state, write | lapsed, remove, timeout_ms)

    def _flags(self, ctx: CallContext, new: pa.Table, name: str, default: np.ndarray) -> np.ndarray:
        if name not in new.schema.names:
            return default
        flags = plain_array(new[name])
        if not pa.types.is_boolean(flags.type) or flags.null_count:
            raise UserFunctionError(
                f"{_where(ctx)}: expected state column {name!r} to be bool without nulls, found {flags.type} with "
                f"{flags.null_count} nulls."
            )
        return flags.to_numpy(zero_copy_only=False)

    def _timeouts(self, ctx: CallContext, touched: Touched, new: pa.Table) -> np.ndarray:
        if TIMEOUT_MS not in new.schema.names:
            return np.where(touched.timed_out, NO_TIMEOUT, touched.timeout_ms)
        column = plain_array(new[TIMEOUT_MS])
        if self.timeout == "NoTimeout" or not pa.types.is_integer(column.type):
            raise UserFunctionError(
                f"{_where(ctx)}: expected state column {TIMEOUT_MS!r} only with a time-out and as int64, found "
                f"{column.type} with timeout {self.timeout!r}."
            )
        return column.cast(pa.int64()).fill_null(NO_TIMEOUT).to_numpy()

    def _fit(self, ctx: CallContext, what: str, table: pa.Table, schema: pa.Schema) -> pa.Table:
        """``table`` with exactly ``schema``; only casts that lose nothing are made."""
        names = [name for name in table.schema.names if what == "output" or name in schema.names]
        try:
            if sorted(names) != sorted(schema.names):
                raise pa.ArrowInvalid("column names differ")
            return pa.table([exact_cast(table[f.name], f.type) for f in schema], schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as e:
            raise UserFunctionError(
                f"{_where(ctx)}: the {what} table does not fit: expected {_types(schema)}, found "
                f"{_types(table.schema)}: {e}"
            ) from e


def nullable(schema: pa.Schema) -> pa.Schema:
    """Every column nullable, as Spark makes what a stateful operator puts out; keys without state need it too."""
    return pa.schema([f.with_nullable(True) for f in schema])


def _choose(mask: np.ndarray, a: pa.Table, b: pa.Table) -> pa.Table:
    """Rows of ``a`` where ``mask``, else of ``b``."""
    n = len(mask)
    at = np.where(mask, np.arange(n), n + np.arange(n))
    return pa.concat_tables([a.select(b.schema.names).cast(b.schema), b]).take(pa.array(at))


def _types(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{f.name} {f.type}" for f in schema) + ")"


def _shape(value: object) -> str:
    if isinstance(value, pa.Table):
        return f"a pyarrow.Table of {value.num_rows} rows"
    if isinstance(value, tuple):
        return "a tuple of (" + ", ".join(type(v).__name__ for v in value) + ")"
    return type(value).__name__


def _where(ctx: CallContext) -> str:
    return f"operator {ctx.uid!r}, subtask {ctx.subtask}, checkpoint {ctx.checkpoint}"
