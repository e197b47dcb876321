"""Savepoints of large state: written, restored, migrated, imported and looked into, beside raw Parquet."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.environments import OURS
from benchmarks.measuring import end_process, read_answer, start_process
from benchmarks.memory import Sampler

M = 1_000_000


def savepoints(quick: bool) -> dict[str, Any]:
    """A savepoint of 10 M keys, what is started from it, and the import of 1 M keys from plain Spark."""
    wanted = {"keys": 20_000, "imported": 2_000} if quick else {"keys": 10 * M, "imported": M}
    process = start_process(OURS, "benchmarks.workers.savepoints", json.dumps(wanted))
    try:
        with Sampler(process.pid) as sampler:
            return {**read_answer(process), "memory": sampler.peak.to_json()}
    finally:
        end_process(process)
