"""What a ``StatefulProcessor`` declares, and under which names its variables are kept. Driver."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from spark_ckpt.errors import InvalidInputError, UserFunctionError
from spark_ckpt.execution.batch_functions import copied
from spark_ckpt.execution.chain import Chain, Recipe, StreamRows
from spark_ckpt.execution.columns import quoted
from spark_ckpt.execution.lineage import Lineage, SourceNode
from spark_ckpt.execution.session_confs import pandas_options
from spark_ckpt.operators.key_columns import Keys, arrow_columns, check_key_of_function, stored, stored_name
from spark_ckpt.operators.keyed_operator import keyed_rows
from spark_ckpt.operators.walks import Node, R, Walked
from spark_ckpt.runtime.stateless import arrow_schema, with_control
from spark_ckpt.sources.initial_rows import initial_rows
from spark_ckpt.state.functions.pandas_function import PandasStateFunction
from spark_ckpt.state.functions.user_error import raised
from spark_ckpt.state.processors.declared import INITIAL, Columns, Variable
from spark_ckpt.state.processors.function import ProcessorFunction
from spark_ckpt.state.processors.handle import PRE_INIT, Handle
from spark_ckpt.types import CONTROL_COLUMNS, KEY_GROUP, KEY_HASH, TIMEOUT_MS


def variables_of(processor: StatefulProcessor, time_mode: str, keys: list[str]) -> tuple[Variable, ...]:
    """What ``init`` declares, where keys are called ``keys``. It is called on a copy, as Spark does: what it keeps is
    of no use to tasks."""
    declared: dict[str, Variable] = {}

    def declare(kind: str, name: str, schema: Any, user_key: Any, ttl_ms: int) -> None:
        taken = [*keys, KEY_GROUP, KEY_HASH, TIMEOUT_MS]
        of_key = None if user_key is None else _columns(as_struct(user_key), taken, "_key")
        value = _columns(as_struct(schema), [*taken, *(of_key.stored.names if of_key else [])], "_value")
        declared[name] = Variable(name, kind, value, of_key, ttl_ms)

    check_timer_method(processor, time_mode)
    handle = Handle(time_mode, PRE_INIT, declare)
    copy = copied(processor)
    for step, method, args in (("init", copy.init, (handle,)), ("close", copy.close, ())):
        try:
            method(*args)
        except Exception as e:
            raise UserFunctionError(raised(f"{type(processor).__name__}.{step}", e)) from e
    return tuple(declared[name] for name in handle.declared)


def check_timer_method(processor: StatefulProcessor, time_mode: str) -> None:
    """It is called by the names of its arguments, when the first timer is due: by then there is state that would be
    stuck. Raises ``InvalidInputError``."""
    if time_mode == "None":
        return
    signature = inspect.signature(processor.handleExpiredTimer)
    try:
        signature.bind(key=None, timerValues=None, expiredTimerInfo=None)
    except TypeError as e:
        raise InvalidInputError(
            f"{type(processor).__name__}.handleExpiredTimer is called with key=, timerValues= and expiredTimerInfo=, "
            f"found {signature}: {e}; give its arguments these names"
        ) from None


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


def as_struct(schema: Any) -> T.StructType:
    struct = schema if isinstance(schema, T.DataType) else T.StructType.fromDDL(schema)
    if not isinstance(struct, T.StructType):
        raise InvalidInputError(f"expected a StructType or a text such as 'n long, name string', found {schema!r}")
    return struct


SparkDF = Any
_ZONE = "spark.sql.session.timeZone"


@dataclass(frozen=True)
class StateFunction:
    """What a node of ``applyInPandasWithState`` says."""

    user: Callable[..., Any]
    state: T.StructType
    timeout: str


@dataclass(frozen=True)
class Processor:
    """What a node of ``transformWithState`` says. ``user`` is the ``StatefulProcessor``, which gets DataFrames if it is
    one of ``pandas``. ``initial``: rows of the state that it begins with, and how many of their first columns are keys.
    """

    user: Any
    pandas: bool
    time_mode: str
    output_time: str | None = None
    initial: tuple[SparkDF, int] | None = None


def function_with_state(
    of: Walked[R], node: Node, rows: R, places: Sequence[int], asked: StateFunction, mode: str
) -> R:
    """``applyInPandasWithState``; the keys are the columns at ``places``."""
    rows, output, state = of.with_own_names(rows), of.schema(node), stored(asked.state)
    keys = _keys(rows, places, state.names)
    function = PandasStateFunction(
        asked.user,
        arrow_schema(keys.schema),
        arrow_columns(rows.schema, rows.schema.names),
        arrow_schema(output),
        arrow_schema(state),
        output_struct=output.json(),
        state_struct=state.json(),
        timeout=asked.timeout,
        session_timezone=of.spark.conf.get(_ZONE),
        has_watermark=bool(rows.lineage.watermarks),
        options=pandas_options(of.spark.conf),
    )
    made = keyed_rows(rows, of.uid(node), function, rows.schema.names, keys, _mode(of, node, mode))
    return of.put_out(node, made)


def processor(of: Walked[R], node: Node, rows: R, places: Sequence[int], asked: Processor, mode: str) -> R:
    """``transformWithState``; the keys are the columns at ``places``."""
    rows, output = of.with_own_names(rows), of.schema(node)
    keys, uid = _keys(rows, places, []), of.uid(node)
    function = ProcessorFunction(
        asked.user,
        variables_of(asked.user, asked.time_mode, keys.schema.names),
        arrow_schema(keys.schema),
        arrow_columns(rows.schema, rows.schema.names),
        arrow_schema(output),
        output_struct=output.json(),
        time_mode=asked.time_mode,
        pandas=asked.pandas,
        session_timezone=of.spark.conf.get(_ZONE),
        options=pandas_options(of.spark.conf),
        initial=asked.initial is not None,
        output_time=asked.output_time,
    )
    both: StreamRows = rows
    if asked.initial is not None:
        both = _with_initial_rows(rows, keys, *asked.initial, uid)
    columns = [*rows.schema.names, *([INITIAL] if asked.initial is not None else [])]
    return of.put_out(node, keyed_rows(both, uid, function, columns, keys, _mode(of, node, mode)))


def _mode(of: Walked[R], node: Node, mode: str) -> str:
    if mode not in ("append", "update"):
        raise InvalidInputError(f"{of.kind(node)}: outputMode must be append or update, found {mode!r}")
    return mode


def _keys(rows: StreamRows, places: Sequence[int], state: list[str]) -> Keys:
    """Spark's keys of functions are columns of the rows. ``state``: names in the function's state."""
    fields = [rows.schema.fields[place] for place in places]
    for f in fields:
        check_key_of_function(f)
    return Keys.of_columns(fields).named_for(rows.schema.names, state)


def _with_initial_rows(rows: StreamRows, keys: Keys, state: SparkDF, count: int, uid: str | None) -> StreamRows:
    """``rows`` together with those of ``state``, the first ``count`` columns of which are the keys once more, in one
    more column, ``INITIAL``. Raises ``InvalidInputError`` where they are of other types than the stream's."""
    table = _keyed(state, keys, count)
    source = SourceNode(initial_rows(table.toArrow()), {}, table.schema, None if uid is None else f"{uid}-initial")
    full = with_control(table.schema)
    read = Recipe(lambda _ctx: Chain(source, full))
    schema = T.StructType([*rows.schema.fields, table.schema[INITIAL]])
    names = [*schema.names, *CONTROL_COLUMNS]

    def make(ctx: Any) -> Chain:
        frames = [
            ctx.frame(recipe).select(*_initial_columns(ctx.frame(recipe), schema)) for recipe in (rows.recipe, read)
        ]
        return Chain(frames[0].union(frames[1]).toDF(*names), with_control(schema))

    return StreamRows(Recipe(make, (rows.recipe, read)), rows.lineage.union(Lineage(1, (source,))), schema)


def _keyed(state: SparkDF, keys: Keys, count: int) -> SparkDF:
    found = state.schema.fields[:count]
    if _types(found) != _types(keys.schema.fields):
        raise InvalidInputError(
            f"transformWithState: expected initialState to be grouped by columns of the types "
            f"{_types(keys.schema.fields)}, as the stream is, found {[f.name for f in found]} of types {_types(found)}"
        )
    names, placed = state.columns, [f"c{i}" for i in range(len(state.columns))]
    by = [F.col(c).alias(key) for c, key in zip(placed, keys.schema.names)]
    columns = [F.col(c).alias(name) for c, name in zip(placed[count:], names[count:], strict=True)]
    return state.toDF(*placed).select(*by, F.struct(*columns).alias(INITIAL))


def _initial_columns(frame: SparkDF, schema: T.StructType) -> list[Any]:
    """Of ``schema``, null where ``frame`` has none of the name, and the control columns."""
    here = set(frame.columns)
    own = [F.col(quoted(f.name)) if f.name in here else F.lit(None).cast(f.dataType) for f in schema.fields]
    return [*own, *map(F.col, CONTROL_COLUMNS)]


def _types(fields: list[T.StructField]) -> list[str]:
    return [f.dataType.simpleString() for f in fields]
