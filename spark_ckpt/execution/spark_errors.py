"""Errors of Spark's own conditions, where it is not Spark that finds them. Driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkTypeError
from pyspark.logger import PySparkLogger

from spark_ckpt.errors import ConfigError, InvalidInputError

UNSUPPORTED = "_LEGACY_ERROR_TEMP_3102"
"""The condition that Spark has for most that a stream cannot do."""

SORTING = (
    "Sorting is not supported on streaming DataFrames/Datasets, unless it is on aggregated DataFrame/Dataset in "
    "Complete output mode"
)


class _Pickled:
    """Errors of several bases are made anew by what Spark's one is made of."""

    def __reduce__(self) -> tuple[Any, ...]:
        made: Any = self
        return type(self), (made._message, made._errorClass, made._messageParameters)


class RefusedAsInSparkError(_Pickled, InvalidInputError, AnalysisException):  # type: ignore[misc]
    """What Spark's streams refuse, too: its condition, and our words, which say what works here."""


class ConfigRefusedAsInSparkError(_Pickled, ConfigError, AnalysisException):  # type: ignore[misc]
    """The same of what a writer was told."""


class IllegalAsInSparkError(_Pickled, ConfigError, IllegalArgumentException):  # type: ignore[misc]
    """The same where Spark takes it for an illegal argument."""


def no_such_mode(mode: str, operation: str, text: str) -> RefusedAsInSparkError:
    """``operation`` has no output mode ``mode``."""
    return RefusedAsInSparkError(
        text, "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION", {"outputMode": mode, "operation": operation}
    )


def no_window_function(text: str, window: str) -> RefusedAsInSparkError:
    """``window``: what Spark's plan says of it."""
    parameters = {"windowFunc": window, "columnName": "", "windowSpec": ""}
    return RefusedAsInSparkError(text, "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING", parameters)


def unsupported(text: str) -> RefusedAsInSparkError:
    """Of that condition."""
    return RefusedAsInSparkError(text, UNSUPPORTED, {"msg": text})


def analysis_error(condition: str, text: str, **parameters: str) -> AnalysisException:
    """As Spark raises it, of error condition ``condition``; ``parameters`` are those of its message."""
    return AnalysisException(text, errorClass=condition, messageParameters=parameters)


def not_expected(argument: str, expected: str, found: object) -> PySparkTypeError:
    """What PySpark raises for an argument of a wrong type."""
    given = {"arg_name": argument, "expected_type": expected, "arg_type": type(found).__name__}
    return PySparkTypeError(errorClass="NOT_EXPECTED_TYPE", messageParameters=given)


def check_path(method: str, path: Any, options: Iterable[str], spark: Any) -> None:
    """Raises as Spark does where ``load(path)`` or ``start(path)`` gets no text, or an option says a path, too."""
    if not isinstance(path, str):
        raise not_expected("path", "str", path)
    twice = any(name.lower() == "path" for name in options)
    if twice and spark.conf.get("spark.sql.legacy.pathOptionBehavior.enabled") != "true":
        raise AnalysisException(
            f"There is a 'path' option set and {method}() is called with a path parameter. Either remove the path "
            f"option, or call {method}() without the parameter. To ignore this check, set "
            "'spark.sql.legacy.pathOptionBehavior.enabled' to 'true'.",
            errorClass="_LEGACY_ERROR_TEMP_1188",
            messageParameters={"method": method},
        )


def check_writer(spark: Any, **called: Any) -> None:
    """Raises as Spark's ``writeStream`` does for what a method is called with: ``queryName=(" ",)``.

    Classic Spark says so at once, and Connect of some only at ``start``.
    """
    writer = spark.readStream.format("rate").load().writeStream
    for method, given in called.items():
        getattr(writer, method)(**given) if isinstance(given, dict) else getattr(writer, method)(given)


def no_schema() -> IllegalArgumentException:
    """What Spark raises where a stream of files is made without one."""
    return IllegalArgumentException(
        "Schema must be specified when creating a streaming source DataFrame. If some files already exist in the "
        "directory, then depending on the file format you may be able to create a static DataFrame on that directory "
        "with 'spark.read.load(directory)' and infer schema from it.",
        errorClass="_LEGACY_ERROR_TEMP_2048",
        messageParameters={},
    )


def already_active(name: str) -> IllegalAsInSparkError:
    """What Spark raises where a query is started whose ``name`` one has that runs."""
    text = f"Cannot start query with name {name} as a query with that name is already active in this SparkSession"
    return IllegalAsInSparkError(f"{text}. It goes on: stop it first, or give another queryName")


def path_not_found(path: str) -> AnalysisException:
    """What Spark raises where a stream of files is made of a ``path`` that is not there."""
    return analysis_error(
        "PATH_NOT_FOUND",
        f"Path does not exist: {path}. Make the folder first, or give a glob, such as {path.rstrip('/')}/*, which may "
        "match nothing yet",
        path=path,
    )


_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Where PySpark writes what the analysis raises, as an error, whether somebody handles it or not."""


@contextmanager
def unlogged() -> Iterator[None]:
    """Inside, nothing that this thread's questions raise is written there."""
    own = threading.get_ident()

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != own

    # Not by logging.getLogger: whoever asks first makes it, and PySpark needs it to be one of its own.
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(of_others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(of_others)
