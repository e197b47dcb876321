"""Drop-in for ``applyInPandasWithState``: the user's per-key function, called for a whole key group at a time.

Rows become pandas once a call and each key gets a slice; outputs and states become Arrow once. What the function sees
is PySpark's own: its ``GroupState`` class and its conversions, in the order Spark calls (keys with rows first, then
keys whose time-out passed). This is the one file of ``state/`` that imports pyspark, and only when called.

What Spark does behind ``GroupState`` (4.2, ``FlatMapGroupsInPandasWithStateExec``) is reproduced here:

- Each call gets a fresh ``GroupState`` without time-out. A call that updates or removes the state stores the time-out
  set in that very call, or none. A call that does neither and sets no time-out stores nothing: the old time-out stays.
- ``remove()`` with a time-out set keeps the key, without a value, until the time-out.
- For a time-out the function gets a list of one empty DataFrame with the columns' names.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import UserFunctionError
from spark_ckpt.state.aggregates_segments import plain_array, segments_by_index
from spark_ckpt.state.function import NO_TIMEOUT, CallContext, Changed, StateFunction, Touched

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState
    from pyspark.sql.types import StructType

DEFINED = "_defined"
"""Extra state column where time-outs are used: a key may have a time-out and no value."""


class PandasStateFunction(StateFunction):
    """Runs ``func(key: tuple, pdfs: Iterator[DataFrame], state: GroupState) -> Iterator[DataFrame]``.

    ``input_schema`` are the columns the function sees. ``output_struct`` and ``state_struct`` are the JSON of the
    user's ``StructType``s; without them they are derived from the Arrow schemas. ``has_watermark``: the stream has
    one (``withWatermark``), so ``getCurrentWatermarkMs`` is allowed and 0 before the first. ``options``: PySpark's
    conversion settings by the names of its ``PandasToArrowConversion`` (``safecheck``, ``assign_cols_by_name``,
    ``int_to_decimal_coercion_enabled``) and ``prefer_int_ext_dtype``.
    """

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
        self.key_schema, self.input_schema, self.output_schema = key_schema, input_schema, output_schema
        self.value_schema = state_schema
        has_timeout = timeout != "NoTimeout"
        self.state_schema = state_schema.append(pa.field(DEFINED, pa.bool_())) if has_timeout else state_schema
        self.output_struct, self.state_struct = output_struct, state_struct
        self.timeout, self.session_timezone, self.has_watermark = timeout, session_timezone, has_watermark
        self.options = dict(options or {})

    def process(self, ctx: CallContext, touched: Touched) -> Changed:
        """One call of the function for each touched key."""
        batch = _Batch(self, ctx, touched)
        results = _Results(touched.keys.num_rows)
        for i, pdfs in batch.calls():
            state = batch.group_state(i)
            outputs = self._call(ctx, batch.keys[i], pdfs, state)
            results.outputs.extend(outputs)
            results.record(i, state)
        return Changed(
            self._output_table(ctx, results.outputs),
            self._state_table(ctx, results, batch.keys),
            results.write,
            results.remove,
            results.timeout_ms,
        )

    def _call(self, ctx: CallContext, key: tuple[Any, ...], pdfs: object, state: GroupState) -> list[pd.DataFrame]:
        """Runs the user's generator to its end, so that the state is final."""
        try:
            result = self.func(key, pdfs, state)
        except Exception as e:
            raise self._raised(ctx, key, e) from e
        frames: list[pd.DataFrame] = []
        for frame in self._iterate(ctx, key, result):
            self._check_frame(ctx, key, frame)
            if len(frame) > 0:
                frames.append(frame)
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
        return UserFunctionError(f"{_where(ctx, key)}: the user's function raised {type(e).__name__}: {e}")

    def _check_frame(self, ctx: CallContext, key: tuple[Any, ...], frame: object) -> None:
        import pandas as pd

        if not isinstance(frame, pd.DataFrame):
            raise UserFunctionError(f"{_where(ctx, key)}: expected pandas.DataFrame, found {type(frame).__name__}.")
        names = self.output_schema.names
        if len(frame.columns) == 0 and frame.empty:
            return
        named = any(isinstance(c, str) for c in frame.columns)
        if len(frame.columns) != len(names) or (named and set(names) != set(frame.columns)):
            raise UserFunctionError(
                f"{_where(ctx, key)}: expected output columns {names}, found {list(frame.columns)}. "
                "Return the columns of outputStructType, by name."
            )

    def _output_table(self, ctx: CallContext, frames: list[pd.DataFrame]) -> pa.Table:
        """All keys' outputs in one conversion, with PySpark's coercions."""
        if not frames:
            return self.output_schema.empty_table()
        import pandas as pd
        from pyspark.sql.conversion import PandasToArrowConversion

        options = {"safecheck": True, "assign_cols_by_name": True, **self.options}
        options.pop("prefer_int_ext_dtype", None)
        try:
            with warnings.catch_warnings():
                # pandas announces a change for all-null columns that Spark's own concat is subject to as well.
                warnings.simplefilter("ignore", FutureWarning)
                merged = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
            batch = PandasToArrowConversion.convert(
                merged, _struct(self.output_struct, self.output_schema), timezone=self.session_timezone,
                arrow_cast=True, **options
            )  # fmt: skip
            return pa.Table.from_batches([batch]).cast(self.output_schema)
        except Exception as e:
            found = {str(c): str(t) for c, t in frames[0].dtypes.items()}
            raise UserFunctionError(
                f"{_where(ctx)}: the function's output does not fit outputStructType: expected "
                f"{_types(self.output_schema)}, found {found}: {type(e).__name__}: {e}"
            ) from e

    def _state_table(self, ctx: CallContext, results: _Results, keys: Sequence[tuple[Any, ...]]) -> pa.Table:
        from pyspark.sql.conversion import LocalDataToArrowConversion

        n, values = len(results.write), list(results.values.values())
        at = np.full(n, -1)
        at[list(results.values)] = np.arange(len(values))
        indices = pa.array(at, mask=at < 0)
        stored = self.value_schema.empty_table()
        if values:
            for i, value in results.values.items():
                if len(value) != len(self.value_schema):
                    raise self._bad_state(ctx, keys[i], value)
            struct = _struct(self.state_struct, self.value_schema)
            try:
                stored = LocalDataToArrowConversion.convert(values, struct, False).cast(self.value_schema)
            except Exception as e:
                raise self._bad_state(ctx, *self._find_bad(results, keys)) from e
        table = stored.take(indices)
        return table.append_column(DEFINED, pa.array(at >= 0)) if self.timeout != "NoTimeout" else table

    def _find_bad(self, results: _Results, keys: Sequence[tuple[Any, ...]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        from pyspark.sql.conversion import LocalDataToArrowConversion

        struct = _struct(self.state_struct, self.value_schema)
        for i, value in results.values.items():
            try:
                LocalDataToArrowConversion.convert([value], struct, False).cast(self.value_schema)
            except Exception:
                return keys[i], value
        return (), ()

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
    outputs: list[pd.DataFrame] = field(default_factory=list)
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


class _Batch:
    """The input of one call, converted once."""

    def __init__(self, function: PandasStateFunction, ctx: CallContext, touched: Touched) -> None:
        self.function, self.ctx, self.touched = function, ctx, touched
        self.keys = _key_tuples(touched.keys.select(function.key_schema.names), function.session_timezone)
        self.struct = _struct(function.state_struct, function.value_schema)
        self.values = self._stored_values()

    def calls(self) -> Iterator[tuple[int, object]]:
        """Keys with rows, each with an iterator of its one DataFrame; then timed-out keys."""
        touched, names = self.touched, self.function.input_schema.names
        seg, found = segments_by_index(touched.key_index, touched.keys.num_rows)
        rows = touched.rows.select(names)
        if seg.order is not None:
            rows = rows.take(pa.array(seg.order))
        frames = _Frames(rows, seg.starts, self.function)
        for at, (i, start, end) in enumerate(zip(found.tolist(), seg.starts.tolist(), seg.ends.tolist())):
            yield i, iter((frames.slice(at, start, end),))
        for i in np.flatnonzero(touched.timed_out).tolist():
            yield i, [frames.empty()]

    def group_state(self, i: int) -> GroupState:
        from pyspark.sql.streaming.state import GroupState

        ctx, function = self.ctx, self.function
        value = self.values.get(i)
        watermark_ms = ctx.watermark_ms if ctx.watermark_ms is not None else 0
        return GroupState(
            optionalValue=value,
            batchProcessingTimeMs=ctx.processing_time_ms,
            eventTimeWatermarkMs=watermark_ms if self._has_watermark() else GroupState.NO_TIMESTAMP,
            timeoutConf=function.timeout,
            hasTimedOut=bool(self.touched.timed_out[i]),
            watermarkPresent=self._has_watermark(),
            defined=value is not None,
            updated=False,
            removed=False,
            timeoutTimestamp=GroupState.NO_TIMESTAMP,
            keyAsUnsafe=b"",
            valueSchema=self.struct,
        )

    def _has_watermark(self) -> bool:
        return self.function.has_watermark or self.ctx.watermark_ms is not None

    def _stored_values(self) -> dict[int, tuple[Any, ...]]:
        from pyspark.sql.conversion import ArrowTableToRowsConversion

        has_value = self.touched.exists
        if self.function.timeout != "NoTimeout":
            defined = plain_array(self.touched.state[DEFINED]).fill_null(False)
            has_value = has_value & defined.to_numpy(zero_copy_only=False)
        known = np.flatnonzero(has_value)
        stored = self.touched.state.select(self.function.value_schema.names).take(pa.array(known))
        return dict(zip(known.tolist(), ArrowTableToRowsConversion.convert(stored, self.struct)))


class _Frames:
    """pandas slices of Arrow rows with the types Spark would give each slice by itself.

    Integers and booleans with nulls have another pandas type than those without, so such columns are kept in both
    forms and a slice takes the one its own nulls call for.
    """

    def __init__(self, rows: pa.Table, starts: np.ndarray, function: PandasStateFunction) -> None:
        self.function = function
        self.plain, self.nullable, self.has_nulls = rows, {}, {}
        for at, name in enumerate(rows.schema.names):
            column = plain_array(rows.column(at))
            t = column.type
            if column.null_count and (pa.types.is_integer(t) or pa.types.is_boolean(t)) and len(starts):
                nulls = column.is_null().to_numpy(zero_copy_only=False)
                self.has_nulls[at] = np.logical_or.reduceat(nulls, starts)
                self.nullable[at] = self._pandas(rows.select([at])).iloc[:, 0]
                rows = rows.set_column(
                    at, rows.schema.field(at), column.fill_null(False if pa.types.is_boolean(t) else 0)
                )
        self.frame = self._pandas(rows)

    def _pandas(self, rows: pa.Table) -> pd.DataFrame:
        import pandas as pd
        from pyspark.sql.conversion import ArrowBatchTransformer

        series = ArrowBatchTransformer.to_pandas(
            rows.combine_chunks(),
            timezone=self.function.session_timezone,
            prefer_int_ext_dtype=self.function.options.get("prefer_int_ext_dtype", False),
        )
        return pd.concat(series, axis=1)

    def slice(self, at: int, start: int, end: int) -> pd.DataFrame:
        import pandas as pd

        # A new DataFrame around the slice: the user may write to it without a SettingWithCopyWarning.
        part = pd.DataFrame(self.frame.iloc[start:end])
        part.index = pd.RangeIndex(end - start)
        for column, has_nulls in self.has_nulls.items():
            if has_nulls[at]:
                values = self.nullable[column].iloc[start:end].set_axis(part.index)
                part.isetitem(column, values)
        return part

    def empty(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(columns=self.frame.columns)


def _key_tuples(keys: pa.Table, timezone: str) -> list[tuple[Any, ...]]:
    """Key values of the types ``series[0]`` has when Spark converts each key by itself."""
    from pyspark.sql.conversion import ArrowBatchTransformer

    columns = []
    for at in range(keys.num_columns):
        one = keys.select([at]).combine_chunks()
        valid = plain_array(one.column(0)).is_valid().to_numpy(zero_copy_only=False)
        present = iter(ArrowBatchTransformer.to_pandas(one.filter(pa.array(valid)), timezone=timezone)[0].array)
        null = None
        if not valid.all():
            null = ArrowBatchTransformer.to_pandas(one.slice(int(np.argmin(valid)), 1), timezone=timezone)[0][0]
        columns.append([next(present) if v else null for v in valid.tolist()])
    return list(zip(*columns))


@lru_cache(maxsize=64)
def _struct_of_json(text: str) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(text))


def _struct(text: str | None, schema: pa.Schema) -> StructType:
    """The user's struct, every field nullable as Spark makes state and output."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True) if text is None else _struct_of_json(text)


def _types(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{f.name} {f.type}" for f in schema) + ")"


def _where(ctx: CallContext, key: tuple[Any, ...] | None = None) -> str:
    at = f"operator {ctx.uid!r}, key group {ctx.key_group}, checkpoint {ctx.checkpoint}"
    return at if key is None else f"{at}, key {key!r}"
