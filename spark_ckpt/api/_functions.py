"""What ``writeStream`` makes of functions: ``foreachBatch``, ``foreach``, ``alsoTo(func)``. Driver."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.plan.batch_functions import BatchFunction
from spark_ckpt.runtime.delivered import EachRow


def batch_function(method: str, func: Callable[[Any, int], Any]) -> BatchFunction:
    """Raises ``InvalidInputError`` for what cannot be called with a DataFrame and an id."""
    if not callable(func):
        raise InvalidInputError(f"{method} needs a function of a DataFrame and a checkpoint's id, found {func!r}")
    try:
        inspect.signature(func).bind(None, 0)
    except TypeError as error:
        raise InvalidInputError(
            f"{method} calls its function with a DataFrame and a checkpoint's id: {error}. Expected such as "
            "def write(rows, checkpoint): ..."
        ) from None
    except ValueError:  # one without a signature to look at
        pass
    return BatchFunction(func)


def each_row(f: Any) -> BatchFunction:
    """Raises ``InvalidInputError`` for what is neither a function nor has ``process``, as PySpark does."""
    if not callable(f):
        if not callable(getattr(f, "process", None)):
            raise InvalidInputError(f"foreach needs a function of a row, or an object with process(row), found {f!r}")
        for name in ("open", "close"):
            if not callable(getattr(f, name, print)):
                raise InvalidInputError(f"foreach: {name!r} of {f!r} is no method")
    return BatchFunction(partial(_each, f), "foreach")


def _each(f: Any, rows: Any, checkpoint: int) -> None:
    rows.foreachPartition(EachRow(f, checkpoint))


def as_sink(sink: Any) -> Any:
    """A function among the sinks is one of ``foreachBatch``."""
    if isinstance(sink, str):
        return sink_named(sink)
    return sink if isinstance(sink, type) else batch_function("alsoTo", sink)


def sink_named(sink: Any) -> Any:
    if isinstance(sink, str) and sink.strip().lower() in ("foreach", "foreachbatch"):
        raise ConfigError(f"{sink} is a method and no format: writeStream.foreachBatch(func), or alsoTo(func)")
    return sink
