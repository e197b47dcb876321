"""``transformWithState`` and ``transformWithStateInPandas`` of a checkpointed stream. Driver only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from spark_ckpt.api._event_time import timed_preview
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.as_called import as_called
from spark_ckpt.plan.columns import is_case_sensitive, quoted
from spark_ckpt.plan.functions_with_state import processor_function
from spark_ckpt.plan.key_columns import arrow_columns, column_named
from spark_ckpt.plan.processor_variables import as_struct
from spark_ckpt.sources.initial_rows import initial_rows
from spark_ckpt.state.processors.declared import INITIAL
from spark_ckpt.state.processors.function import TIME_MODES

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame
    from spark_ckpt.plan.key_columns import Keys


class Processors:
    """The methods of ``groupBy(...)`` that take a ``StatefulProcessor``."""

    _parent: CkptDataFrame
    _keys: Keys

    def transformWithStateInPandas(
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: T.StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: Any = None,
        eventTimeColumnName: str = "",
        *,
        uid: str | None = None,
    ) -> CkptDataFrame:
        """Spark's operator of the same name: a ``StatefulProcessor`` that takes and yields pandas DataFrames moves over
        unchanged, with value, list and map state, timers and TTL.

        ``timeMode`` is none, processingTime or eventTime, which needs ``withWatermark`` ahead of ``groupBy``;
        ``outputMode`` is append or update. ``initialState`` is a DataFrame of Spark's behind ``groupBy``; it is
        collected here and read once in the job's life, together with the first batch. ``eventTimeColumnName`` is the
        column of the output that is its event time, which operators behind go by; a row in it that is not behind the
        watermark ends the query. ``uid`` is the operator's name
        in checkpoints; each state variable is a state table of its own, ``uid.variable``. ``init`` is also called
        once here, on a copy of the processor, to hear
        what it declares. Raises ``InvalidInputError`` for other values and for types no state can hold; what the
        processor raises ends the query with a ``UserFunctionError``::

            class Counted(StatefulProcessor):
                def init(self, handle):
                    self.count = handle.getValueState("count", "n long")

                def handleInputRows(self, key, rows, timerValues):
                    n = sum(map(len, rows)) + (self.count.get()[0] if self.count.exists() else 0)
                    self.count.update((n,))
                    yield pd.DataFrame({"customer": [key[0]], "n": [n]})

            orders.groupBy("customer").transformWithStateInPandas(
                Counted(), "customer string, n long", "update", "none"
            ).uid("counted")
        """
        given = (statefulProcessor, outputStructType, outputMode, timeMode, initialState, eventTimeColumnName)
        return _transformed(self, uid, True, *given)

    def transformWithState(
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: T.StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: Any = None,
        eventTimeColumnName: str = "",
        *,
        uid: str | None = None,
    ) -> CkptDataFrame:
        """As :meth:`transformWithStateInPandas`, for a processor that takes and yields ``Row``s."""
        given = (statefulProcessor, outputStructType, outputMode, timeMode, initialState, eventTimeColumnName)
        return _transformed(self, uid, False, *given)


def _transformed(
    grouped: Any,
    uid: str | None,
    pandas: bool,
    processor: StatefulProcessor,
    output: T.StructType | str,
    output_mode: str,
    time_mode: str,
    initial: Any,
    event_time: str,
) -> CkptDataFrame:
    grouped = grouped._by_columns()
    parent: CkptDataFrame = grouped._parent
    name = "transformWithStateInPandas" if pandas else "transformWithState"
    mode = _time_mode(time_mode)
    if output_mode.lower() not in ("append", "update"):
        raise InvalidInputError(f"outputMode must be append or update, found {output_mode!r}")
    columns, struct = grouped._columns, as_struct(output)
    time = _output_time(parent, struct, event_time) if event_time else None
    keys = grouped._keys.named_for(columns, [])
    if initial is not None:
        grouped = grouped._over(_with_initial(name, parent, keys, initial, uid))
    spark, inputs = parent._session.spark, arrow_columns(parent.schema, columns)
    user, with_initial = as_called(processor, spark), initial is not None
    function = processor_function(spark, user, keys, inputs, struct, mode, pandas, with_initial, time)
    needed = [*columns, INITIAL] if function.initial else columns
    made: CkptDataFrame = grouped._operator(uid, function, needed, keys, output_mode.lower())
    if time is None:
        return made
    lineage = parent._lineage
    (watermark, *_) = lineage.open_watermarks or lineage.watermarks[::-1]
    return made._made(made._recipe, made._lineage, timed_preview(made, time, watermark.delay_us // 1000))


def _output_time(parent: CkptDataFrame, output: T.StructType, name: str) -> str:
    """The column of the output that ``name`` means. Raises ``InvalidInputError`` for what Spark refuses."""
    if not parent._lineage.watermarks:
        raise InvalidInputError(
            "[CANNOT_ASSIGN_EVENT_TIME_COLUMN_WITHOUT_WATERMARK] Watermark needs to be defined to reassign event time "
            "column. Failed to find watermark definition in the streaming query: call withWatermark in front of groupBy"
        )
    sensitive = is_case_sensitive(parent._session.spark)
    found = column_named(output.fieldNames(), name, sensitive)
    kind = None if found is None else output[found].dataType
    if found is None or not isinstance(kind, T.TimestampType):
        what = "is none" if kind is None else f"has the invalid type {kind.simpleString()}"
        raise InvalidInputError(
            f'[EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE] The event time {name} {what}, but expected "TIMESTAMP" among the '
            f"columns of outputStructType: {output.fieldNames()}"
        )
    return found


def _with_initial(name: str, rows: CkptDataFrame, keys: Keys, initial: Any, uid: str | None) -> CkptDataFrame:
    """``rows`` together with those of the initial state, which a source of their own has: it is read once."""
    from spark_ckpt.api.session import CkptDataStreamReader

    names = keys.schema.names
    try:
        counted, state = initial.count(), initial._df
    except AttributeError:
        raise InvalidInputError(
            f"{name}: expected initialState to be a DataFrame of Spark's behind groupBy, such as "
            f"spark.read.parquet(path).groupBy({', '.join(map(repr, names))}), found {type(initial).__name__}"
        ) from None
    found = counted.schema.fields[:-1]
    if not keys.plain or not {f.name for f in found} <= set(state.columns) or _types(found) != _types(keys.schema):
        raise InvalidInputError(
            f"{name}: expected initialState to be grouped by columns of the types {_types(keys.schema)}, as the stream "
            f"is, found {[f.name for f in found]} of types {_types(found)}; on both sides, give an expression a column "
            "of its own first"
        )
    columns = [F.col(quoted(f.name)).alias(key) for f, key in zip(found, names, strict=True)]
    table = state.select(*columns, F.struct(*[F.col(quoted(c)) for c in state.columns]).alias(INITIAL))
    reader = CkptDataStreamReader(rows._session).format(initial_rows(table.toArrow())).schema(table.schema)
    read = reader.load() if uid is None else reader.option("uid", f"{uid}-initial").load()
    return rows.unionByName(read, allowMissingColumns=True)


def _types(fields: Any) -> list[str]:
    return [f.dataType.simpleString() for f in fields]


def _time_mode(given: str) -> str:
    known = {mode.lower(): mode for mode in TIME_MODES}
    if str(given).lower() not in known:
        raise InvalidInputError(
            f"[STATEFUL_PROCESSOR_UNKNOWN_TIME_MODE] Unknown time mode {given}. Accepted timeMode modes are 'none', "
            "'processingTime', 'eventTime'"
        )
    return known[given.lower()]
