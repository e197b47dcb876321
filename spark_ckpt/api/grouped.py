"""``groupBy(...)`` of a checkpointed stream: the keyed operators. Driver only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.agg import AggSpec
from spark_ckpt.api._aggregation import ALL_ROWS, Aggregation
from spark_ckpt.api._batch_groups import BatchGroups
from spark_ckpt.api._joined_names import JoinedNames
from spark_ckpt.api._keyed import keyed
from spark_ckpt.api._keys import keys_of, refuse_carried
from spark_ckpt.api._pivots import CkptPivot
from spark_ckpt.api._processors import Processors
from spark_ckpt.api._topn import TopRows
from spark_ckpt.api._window_columns import behind_windows, shown, windows_in_columns
from spark_ckpt.api._windows import window_key
from spark_ckpt.api.dataframe import CkptDataFrame
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.hints import Hinting
from spark_ckpt.plan.as_called import as_called
from spark_ckpt.plan.columns import refuse_repeated
from spark_ckpt.plan.functions_with_state import pandas_function, with_stored_names
from spark_ckpt.plan.key_columns import Keys, arrow_columns
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.aggregates.kinds import Rules
from spark_ckpt.state.aggregates.windowed import WindowedAggregate
from spark_ckpt.state.functions.arrow_function import ArrowStateFunction
from spark_ckpt.state.functions.base import StateFunction
from spark_ckpt.state.topn.function import TopN

_AGGREGATE_CONFS = {"ansi": "spark.sql.ansi.enabled", "nan_for_one": "spark.sql.legacy.statisticalAggregate"}
"""Spark's settings for what aggregates give, by the names of ``Rules``."""

_TIMEOUTS = ("NoTimeout", "ProcessingTimeTimeout", "EventTimeTimeout")


class CkptGroupedData(Aggregation, BatchGroups, Processors, TopRows, Hinting):
    """What ``groupBy`` returns. An operator's state is found again by its ``uid``.

    Without one it is derived from the operator's kind and place in the query, and told in the log at start: enough to
    start the same query again. ``spark.ckpt.requireUid`` refuses that.
    """

    def __init__(
        self,
        parent: CkptDataFrame,
        cols: list[Any],
        joined: JoinedNames | None = None,
        by_columns: bool = False,
        places: Mapping[int, int] | None = None,
    ) -> None:
        """``by_columns``: a window among the keys is a column as others are. ``places``: where the columns are that
        keys are, by the keys' numbers, if names do not say."""
        self._rows, self._given, self._joined, self._places = parent, cols, joined, places or {}
        self._given_by_columns = by_columns
        parent, cols, _ = behind_windows(parent, cols) or (parent, cols, [])
        self._behind, self._cols = parent, cols
        self._window, keys = (None, cols) if by_columns else window_key(parent, cols)
        self._parent = self._window.in_front(parent) if self._window else parent
        self._keyed = self._window.assigned(self._parent) if self._window else parent
        self._keys = keys_of(self._keyed, keys or [F.lit(0).alias(ALL_ROWS)])

    @property
    def _columns(self) -> list[str]:
        """Of the rows, as functions of the user's get them."""
        return shown(self._parent.columns)

    @property
    def _df(self) -> Any:
        """What PySpark's own ``cogroup`` asks for."""
        raise InvalidInputError(
            "cogroup of a static DataFrame's groups with those of a stream: call it of the stream, as in "
            'stream.groupBy("k").cogroup(static.groupBy("k")); its function gets the stream\'s rows first'
        )

    def _by_columns(self) -> CkptGroupedData:
        """The same groups, by columns alone: by a hidden one, if need be, for a window."""
        if self._window is None:
            return self
        rows, keys = windows_in_columns(self._behind, self._cols, self._window)
        return CkptGroupedData(rows, keys, self._joined, by_columns=True)

    def aggregate(
        self, *, uid: str | None = None, emit: str = "update", orderBy: str | None = None, **aggregates: AggSpec
    ) -> CkptDataFrame:
        """Keyed aggregation; ``aggregates`` are ``name=agg.count()`` and so on (:mod:`spark_ckpt.agg`).

        ``uid`` is the operator's name in checkpoints: its state is found again by it, whatever else changes.

        ``emit="update"`` gives, for each batch, the new values of the keys it touched, a row a key: the keys, then the
        aggregates. Write them to a merging sink. ``emit="rows"`` gives each input row with the running values of its
        key appended, in ``orderBy`` order within a batch (Flink's rolling aggregation).

        Behind another operator's updates each of them is a row: that is for what only grows, such as the largest of
        counts. (``agg`` refuses them, as Spark does.)

        Raises ``InvalidInputError`` for none, for columns that are not there and types an aggregate cannot take,
        ``TopologyError`` if the ``uid`` is taken::

            totals = orders.groupBy("customer").aggregate(n=agg.count(), total=agg.sum("amount")).uid("totals")
            totals.writeStream.format("sql").option("mergeKeys", "customer")
        """
        if not aggregates:
            raise InvalidInputError("aggregate needs at least one aggregate, such as n=agg.count()")
        if self._window is not None:
            return self._by_columns().aggregate(uid=uid, emit=emit, orderBy=orderBy, **aggregates)
        needed = {s.column for s in aggregates.values() if s.column is not None} | ({orderBy} if orderBy else set())
        columns = self._columns if emit == "rows" else sorted(needed)
        missing = sorted(needed - set(self._columns))
        if missing:
            raise InvalidInputError(f"aggregate names column(s) {missing}; the columns are {self._columns}")
        hidden = sorted(set(columns) & (set(self._keys.expressions) - self._keys.columns))
        if hidden:
            raise InvalidInputError(
                f"the key {hidden[0]!r} is an expression and has the name of a column that is aggregated; "
                f"give it another one: .alias({hidden[0] + '_key'!r})"
            )
        inputs = arrow_columns(self._parent.schema, columns)
        function = AggregateFunction(
            self._key_arrow(), inputs, aggregates, emit=emit, order_by=orderBy, rules=self._rules()
        )
        mode = "update" if emit == "update" else None
        return self._operator(uid, function, columns, output_mode=mode, takes_updates=True)

    def _of(self, rows: CkptDataFrame) -> CkptGroupedData:
        joined = self._joined
        if joined is not None:
            joined = replace(joined, unique=rows)
            rows = joined.keys([])[0]
        return CkptGroupedData(rows, self._given, joined, self._given_by_columns, self._places)

    def _with_windows(self, exprs: list[Any]) -> tuple[CkptGroupedData, list[Any]] | None:
        found = behind_windows(self._rows, self._given, exprs)
        if found is None:
            return None
        rows, keys, made = found
        return CkptGroupedData(rows, keys, self._joined), made

    def _rules(self) -> Rules:
        return Rules(**{name: _is_set(self._parent._session.spark, conf) for name, conf in _AGGREGATE_CONFS.items()})

    def _aggregated(
        self, parent: CkptDataFrame, uid: str | None, specs: dict[str, AggSpec], keys: Keys
    ) -> CkptDataFrame:
        columns = sorted({s.column for s in specs.values() if s.column is not None})
        inputs, rules, window = arrow_columns(parent.schema, columns), self._rules(), self._window
        by = arrow_schema(keys.schema)
        over = self._over(parent)
        if window is None and keys.event_time is not None:
            timed = WindowedAggregate(by, inputs, specs, window=keys.event_time, size_us=0, rules=rules)
            return over._operator(uid, timed, columns, keys, by_agg=True)
        if window is None:
            function = AggregateFunction(by, inputs, specs, rules=rules, over_everything=not self._given)
            return over._operator(uid, function, columns, keys, "update", by_agg=True)
        windowed = window.function(by, inputs, specs, rules=rules)
        return over._operator(uid, windowed, [*columns, *window.inputs], keys, window.mode, by_agg=True)

    def _first(self, parent: CkptDataFrame, uid: str | None, function: TopN, keys: Keys) -> CkptDataFrame:
        self._refuse_repeated()
        over = self._over(parent)
        return over._operator(uid, function, over._columns, keys, by_agg=True)

    def _over(self, parent: CkptDataFrame) -> CkptGroupedData:
        """The same keys of a DataFrame with more columns."""
        made = copy(self)
        made._parent = parent
        return made

    def pivot(self, pivot_col: str, values: list[Any] | None = None) -> CkptPivot:
        """As PySpark's: a column for each of ``values`` that column ``pivot_col`` may have. For ``agg`` and its short
        forms, by windows or the event time, as in Spark's streams; see :meth:`CkptPivot.agg`. Raises Spark's
        ``AnalysisException`` without ``values``."""
        return CkptPivot(self, pivot_col, values)

    def applyInPandasWithState(
        self,
        func: Callable[..., Iterator[Any]],
        outputStructType: T.StructType | str,
        stateStructType: T.StructType | str,
        outputMode: str,
        timeoutConf: str,
        *,
        uid: str | None = None,
    ) -> CkptDataFrame:
        """Spark's operator of the same name: ``func(key, pandas DataFrames, GroupState)`` needs no change.

        ``outputStructType`` and ``stateStructType`` are the columns of what it yields and keeps, ``outputMode`` is
        append or update, ``timeoutConf`` is ``NoTimeout``, ``ProcessingTimeTimeout`` or ``EventTimeTimeout``, which
        needs ``withWatermark`` ahead of ``groupBy``. ``uid`` is the operator's name in checkpoints: its state is found
        again by it. Raises ``InvalidInputError`` for other values and for types no state can hold. What ``func`` raises
        ends the query with a ``UserFunctionError``::

            def counted(key: tuple[str], batches: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
                n = sum(map(len, batches)) + (state.get[0] if state.exists else 0)
                state.update((n,))
                yield pd.DataFrame({"customer": [key[0]], "n": [n]})

            orders.groupBy("customer").applyInPandasWithState(
                counted, "customer string, n long", "n long", "update", "NoTimeout"
            ).uid("counted")

        If ``func`` is an object with a method ``on_checkpoint_complete(checkpoint)``, executors call that when all
        sinks have committed what came out for the checkpoint: at least once in each task of the operator, ahead of the
        rows of the first batch behind it, again when that batch is repeated. Only the newest checkpoint is told; it
        stands for all before it. No batch is made for it, and the last checkpoint of a run is told when an empty Spark
        location is restored from it, or in the next batch at the same one. The object may be another copy in every
        call. What the method raises is logged and fails nothing (in Flink it fails the task): repeating the batch would
        only raise it again, and what it is about has been committed.
        """
        if outputMode.lower() not in ("append", "update"):
            raise InvalidInputError(f"outputMode must be append or update, found {outputMode!r}")
        if self._window is not None:
            given = (func, outputStructType, stateStructType, outputMode, timeoutConf)
            return self._by_columns().applyInPandasWithState(*given, uid=uid)
        columns = self._columns
        output, state = _struct(outputStructType), _struct(stateStructType)
        spark, state = self._parent._session.spark, with_stored_names(state)
        keys = self._keys.named_for(columns, state.names)
        inputs, watermark = arrow_columns(self._parent.schema, columns), bool(self._parent._lineage.watermarks)
        user, timeout = as_called(func, spark), _timeout(timeoutConf)
        function = pandas_function(spark, user, keys, inputs, output, state, timeout, watermark)
        return self._operator(uid, function, columns, keys, outputMode.lower())

    def applyInArrowWithState(
        self,
        func: Callable[..., Any],
        outputStructType: T.StructType | str,
        stateStructType: T.StructType | str,
        timeoutConf: str = "NoTimeout",
        *,
        uid: str | None = None,
    ) -> CkptDataFrame:
        """The vectorised form: ``func(rows, state, ctx) -> (output, new_state)``, once for all keys a task touches.

        ``rows``: the input columns in order of arrival, and ``_key`` (int32), the row of ``state`` each belongs to.
        ``state``: a row a touched key: the key columns, those of ``stateStructType`` (null without state), ``_exists``
        and ``_timed_out`` (bool) and, where time-outs are used, ``_timeout_ms`` (int64, null: none). ``ctx`` is a
        :class:`spark_ckpt.CallContext`. ``output`` has the columns of ``outputStructType`` in any order. ``new_state``
        has a row for each row of ``state``, in the same order, with the columns of ``stateStructType`` and, if you
        want, ``_removed`` (bool: the key's state ends), ``_write`` (bool, default true: false keeps what was stored)
        and ``_timeout_ms`` (epoch milliseconds, null: none; left out: as it was); None keeps all state.

        ``timeoutConf`` and ``uid`` are as in :meth:`applyInPandasWithState`, and so are the errors and what an object
        as ``func`` may have, ``on_checkpoint_complete``. A key whose name is also a state field's, or another column's,
        has ``_key`` behind its name in ``state``::

            def counted(rows: pa.Table, state: pa.Table, ctx: CallContext) -> tuple[pa.Table, pa.Table]:
                touched = np.bincount(rows["_key"].to_numpy(), minlength=len(state))
                n = pc.add(pc.fill_null(state["n"], 0), pa.array(touched))
                return pa.table({"customer": state["customer"], "n": n}), pa.table({"n": n})

            orders.groupBy("customer").applyInArrowWithState(
                counted, "customer string, n long", "n long"
            ).uid("counted")
        """
        if self._window is not None:
            given = (func, outputStructType, stateStructType, timeoutConf)
            return self._by_columns().applyInArrowWithState(*given, uid=uid)
        columns, state = self._columns, _struct(stateStructType)
        keys = self._keys.named_for(columns, state.names)
        function = ArrowStateFunction(
            as_called(func, self._parent._session.spark),
            arrow_schema(keys.schema),
            arrow_columns(self._parent.schema, columns),
            arrow_schema(_struct(outputStructType)),
            arrow_schema(state),
            timeout=_timeout(timeoutConf),
        )
        return self._operator(uid, function, columns, keys)

    def _key_arrow(self) -> pa.Schema:
        refuse_carried(self._keys)
        return arrow_schema(self._keys.schema)

    def _operator(
        self,
        uid: str | None,
        function: StateFunction,
        columns: list[str],
        named: Keys | None = None,
        output_mode: str | None = None,
        by_agg: bool = False,
        takes_updates: bool = False,
    ) -> CkptDataFrame:
        if not (self._given or by_agg):
            raise InvalidInputError("groupBy needs at least one key column")
        if not by_agg:
            refuse_carried(self._keys)
            self._refuse_repeated()
        return keyed(
            self._parent, uid, function, columns, named or self._keys, output_mode, takes_updates=takes_updates
        )

    def _refuse_repeated(self) -> None:
        """Names that come twice only ``agg`` can tell apart."""
        names = self._rows.columns if self._joined is None else self._joined.shown
        refuse_repeated(names, self._parent._session.spark)


def _is_set(spark: Any, conf: str) -> bool:
    return str(spark.conf.get(conf)).lower() == "true"


def _struct(schema: T.StructType | str) -> T.StructType:
    return schema if isinstance(schema, T.StructType) else T.StructType.fromDDL(schema)


def _timeout(conf: str) -> str:
    if conf not in _TIMEOUTS:
        raise InvalidInputError(f"timeoutConf must be one of {list(_TIMEOUTS)}, found {conf!r}")
    return conf
