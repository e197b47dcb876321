"""Waiting until what sources had is visible in all sinks. Any process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from spark_ckpt.errors import CheckpointFailedError, ConfigError, InvalidInputError
from spark_ckpt.jobs.pausing import paused
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.protocol.records import CompletionRecord, Topology
from spark_ckpt.sources.places import reached, require_comparable

Targets = Callable[[], Mapping[str, Any] | None]
"""Where each source is to be, by uid; None while that is not known yet."""
_POLL_S = 0.2
_ASK_EVERY_S = 1.0
"""A job that has much to catch up with is not asked for one checkpoint right behind another."""


def topology_of(records: JobRecords, job: str) -> Topology:
    """Of the job's newest start. Raises ``InvalidInputError`` if it never started."""
    newest = max(records.decided(), key=lambda g: g.generation, default=None)
    if newest is None:
        raise InvalidInputError(f"job {job!r} was never started, so it has no sources")
    return newest.topology


def check_targets(topology: Topology, targets: Mapping[str, Any]) -> None:
    """Raises ``ConfigError`` for what is none of the job's sources, or one whose offsets cannot be compared."""
    unknown = sorted(targets.keys() - set(topology.sources))
    if unknown or not targets:
        raise ConfigError(f"expected offsets of sources {sorted(topology.sources)}, found {unknown or 'none'}")
    for uid in targets:
        require_comparable(uid, topology.reads.get(uid, ""))


def await_visible(
    records: JobRecords, job: str, targets: Targets, checkpoint: Callable[[float], int], timeout_s: float
) -> int:
    """The oldest retained checkpoint that all sinks show and whose sources are as far as ``targets``.

    ``checkpoint`` asks the job for one, within so many seconds, and raises when waiting makes no sense. Raises
    ``CheckpointFailedError`` after ``timeout_s`` seconds, or if checkpoints fail, and ``InvalidInputError`` for a job
    that is paused behind less.
    """
    deadline, topology = time.monotonic() + timeout_s, topology_of(records, job)
    while True:
        wanted = targets()
        found = None if wanted is None else _shown(records, topology, wanted)
        if found is not None:
            return found
        if time.monotonic() >= deadline:
            raise CheckpointFailedError(
                f"after {timeout_s:g} s the sinks of job {job!r} do not show all that was asked for; it goes on. "
                "`spark-ckpt status` shows where its sources are"
            )
        pause = paused(records.store)
        if pause is not None:
            raise InvalidInputError(f"job {job!r} is paused, and reads no further: {pause.reason}")
        if wanted is None:
            time.sleep(_POLL_S)
            continue
        checkpoint(max(deadline - time.monotonic(), _POLL_S))
        if _shown(records, topology, wanted) is None:
            time.sleep(min(_ASK_EVERY_S, max(deadline - time.monotonic(), 0.0)))


def _shown(records: JobRecords, topology: Topology, wanted: Mapping[str, Any]) -> int | None:
    done = set(records.ids("committed"))
    found = (c for c in records.completions() if c.checkpoint in done and _has(c, topology, wanted))
    return min((c.checkpoint for c in found), default=None)


def _has(record: CompletionRecord, topology: Topology, wanted: Mapping[str, Any]) -> bool:
    return all(_is_at(record, topology, uid, target) for uid, target in wanted.items())


def _is_at(record: CompletionRecord, topology: Topology, uid: str, target: Any) -> bool:
    at = record.sources.get(uid, {}).get("inner")
    return at is not None and reached(uid, topology.reads.get(uid, ""), at, target)
