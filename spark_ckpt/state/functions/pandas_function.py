"""Drop-in for ``applyInPandasWithState``: the user's per-key function, called for all touched keys of a subtask.

Rows become pandas once a call and each key gets a slice; outputs and states become Arrow once. What the function sees
is PySpark's own: its ``GroupState`` class and its conversions, in the order Spark calls (keys with rows first, then
keys whose time-out passed). This file and ``functions_pandas_input`` are the only ones of ``state/`` that import
pyspark, and only when called.

What Spark does behind ``GroupState`` (4.2, ``FlatMapGroupsInPandasWithStateExec``) is reproduced here:

- Each call gets a fresh ``GroupState`` without time-out. A call that updates or removes the state stores the time-out
  set in that very call, or none. A call that does neither and sets no time-out stores nothing: the old time-out stays.
- ``remove()`` with a time-out set keeps the key, without a value, until the time-out.
- For a time-out the function gets a list of one empty DataFrame with the columns' names.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import UserFunctionError
from spark_ckpt.state.functions.arrow_function import nullable
from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, Changed, Touched, UserStateFunction, nothing_in
from spark_ckpt.state.functions.pandas_input import DEFINED, CallInput, spark_struct
from spark_ckpt.state.functions.pandas_output import KeyOutput, OutputConversion, checked_frame
from spark_ckpt.state.functions.user_error import raised

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState


PORTION_KEYS = 1024
"""So many keys' outputs are converted together and then let go of."""

_OUTPUT_OPTIONS = ("safecheck", "int_to_decimal_coercion_enabled")


class PandasStateFunction(UserStateFunction):
    """Runs ``func(key: tuple, pdfs: Iterator[DataFrame], state: GroupState) -> Iterator[DataFrame]``.

    ``input_schema`` are the columns the function sees. ``output_struct`` and ``state_struct`` are the JSON of the
    user's ``StructType``s; without them they are derived from the Arrow schemas. ``has_watermark``: the stream has
    one (``withWatermark``), so ``getCurrentWatermarkMs`` is allowed and 0 before the first. ``options``: PySpark's
    conversion settings by the names of its ``PandasToArrowConversion`` (``safecheck``, ``assign_cols_by_name``,
    ``int_to_decimal_coercion_enabled``) and ``prefer_int_ext_dtype``.
    """

    kind = "applyInPandasWithState"

    def __init__(
        self,
        func: Callable[..., Iterable[pd.DataFrame]],
        key_schema: pa.Schema,
        input_schema: pa.Schema,
        output_schema: pa.Schema,
        state_schema: pa.Schema,
        output_struct: str | None = None,
        state_struct: str | None = None,
        timeout: str = "NoTimeout",
        session_timezone: str = "UTC",
        has_watermark: bool = False,
        options: dict[str, bool] | None = None,
    ) -> None:
        self.func = func
        self.key_schema, self.input_schema, self.output_schema = key_schema, input_schema, nullable(output_schema)
        self.value_schema = nullable(state_schema)
        defined = [pa.field(DEFINED, pa.bool_())] if timeout != "NoTimeout" else []
        self.state_schema = pa.schema([*self.value_schema, *defined])
        self.output_struct, self.state_struct = output_struct, state_struct
        self.timeout, self.session_timezone, self.has_watermark = timeout, session_timezone, has_watermark
        self.options = dict(options or {})

    def begins(self, family: str = "") -> Mapping[str, pa.Scalar] | None:
        return nothing_in(self.value_schema)

    def process(self, ctx: CallContext, touched: Touched) -> Changed:
        """One call of the function for each touched key."""
        inputs = CallInput(self, ctx, touched)
        results = _Results(touched.keys.num_rows)
        outputs = [self.output_schema.empty_table()]
        for calls in _portions(inputs.calls()):
            with collector_paused():
                outputs.append(self._output_table(ctx, self._returned(ctx, inputs, calls, results)))
        return Changed(
            pa.concat_tables(outputs),
            self._state_table(ctx, results, inputs.keys),
            results.write,
            results.remove,
            results.timeout_ms,
        )

    def _returned(
        self, ctx: CallContext, inputs: CallInput, calls: Iterable[tuple[int, object]], results: _Results
    ) -> list[KeyOutput]:
        """What the function returns for some keys."""
        returned: list[KeyOutput] = []
        for i, pdfs in calls:
            state = inputs.group_state(i)
            frames = self._call(ctx, inputs.keys[i], pdfs, state)
            if frames:
                returned.append(KeyOutput(inputs.keys[i], frames))
            results.record(i, state)
        return returned

    def _call(self, ctx: CallContext, key: tuple[Any, ...], pdfs: object, state: GroupState) -> list[pd.DataFrame]:
        """Runs the user's generator to its end, so that the state is final."""
        try:
            result = self.func(key, pdfs, state)
        except Exception as e:
            raise self._raised(ctx, key, e) from e
        frames: list[pd.DataFrame] = []
        by_name = self.options.get("assign_cols_by_name", True)
        for frame in self._iterate(ctx, key, result):
            checked = checked_frame(partial(_where, ctx, key), frame, self.output_schema.names, by_name)
            if checked is not None:
                frames.append(checked)
        return frames

    def _iterate(self, ctx: CallContext, key: tuple[Any, ...], result: object) -> Iterator[Any]:
        import pandas as pd

        if isinstance(result, pd.DataFrame) or not isinstance(result, Iterable):
            raise UserFunctionError(
                f"{_where(ctx, key)}: expected an iterable of pandas.DataFrame, found {type(result).__name__}. "
                "Use yield, or return a list of DataFrames."
            )
        try:
            yield from result
        except Exception as e:
            raise self._raised(ctx, key, e) from e

    def _raised(self, ctx: CallContext, key: tuple[Any, ...], e: Exception) -> UserFunctionError:
        return UserFunctionError(raised(_where(ctx, key), e))

    def _output_table(self, ctx: CallContext, outputs: list[KeyOutput]) -> pa.Table:
        struct = spark_struct(self.output_struct, self.output_schema)
        known = {k: v for k, v in self.options.items() if k in _OUTPUT_OPTIONS}
        return OutputConversion(self.output_schema, struct, self.session_timezone, known).table(outputs, _where(ctx))

    def _state_table(self, ctx: CallContext, results: _Results, keys: Sequence[tuple[Any, ...]]) -> pa.Table:
        """All new states in one conversion; null where a key has none."""
        at = np.full(len(results.write), -1)
        at[list(results.values)] = np.arange(len(results.values))
        stored = self.value_schema.empty_table()
        for i, value in results.values.items():
            if len(value) != len(self.value_schema):
                raise self._bad_state(ctx, keys[i], value)
        if results.values:
            try:
                stored = self._to_arrow(list(results.values.values()))
            except Exception as e:
                bad = self._misfit(results)
                raise self._bad_state(ctx, keys[bad], results.values[bad]) from e
        table = stored.take(pa.array(at, mask=at < 0))
        return table.append_column(DEFINED, pa.array(at >= 0)) if self.timeout != "NoTimeout" else table

    def _misfit(self, results: _Results) -> int:
        """The first key whose new state does not fit."""
        from pyspark.errors import PySparkException

        bad = (PySparkException, pa.ArrowException, TypeError, ValueError, ArithmeticError, AssertionError)
        for i, value in results.values.items():
            try:
                self._to_arrow([value])
            except bad:
                return i
        return next(iter(results.values))

    def _to_arrow(self, values: list[tuple[Any, ...]]) -> pa.Table:
        from pyspark.sql.conversion import LocalDataToArrowConversion

        struct = spark_struct(self.state_struct, self.value_schema)
        return LocalDataToArrowConversion.convert(values, struct, False).cast(self.value_schema)

    def _bad_state(self, ctx: CallContext, key: tuple[Any, ...], value: tuple[Any, ...]) -> UserFunctionError:
        found = ", ".join(type(v).__name__ for v in value)
        return UserFunctionError(
            f"{_where(ctx, key)}: state.update() expected a tuple of {_types(self.value_schema)}, found {len(value)} "
            f"values of types ({found}). Pass one value for each field of stateStructType."
        )


@dataclass
class _Results:
    """What the calls did, one entry a touched key."""

    keys: int
    values: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """Value by key, of keys that are written and have one."""

    def __post_init__(self) -> None:
        self.write = np.zeros(self.keys, bool)
        self.remove = np.zeros(self.keys, bool)
        self.timeout_ms = np.full(self.keys, NO_TIMEOUT, np.int64)

    def record(self, i: int, state: GroupState) -> None:
        """As ``FlatMapGroupsInPandasWithStateExec.process`` decides between putState, removeState and neither."""
        timeout_ms = state._timeout_timestamp
        if state._removed and timeout_ms == NO_TIMEOUT:
            self.remove[i] = True
        elif state._updated or state._removed or timeout_ms != state.oldTimeoutTimestamp:
            self.write[i] = True
            self.timeout_ms[i] = int(timeout_ms)
            if state.exists:
                self.values[i] = state.get


def _portions(calls: Iterator[tuple[int, object]]) -> Iterator[Iterator[tuple[int, object]]]:
    """``calls`` in portions of ``PORTION_KEYS``."""
    for first in calls:
        yield chain([first], islice(calls, PORTION_KEYS - 1))


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Without Python's cyclic garbage collector, which would walk the outputs that wait for their conversion again
    and again; that took a quarter of the time. It goes on between portions, when they are gone."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _types(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{f.name} {f.type}" for f in schema) + ")"


def _where(ctx: CallContext, key: tuple[Any, ...] | None = None) -> str:
    at = f"operator {ctx.uid!r}, subtask {ctx.subtask}, checkpoint {ctx.checkpoint}"
    return at if key is None else f"{at}, key {key!r}"
