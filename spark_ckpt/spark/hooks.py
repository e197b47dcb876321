"""User hooks: told when a checkpoint is triggered, snapshotted, completed or aborted."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError

_log = logging.getLogger("spark_ckpt")


class CheckpointHooks:
    """Subclass it and name it in ``spark.ckpt.hooks`` as ``module:Class``; the module must be importable everywhere.

    Each method may be called again for the same checkpoint after a crash, and runs in the process named below, so
    instances share nothing. What a hook raises is logged and changes nothing: hooks observe, they do not decide.
    """

    def on_trigger(self, job: str, checkpoint: int, info: Mapping[str, Any]) -> None:
        """Driver, source process: before the barrier is injected. ``info``: kind, by, target."""

    def on_snapshot(self, job: str, checkpoint: int, info: Mapping[str, Any]) -> None:
        """Executor: a partition of an operator is durable. ``info``: uid, partition, keys, rows, size_bytes, ..."""

    def on_complete(self, job: str, checkpoint: int, info: Mapping[str, Any]) -> None:
        """Driver, commit process: every sink has committed. ``info``: kind, duration_ms, batch."""

    def on_abort(self, job: str, checkpoint: int, info: Mapping[str, Any]) -> None:
        """Driver: the checkpoint was given up. ``info``: cause, reason."""


@lru_cache(maxsize=8)
def load_hooks(path: str) -> CheckpointHooks:
    """The hooks named ``module:Class``. Raises ``ConfigError`` if there is no such class."""
    module, _, name = path.partition(":")
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as e:
        raise ConfigError(f"spark.ckpt.hooks: expected 'module:Class' that can be imported, found {path!r}: {e}") from e
    if not (isinstance(cls, type) and issubclass(cls, CheckpointHooks)):
        raise ConfigError(f"spark.ckpt.hooks: {path!r} must be a subclass of spark_ckpt.CheckpointHooks, found {cls!r}")
    return cls()


def call_hook(config: JobConfig, job: str, method: str, checkpoint: int, info: Mapping[str, Any]) -> None:
    """Call one hook if the job has hooks."""
    if config.hooks is None:
        return
    try:
        getattr(load_hooks(config.hooks), method)(job, checkpoint, info)
    except Exception:  # noqa: BLE001 - the boundary to the user's code
        # A broken observer must not break the checkpoint it observes.
        _log.exception("hook %s of job %s failed for checkpoint %s", method, job, checkpoint)
