"""PySpark's methods called on its class, ``reduce(DataFrame.unionByName, streams)``: for streams of ours, too. Driver.

PySpark sends such a call to its own classes of DataFrames, and raises NOT_IMPLEMENTED for all others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark.sql import DataFrame

_OURS = "_of_checkpointed_streams_too"


def take_unbound_calls(stream_class: type) -> None:
    """Once for a process: streams of ``stream_class`` have what is called. Calls for others go where they went."""
    for name, method in list(vars(DataFrame).items()):
        if hasattr(method, "__wrapped__") and not hasattr(method, _OURS):
            setattr(DataFrame, name, _sent_on(name, method, stream_class))


def _sent_on(name: str, method: Callable[..., Any], stream_class: type) -> Callable[..., Any]:
    @wraps(method)
    def sent(*args: Any, **kwargs: Any) -> Any:
        if args and issubclass(type(args[0]), stream_class):
            return getattr(args[0], name)(*args[1:], **kwargs)
        return method(*args, **kwargs)

    setattr(sent, _OURS, True)
    return sent
