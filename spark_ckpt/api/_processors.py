"""``transformWithState`` and ``transformWithStateInPandas`` of a checkpointed stream. Driver only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from spark_ckpt.errors import InvalidInputError, UserFunctionError
from spark_ckpt.plan.key_columns import stored_name
from spark_ckpt.plan.session_confs import pandas_options
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.state.functions.user_error import raised
from spark_ckpt.state.processors.declared import Columns, Variable
from spark_ckpt.state.processors.function import TIME_MODES, ProcessorFunction
from spark_ckpt.state.processors.handle import PRE_INIT, Handle
from spark_ckpt.types import KEY_GROUP, KEY_HASH, TIMEOUT_MS

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
        ``outputMode`` is append or update. ``uid`` is the operator's name
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
                Counted(), "customer string, n long", "update", "none", uid="counted"
            )
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
    from spark_ckpt.api.grouped import _arrow_columns

    parent: CkptDataFrame = grouped._parent
    name = "transformWithStateInPandas" if pandas else "transformWithState"
    mode = _time_mode(time_mode)
    if output_mode.lower() not in ("append", "update"):
        raise InvalidInputError(f"outputMode must be append or update, found {output_mode!r}")
    for what, value in (("initialState", initial is not None), ("eventTimeColumnName", event_time)):
        if value:
            raise InvalidInputError(f"{name}: {what} is not supported on a checkpointed stream; leave it out")
    columns, conf, struct = parent.columns, parent._session.spark.conf, _struct(output)
    keys = grouped._keys.named_for(columns, [])
    function = ProcessorFunction(
        processor,
        _variables(processor, mode, keys.schema.names),
        arrow_schema(keys.schema),
        _arrow_columns(parent.schema, columns),
        arrow_schema(struct),
        output_struct=struct.json(),
        time_mode=mode,
        pandas=pandas,
        session_timezone=conf.get("spark.sql.session.timeZone"),
        options=pandas_options(conf),
    )
    made: CkptDataFrame = grouped._operator(uid, function, columns, keys, output_mode.lower())
    return made


def _time_mode(given: str) -> str:
    known = {mode.lower(): mode for mode in TIME_MODES}
    if str(given).lower() not in known:
        raise InvalidInputError(
            f"[STATEFUL_PROCESSOR_UNKNOWN_TIME_MODE] Unknown time mode {given}. Accepted timeMode modes are 'none', "
            "'processingTime', 'eventTime'"
        )
    return known[given.lower()]


def _variables(processor: StatefulProcessor, time_mode: str, keys: list[str]) -> tuple[Variable, ...]:
    """What ``init`` declares. It is called on a copy, as Spark does: what it keeps is of no use to tasks."""
    declared: dict[str, Variable] = {}

    def declare(kind: str, name: str, schema: Any, user_key: Any, ttl_ms: int) -> None:
        taken = [*keys, KEY_GROUP, KEY_HASH, TIMEOUT_MS]
        of_key = None if user_key is None else _columns(_struct(user_key), taken, "_key")
        value = _columns(_struct(schema), [*taken, *(of_key.stored.names if of_key else [])], "_value")
        declared[name] = Variable(name, kind, value, of_key, ttl_ms)

    handle = Handle(time_mode, PRE_INIT, declare)
    copy = cloudpickle.loads(cloudpickle.dumps(processor))
    for step, method, args in (("init", copy.init, (handle,)), ("close", copy.close, ())):
        try:
            method(*args)
        except Exception as e:
            raise UserFunctionError(raised(f"{type(processor).__name__}.{step}", e)) from e
    return tuple(declared[name] for name in handle.declared)


def _columns(struct: T.StructType, taken: list[str], behind: str) -> Columns:
    """The fields under names that a state table can have beside its key columns: it ignores case."""
    used, fields = {name.lower() for name in taken}, []
    for field in arrow_schema(struct):
        name = stored_name(field.name)
        while name.lower() in used:
            name += behind
        used.add(name.lower())
        fields.append(pa.field(name, field.type))
    return Columns(struct.json(), pa.schema(fields))


def _struct(schema: Any) -> T.StructType:
    struct = schema if isinstance(schema, T.DataType) else T.StructType.fromDDL(schema)
    if not isinstance(struct, T.StructType):
        raise InvalidInputError(f"expected a StructType or a text such as 'n long, name string', found {schema!r}")
    return struct
