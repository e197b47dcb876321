"""What a user's processor gets in ``init``, and the state variables it gets from that: PySpark's methods and errors.

The same classes serve the driver, where ``init`` is only asked what it declares, and the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from spark_ckpt.state.processors import _errors as errors
from spark_ckpt.state.processors._lists import Lists
from spark_ckpt.state.processors._maps import Maps
from spark_ckpt.state.processors._timers import Timers
from spark_ckpt.state.processors._values import Values
from spark_ckpt.state.processors.declared import LIST, MAP, VALUE

PRE_INIT, CREATED, INITIALIZED, DATA_PROCESSED, CLOSED = (
    "PRE_INIT",
    "CREATED",
    "INITIALIZED",
    "DATA_PROCESSED",
    "CLOSED",
)

Declare = Callable[[str, str, Any, Any, int], Any]
"""Of a variable's kind, name, schema, user key's schema and TTL: where it is stored; None on the driver."""


class _Variable:
    """Whatever is asked of it, it is asked for the key that the processor is called for."""

    def __init__(self, handle: Handle, kind: str, name: str, stored: Any) -> None:
        self._handle, self._kind, self._name, self._stored = handle, kind, name, stored

    def _opened(self, opened: bool) -> None:
        """From now on it may be asked, or no longer."""

    def _of(self, action: str, operation: str) -> Any:
        """Where it is stored. Raises if there is no key or no such variable any more."""
        if self._handle._variables.get(self._name) is not self:
            raise errors.not_there(action, self._kind, self._name)
        if self._handle.phase in (PRE_INIT, CREATED):
            raise errors.wrong_phase(action, f"{self._name}.{operation}", self._handle.phase)
        return self._stored


class ValueState(_Variable):
    """As PySpark's."""

    def exists(self) -> bool:
        stored: Values = self._of("Error checking value state exists", "exists")
        return stored.get() is not None

    def get(self) -> tuple[Any, ...] | None:
        stored: Values = self._of("Error getting value state", "get")
        return stored.get()

    def update(self, newValue: Any) -> None:
        self._of("Error updating value state", "update").update(newValue)

    def clear(self) -> None:
        self._of("Error clearing value state", "clear").clear()

    def _opened(self, opened: bool) -> None:
        """What is asked for every key goes straight to where it is stored while it may be asked."""
        for name in ("get", "update"):
            if opened:
                setattr(self, name, getattr(self._stored, name))
            else:
                self.__dict__.pop(name, None)


class ListState(_Variable):
    """As PySpark's."""

    def exists(self) -> bool:
        stored: Lists = self._of("Error checking value state exists", "exists")
        return stored.exists()

    def get(self) -> Iterator[tuple[Any, ...]]:
        stored: Lists = self._of("Error getting list state", "get")
        return stored.get()

    def put(self, newState: Any) -> None:
        self._of("Error updating value state", "put").put(newState)

    def appendValue(self, newState: Any) -> None:
        self._of("Error updating value state", "appendValue").append([newState])

    def appendList(self, newState: Any) -> None:
        self._of("Error updating value state", "appendList").append(newState)

    def clear(self) -> None:
        self._of("Error clearing value state", "clear").clear()


class MapState(_Variable):
    """As PySpark's."""

    def exists(self) -> bool:
        stored: Maps = self._of("Error checking map state exists", "exists")
        return stored.exists()

    def getValue(self, key: Any) -> tuple[Any, ...] | None:
        stored: Maps = self._of("Error getting value", "getValue")
        return stored.get(key)

    def containsKey(self, key: Any) -> bool:
        stored: Maps = self._of("Error checking if map state contains key", "containsKey")
        return stored.has(key)

    def updateValue(self, key: Any, value: Any) -> None:
        self._of("Error updating map state value", "updateValue").update(key, value)

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        stored: Maps = self._of("Error getting map state", "iterator")
        return stored.items()

    def keys(self) -> Iterator[tuple[Any, ...]]:
        stored: Maps = self._of("Error getting map state", "keys")
        return (key for key, _ in stored.items())

    def values(self) -> Iterator[tuple[Any, ...]]:
        stored: Maps = self._of("Error getting map state", "values")
        return (value for _, value in stored.items())

    def removeKey(self, key: Any) -> None:
        self._of("Error removing key from map state", "removeKey").remove(key)

    def clear(self) -> None:
        self._of("Error clearing map state", "clear").clear()


_KINDS: dict[str, type[_Variable]] = {VALUE: ValueState, LIST: ListState, MAP: MapState}


class Handle:
    """As PySpark's ``StatefulProcessorHandle``."""

    def __init__(self, time_mode: str, phase: str, declare: Declare, timers: Timers | None = None) -> None:
        self._phase = phase
        self._time_mode, self._declare, self._timers = time_mode, declare, timers
        self._variables: dict[str, _Variable] = {}

    @property
    def phase(self) -> str:
        return self._phase

    @phase.setter
    def phase(self, phase: str) -> None:
        self._phase = phase
        self._open_timers(phase in (INITIALIZED, DATA_PROCESSED))
        for variable in self._variables.values():
            variable._opened(phase not in (PRE_INIT, CREATED))

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
        return self._declared(VALUE, stateName, schema, None, ttlDurationMs)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
        return self._declared(LIST, stateName, schema, None, ttlDurationMs)

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> Any:
        return self._declared(MAP, stateName, valueSchema, userKeySchema, ttlDurationMs)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._timer_call("Error register timer", "register_timer").register(expiryTimestampMs)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._timer_call("Error deleting timer", "delete_timer").delete(expiryTimestampMs)

    def listTimers(self) -> Iterator[int]:
        return self._timer_call("Error listing timers", "list_timers").of_key()

    def _open_timers(self, opened: bool) -> None:
        """As the variables' methods, those of timers are called for every key."""
        for name, method in (("registerTimer", "register"), ("deleteTimer", "delete"), ("listTimers", "of_key")):
            if opened and self._timers is not None:
                setattr(self, name, getattr(self._timers, method))
            else:
                self.__dict__.pop(name, None)

    def deleteIfExists(self, stateName: str) -> None:
        self._in_init("Error deleting state", "delete_if_exists")
        self._variables.pop(stateName, None)

    @property
    def declared(self) -> list[str]:
        """The names of the variables there are behind ``init``."""
        return list(self._variables)

    def _declared(self, kind: str, name: str, schema: Any, user_key: Any, ttl_ms: int | None) -> _Variable:
        action = f"Error initializing {kind} state"
        self._in_init(action, f"get_{kind}_state")
        self._check_name(action, kind, name)
        self._check_ttl(action, name, ttl_ms or 0)
        stored = self._declare(kind, name, schema, user_key, ttl_ms or 0)
        variable = self._variables[name] = _KINDS[kind](self, kind, name, stored)
        return variable

    def _in_init(self, action: str, operation: str) -> None:
        if self.phase not in (PRE_INIT, CREATED):
            raise errors.wrong_phase(action, operation, self.phase)

    def _check_name(self, action: str, kind: str, name: str) -> None:
        if name in self._variables:
            if self._variables[name]._kind == kind:
                raise errors.declared_twice(action, kind, name)
            condition = "STATEFUL_PROCESSOR_DUPLICATE_STATE_VARIABLE_DEFINED"
            message = f"State variable with name {name} has already been defined in the StatefulProcessor."
            raise errors.refused(action, condition, message)
        if name[:1] in ("_", "$"):
            condition = "STATE_STORE_CANNOT_CREATE_COLUMN_FAMILY_WITH_RESERVED_CHARS"
            message = f"Failed to create column family with unsupported starting character and name={name}."
            raise errors.refused(action, condition, message)

    def _check_ttl(self, action: str, name: str, ttl_ms: int) -> None:
        if ttl_ms and self._time_mode != "ProcessingTime":
            condition = "STATEFUL_PROCESSOR_INCORRECT_TIME_MODE_TO_ASSIGN_TTL"
            message = (
                f"Cannot use TTL for state={name} in timeMode={spark_name(self._time_mode)}, use "
                "TimeMode.ProcessingTime() instead."
            )
            raise errors.refused(action, condition, message)
        if ttl_ms < 0:
            condition = "STATEFUL_PROCESSOR_TTL_DURATION_MUST_BE_POSITIVE"
            message = f"TTL duration must be greater than zero for State store operation=update on state={name}."
            raise errors.refused(action, condition, message)

    def _timer_call(self, action: str, operation: str) -> Timers:
        if self._time_mode == "None":
            raise errors.wrong_time_mode(action, operation, spark_name(self._time_mode))
        if self._timers is None or self._phase in (PRE_INIT, CREATED, CLOSED):
            raise errors.wrong_phase(action, operation, self._phase)
        return self._timers


def spark_name(time_mode: str) -> str:
    """As messages of Spark's write it."""
    return "NoTime" if time_mode == "None" else time_mode
