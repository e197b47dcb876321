"""What PySpark raises in a processor, in its words: user code may look for them."""

from __future__ import annotations

from typing import Any

_SQL_STATES = {"ILLEGAL_STATE_STORE_VALUE": "42601"}


def refused(action: str, condition: str, message: str) -> Exception:
    """``PySparkRuntimeError``, as the state server's client makes it of an error of the JVM."""
    from pyspark.errors import PySparkRuntimeError

    state = _SQL_STATES.get(condition.partition(".")[0], "42802")
    return PySparkRuntimeError(f"{action}: [{condition}] {message} SQLSTATE: {state}")


def not_there(action: str, kind: str, name: str) -> Exception:
    """A variable that was deleted."""
    from pyspark.errors import PySparkRuntimeError

    return PySparkRuntimeError(f"{action}: {kind.capitalize()} state {name} is not initialized.")


def wrong_phase(action: str, operation: str, phase: str) -> Exception:
    condition = "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_HANDLE_STATE"
    message = f"Failed to perform stateful processor operation={operation} with invalid handle state={phase}."
    return refused(action, condition, message)


def wrong_time_mode(action: str, operation: str, time_mode: str) -> Exception:
    condition = "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_TIME_MODE"
    message = f"Failed to perform stateful processor operation={operation} with invalid timeMode={time_mode}"
    return refused(action, condition, message)


def declared_twice(action: str, kind: str, name: str) -> Exception:
    from pyspark.errors import PySparkRuntimeError

    return PySparkRuntimeError(f"{action}: {kind.capitalize()} state {name} already exists")


def empty_list(name: str) -> Exception:
    message = (
        f"Illegal value provided to the State Store Cannot write empty list values to State Store for StateName {name}."
    )
    return refused("Error updating value state", "ILLEGAL_STATE_STORE_VALUE.EMPTY_LIST_VALUE", message)


def is_value(action: str, value: Any) -> None:
    """Raises for what is no tuple of a struct's fields."""
    if not isinstance(value, (tuple, list)):  # a union would be made anew for each value
        from pyspark.errors import PySparkTypeError

        raise PySparkTypeError(f"{action}: expected a tuple with one value for each field, found {value!r}")
