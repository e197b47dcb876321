"""One call of a processor: for rows that arrived, or for timers whose time has come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import UserFunctionError
from spark_ckpt.state.functions.base import CallContext, Touched
from spark_ckpt.state.functions.pandas_function import PORTION_KEYS, collector_paused
from spark_ckpt.state.functions.user_error import raised
from spark_ckpt.state.ipc import Rows, one_batch, picked
from spark_ckpt.state.keys.grouping import Segments, segments_by_index
from spark_ckpt.state.processors._lists import Lists, NextIndexes
from spark_ckpt.state.processors._maps import Maps
from spark_ckpt.state.processors._rows import Key, Outputs, iterated, side_by_side
from spark_ckpt.state.processors._stored import Progress, end_expired
from spark_ckpt.state.processors._timers import Timers
from spark_ckpt.state.processors._values import Values, values_of
from spark_ckpt.state.processors.declared import INITIAL, LIST, LISTS, TIMERS, VALUE, Variable
from spark_ckpt.state.processors.handle import CLOSED, CREATED, DATA_PROCESSED, INITIALIZED, Handle

if TYPE_CHECKING:
    from spark_ckpt.state.processors.function import ProcessorFunction


class _Calls(NamedTuple):
    """Calls of one method of the processor. ``places``: for which keys, by their places among the touched ones.

    ``given(i, j)`` is what calls number *i* to *j* - 1 get besides their key and the times.
    """

    places: Rows
    method: Callable[[Key, Any, Any], Any]
    given: Callable[[int, int], Iterable[Any]]


class ProcessorCall:
    """The state variables of one call, and the processor's calls by key."""

    def __init__(self, function: ProcessorFunction, ctx: CallContext, touched: Touched) -> None:
        self._function, self._ctx, self._touched = function, ctx, touched
        self._processor = function.processor
        self._due = Timers.due(ctx.families[TIMERS]) if TIMERS in ctx.families else []
        self._progress = Progress(np.empty(0, np.int64))
        self._variables: dict[str, Values | Lists | Maps] = {}
        self._lists: NextIndexes | None = None
        self._timers: Timers | None = None

    def run(self) -> pa.Table:
        """What it puts out. Its changes of state are written when this returns."""
        outputs = [self._function.output_schema.empty_table()]
        if not self._due and not self._touched.rows.num_rows:
            for family in self._ctx.families.values():
                end_expired(family)
            return outputs[0]
        rows, timers = self._row_calls(), self._timer_calls()
        self._progress = Progress(np.concatenate([calls.places for calls in [*rows, timers]]))
        self._open()
        handle = Handle(self._function.time_mode, CREATED, self._stored, self._timers)
        self._user("init", self._processor.init, handle)
        self._check(handle.declared)
        handle.phase = INITIALIZED
        for calls in rows:
            outputs += self._outputs(calls)
        handle.phase = DATA_PROCESSED
        outputs += self._outputs(timers)
        handle.phase = CLOSED
        self._user("close", self._processor.close)
        self._write()
        return pa.concat_tables(outputs)

    # -- calls -------------------------------------------------------------------------------------------------

    def _row_calls(self) -> list[_Calls]:
        """Those for the initial state, which only the first batch has, and those for rows."""
        function, rows, handle = self._function, self._touched.rows, self._processor.handleInputRows
        names = function.input_schema.names
        if not function.initial:
            return [self._calls(rows.select(names), *self._touched.by_key(), handle)]
        found, index, keys = [], self._touched.key_index, self._touched.keys.num_rows
        states = rows.column(INITIAL).combine_chunks()
        is_state = states.is_valid().to_numpy(zero_copy_only=False)
        if is_state.any():
            table = pa.table(states.drop_null().flatten(), [f.name for f in states.type])
            found.append(self._calls(table, *segments_by_index(index[is_state], keys), self._begin))
        rows = rows.filter(pa.array(~is_state)).select(names)
        return [*found, self._calls(rows, *segments_by_index(index[~is_state], keys), handle)]

    def _calls(self, rows: pa.Table, seg: Segments, keys: Rows, method: Callable[[Key, Any, Any], Any]) -> _Calls:
        return _Calls(keys, method, self._function.form.rows(*side_by_side(rows, seg)))

    def _begin(self, key: Key, states: Iterator[Any], times: Any) -> Any:
        for state in states:
            self._processor.handleInitialState(key, state, times)
        return ()

    def _timer_calls(self) -> _Calls:
        times = [time for time, _ in self._due]
        places = np.array([key for _, key in self._due], np.int64)
        return _Calls(places, self._expired, lambda first, end: times[first:end])

    def _expired(self, key: Key, time: int, times: Any) -> Iterator[Any]:
        from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo

        info = ExpiredTimerInfo(time)
        result = self._processor.handleExpiredTimer(key=key, timerValues=times, expiredTimerInfo=info)
        yield from iterated(result, self._function.form.takes, self._where, key)
        assert self._timers is not None
        self._timers.fired(self._progress.key, time)

    @cached_property
    def _times(self) -> Any:
        from pyspark.sql.streaming.stateful_processor import TimerValues

        if self._function.time_mode == "None":
            return TimerValues(-1, -1)
        watermark_ms = self._ctx.watermark_ms
        return TimerValues(self._ctx.processing_time_ms, 0 if watermark_ms is None else watermark_ms)

    def _outputs(self, calls: _Calls) -> Iterator[pa.Table]:
        """A table for so many keys; what waits for its conversion is let go of then."""
        for first in range(0, len(calls.places), PORTION_KEYS):
            with collector_paused():
                table = self._portion(calls, first, min(first + PORTION_KEYS, len(calls.places)))
            if table is not None:
                yield table

    def _portion(self, calls: _Calls, first: int, end: int) -> pa.Table | None:
        """Calls number ``first`` to ``end`` - 1. In a call of its own, so that the outputs are gone when the collector
        goes on."""
        form, progress = self._function.form, self._progress
        slots = progress.enter(calls.places[first:end])
        keys = form.keys(picked(one_batch(self._touched.keys), progress.places))
        outputs = Outputs(keys if isinstance(slots, range) else [keys[slot] for slot in slots])
        progress.done = outputs.ends
        values = [variable for variable in self._variables.values() if isinstance(variable, Values)]
        for variable in values:
            variable.enter()
        self._run(calls.method, zip(slots, outputs.keys, calls.given(first, end)), outputs)
        table = form.table(outputs, self._where) if outputs.found else None
        for variable in values:
            variable.leave(self._where())
        progress.leave()
        return table

    def _run(self, method: Callable[..., Any], calls: Iterable[tuple[int, Key, Any]], outputs: Outputs) -> None:
        form, progress, times, where = self._function.form, self._progress, self._times, self._where
        found, ends, key = outputs.found, outputs.ends, None
        try:
            for progress.slot, key, given in calls:
                result = method(key, given, times)
                # Run to its end, whatever of its outputs will be of use.
                found.extend(result if type(result) is GeneratorType else iterated(result, form.takes, where, key))
                ends.append(len(found))
        except Exception as e:
            form.check(outputs, where)  # what came before is told first
            if isinstance(e, UserFunctionError):
                raise
            raise UserFunctionError(raised(where(key), e)) from e

    def _user(self, name: str, method: Any, *args: Any) -> None:
        try:
            method(*args)
        except Exception as e:
            raise UserFunctionError(raised(f"{self._where()}, {name}", e)) from e

    def _where(self, key: Key | None = None) -> str:
        at = f"operator {self._ctx.uid!r}, subtask {self._ctx.subtask}, checkpoint {self._ctx.checkpoint}"
        return at if key is None else f"{at}, key {key!r}"

    # -- state -------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        families, keys, now_ms = self._ctx.families, self._touched.keys.num_rows, self._ctx.processing_time_ms
        if TIMERS in families:
            self._timers = Timers(families[TIMERS], self._progress)
        lists = [v.name for v in self._function.variables if v.kind == LIST]
        if lists:
            self._lists = NextIndexes(families[LISTS], lists, keys, now_ms)
        self._variables = {v.name: self._variable(v, keys, now_ms) for v in self._function.variables}

    def _variable(self, variable: Variable, keys: int, now_ms: int) -> Values | Lists | Maps:
        family = self._ctx.families[variable.name]
        if variable.kind == VALUE:
            return values_of(family, variable, keys, self._progress, now_ms)
        if variable.kind == LIST:
            assert self._lists is not None
            return Lists(family, variable, self._lists, self._progress, now_ms)
        assert variable.user_key is not None
        return Maps(family, variable, variable.user_key, self._progress, now_ms)

    def _stored(self, kind: str, name: str, schema: Any, user_key: Any, ttl_ms: int) -> Any:
        """None: it was declared and deleted, or is not known."""
        stored = self._variables.get(name)
        return stored if stored is not None and stored.variable.kind == kind else None

    def _check(self, declared: list[str]) -> None:
        """Families are made when the query starts."""
        known = sorted(self._variables)
        if sorted(declared) != known:
            raise UserFunctionError(
                f"{self._where()}: init declared the state variables {sorted(declared)}, expected {known} as when the "
                "query was built; declare what does not depend on where init runs"
            )

    def _write(self) -> None:
        for variable in self._variables.values():
            variable.write(self._where())
        if self._lists is not None:
            self._lists.write()
        if self._timers is not None:
            self._timers.write()
