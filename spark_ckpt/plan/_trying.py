"""Asking Spark's analysis whether it knows something, where either answer is a good one. Driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.logger import PySparkLogger

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
