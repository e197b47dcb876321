"""What a ``StatefulProcessor`` declares, and under which names its variables are kept. Driver."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from spark_ckpt.errors import InvalidInputError, UserFunctionError
from spark_ckpt.plan.as_called import copied
from spark_ckpt.plan.key_columns import stored_name
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.state.functions.user_error import raised
from spark_ckpt.state.processors.declared import Columns, Variable
from spark_ckpt.state.processors.handle import PRE_INIT, Handle
from spark_ckpt.types import KEY_GROUP, KEY_HASH, TIMEOUT_MS


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
