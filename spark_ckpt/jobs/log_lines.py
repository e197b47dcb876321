"""Log lines as JSON, one object a line: ``spark.ckpt.log.format=json``. Every process that runs a job's Python.

In the text format nothing is set up: lines go where the program, or Spark's Python worker, sends what is logged.
"""

from __future__ import annotations

import json
import logging
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any

from spark_ckpt.config import JSON, JobConfig

_ROOT = logging.getLogger("spark_ckpt")
_about: ContextVar[dict[str, Any]] = ContextVar("about", default={})  # noqa: B039 - it is replaced, never changed
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """``time``, ``level``, ``logger``, ``message``; then ``job``, ``generation`` and ``checkpoint`` as far as they are
    known, and what the line itself adds (``extra``)."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_about.get(),
            **{name: value for name, value in vars(record).items() if name not in _PLAIN},
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_as(config: JobConfig, job: str, **about: Any) -> None:
    """Lines of this thread are about ``job`` from now on, and ``about`` it: ``generation``. If the job logs JSON, all
    of this process's lines are JSON, on standard error. Cheap; call it wherever work for a job begins."""
    _about.set({"job": job, **about})
    if config.log_format == JSON and not any(isinstance(h.formatter, JsonLines) for h in _ROOT.handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(JsonLines())
        _ROOT.addHandler(handler)
        _ROOT.propagate = False  # else a program that logs has each line twice
        if _ROOT.level == logging.NOTSET:
            _ROOT.setLevel(logging.INFO)


def about_checkpoint(checkpoint: int | None) -> None:
    """Lines of this thread are about ``checkpoint`` of its job; None: about none."""
    known = {name: value for name, value in _about.get().items() if name != "checkpoint"}
    _about.set(known if checkpoint is None else {**known, "checkpoint": checkpoint})
