"""What ``writeStream`` makes of functions: ``foreachBatch``, ``foreach``, ``alsoTo(func)``. Driver."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.errors import PySparkAttributeError

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.plan.as_called import copied
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
    """Raises PySpark's errors for what is neither a function nor has ``process``, and for what cannot be pickled."""
    if not callable(f):
        for name, missing in (("process", None), ("open", print), ("close", print)):
            if not callable(getattr(f, name, missing)):
                given = {"attr_name": name, "obj_name": "f"}
                raise PySparkAttributeError(errorClass="ATTRIBUTE_NOT_CALLABLE", messageParameters=given)
    return BatchFunction(partial(_each, copied(f)), "foreach")


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
