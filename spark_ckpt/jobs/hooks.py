"""User hooks: told when a checkpoint is triggered, snapshotted, completed or aborted; may keep state with it."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CheckpointFailedError, ConfigError
from spark_ckpt.protocol.records import CompletionRecord, HookState

_log = logging.getLogger("spark_ckpt")

MAX_STATE_BYTES = 1 << 20
"""What hooks may keep with a checkpoint: it is part of the checkpoint's record, which every start reads."""


class CheckpointHooks:
    """Subclass it and name it in ``spark.ckpt.hooks`` as ``module:Class``; the module must be importable everywhere.

    Each method may be called again for the same checkpoint after a crash, and runs in the process named below, so
    instances share nothing. What ``on_snapshot``, ``on_complete`` and ``on_abort`` raise is logged and changes nothing.
    ``on_trigger`` takes part in the checkpoint: it may keep something with it, and can fail it (Flink's
    ``MasterTriggerRestoreHook``). ``job`` is the job's name, ``checkpoint`` the id, ``info`` a dict of what is named::

        class Told(spark_ckpt.CheckpointHooks):
            def on_complete(self, job: str, checkpoint: int, info: Mapping[str, Any]) -> None:
                print(f"{job}: {info['kind']} {checkpoint} took {info['duration_ms']} ms")
    """

    name: str = ""
    """What is kept is known by this name, and given back only under it. Empty: ``module:Class`` as it is configured."""

    def on_trigger(self, job: str, checkpoint: int, info: Mapping[str, Any]) -> bytes | None:
        """Driver, source process: once a checkpoint, before its barrier is injected. ``info``: kind, by, target.

        The bytes that it returns, at most 1 MiB, are stored with the checkpoint and go wherever it goes: savepoints,
        jobs that begin from them, starts from an older checkpoint. They are never unpickled. No row is processed
        meanwhile. If it raises, or takes longer than ``spark.ckpt.hooks.timeout``, the checkpoint fails, with the
        cause in the history, which counts against ``spark.ckpt.tolerableFailures``. A checkpoint may be given up later
        all the same.
        """
        return None

    def restore_state(self, job: str, checkpoint: int, state: bytes | None) -> None:
        """Driver, the process that starts the query: once a start that goes on from ``checkpoint``, before any row is
        read. ``state``: what ``on_trigger`` returned for that checkpoint; None if nothing. Not called by a fresh start.

        After a crash the rows behind the checkpoint may be processed already: Spark's own location is ahead of it, and
        they belong to the next checkpoint. What it raises fails the start, and the next start calls it again.
        """

    def on_snapshot(self, job: str, checkpoint: int, info: Mapping[str, Any]) -> None:
        """Executor: a partition of a state table is durable. ``info``: uid, partition, keys, rows, size_bytes, ..."""

    def on_complete(self, job: str, checkpoint: int, info: Mapping[str, Any]) -> None:
        """Driver, commit process: every sink has committed. ``info``: kind, duration_ms, batch."""

    def on_abort(self, job: str, checkpoint: int, info: Mapping[str, Any]) -> None:
        """Driver: the checkpoint was given up. ``info``: cause, reason."""


class HookError(Exception):
    """Why ``on_trigger`` fails its checkpoint."""


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


def hook_name(config: JobConfig) -> str | None:
    """What the state of the job's hooks is known by; None without hooks."""
    return None if config.hooks is None else load_hooks(config.hooks).name or config.hooks


def call_hook(config: JobConfig, job: str, method: str, checkpoint: int, info: Mapping[str, Any]) -> None:
    """Call one hook if the job has hooks."""
    if config.hooks is None:
        return
    try:
        getattr(load_hooks(config.hooks), method)(job, checkpoint, info)
    except Exception:  # noqa: BLE001 - the boundary to the user's code
        # A broken observer must not break the checkpoint it observes.
        _log.exception("hook %s of job %s failed for checkpoint %s", method, job, checkpoint)


def restore_hook(config: JobConfig, job: str, start: CompletionRecord) -> None:
    """Give the hooks back what they kept with ``start``. Raises ``CheckpointFailedError`` if they cannot take it."""
    if config.hooks is None:
        return
    name = hook_name(config)
    state = start.hook.state if start.hook is not None and start.hook.name == name else None
    try:
        load_hooks(config.hooks).restore_state(job, start.checkpoint, state)
    except Exception as error:  # the boundary to the user's code
        raise CheckpointFailedError(
            f"job {job!r}: restore_state of the hooks {name!r} failed for checkpoint {start.checkpoint} with "
            f"{type(error).__name__}, see the cause; mend it and start again"
        ) from error


# --- on_trigger --------------------------------------------------------------------------------------------------


def ask_hook(config: JobConfig, job: str, checkpoint: int, info: Mapping[str, Any]) -> HookState | None:
    """What the hooks keep with ``checkpoint``. Raises ``HookError``."""
    name = hook_name(config)
    if config.hooks is None or name is None:
        return None
    state = _in_time(load_hooks(config.hooks), job, checkpoint, info, config.hooks_timeout_ms)
    if state is None:
        return None
    if not isinstance(state, bytes):
        raise HookError(f"on_trigger of {name!r}: expected bytes or None, found {type(state).__name__}")
    if len(state) > MAX_STATE_BYTES:
        raise HookError(
            f"on_trigger of {name!r}: expected at most {MAX_STATE_BYTES} bytes, found {len(state)}; keep what is "
            "larger elsewhere, and return where it is"
        )
    return HookState(name, state)


_call: threading.Thread | None = None
"""The newest call of this process. A thread cannot be ended from outside: one that hangs fails what comes behind it."""


def _in_time(hooks: CheckpointHooks, job: str, checkpoint: int, info: Mapping[str, Any], timeout_ms: int) -> Any:
    global _call
    if _call is not None and _call.is_alive():
        raise HookError("on_trigger has not returned from an earlier checkpoint")
    result: list[Any] = []
    raised: list[Exception] = []

    def call() -> None:
        try:
            result.append(hooks.on_trigger(job, checkpoint, info))
        except Exception as error:  # noqa: BLE001 - the boundary to the user's code
            raised.append(error)

    _call = threading.Thread(target=call, name=f"spark-ckpt-hook-{checkpoint}", daemon=True)
    _call.start()
    _call.join(timeout_ms / 1000)
    if raised:
        # What it says may hold secrets: it goes to the log and not to the records.
        _log.error("on_trigger of job %s failed for checkpoint %d", job, checkpoint, exc_info=raised[0])
        raise HookError(f"on_trigger raised {type(raised[0]).__name__}; the driver's log says more")
    if not result:
        raise HookError(f"on_trigger took longer than {timeout_ms} ms (spark.ckpt.hooks.timeout)")
    return result[0]
