"""Facts of jobs that never ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_ckpt.monitoring.facts import Facts
from spark_ckpt.protocol.alive import Heartbeat, ProcessName
from spark_ckpt.protocol.records import CompletionRecord, GenerationRecord, Topology, TriggerRecord
from spark_ckpt.storage.history import HistoryRow, UidSize
from spark_ckpt.types import Committable, Epoch

NOW_MS = 1_700_000_000_000
SECOND, MINUTE = 1000, 60_000
TOPOLOGY = Topology(4, 8, ("in",), {"totals": {"timeout": "NoTimeout"}}, ("out", "copy"), reads={"in": "files /data"})


def start(generation: int = 1, topology: Topology = TOPOLOGY, **more: Any) -> GenerationRecord:
    settings = {"interval": "10s", "timeout": "10min", "retain": "3", **more.pop("settings", {})}
    return GenerationRecord(
        generation, generation, "file:/spark", None, NOW_MS - 60 * MINUTE, topology, life="l", settings=settings, **more
    )


def heartbeat(generation: int = 1, ahead_ms: int = 0) -> Heartbeat:
    return Heartbeat(generation, ProcessName("host", "place", 7, "1"), NOW_MS + ahead_ms, NOW_MS + 60_000)


def complete(k: int, ago_ms: int, sinks: Sequence[str] = ("out",), **more: Any) -> CompletionRecord:
    return CompletionRecord(
        checkpoint=k,
        kind="checkpoint",
        generation=1,
        origin=1,
        batch=k,
        batches_from=k + 1,
        sources={"in": {"inner": {"row": k}}},
        tables={},
        committables=tuple(Committable(s, Epoch(k), b"") for s in sinks),
        topology=TOPOLOGY,
        triggered_ms=NOW_MS - ago_ms - SECOND,
        completed_ms=NOW_MS - ago_ms,
        life="l",
        **more,
    )


def trigger(k: int, ago_ms: int) -> TriggerRecord:
    return TriggerRecord(k, "checkpoint", NOW_MS - ago_ms, "interval", None, False, None, 1)


def row(k: int, took_ms: int = 500, keys: int = 10, outcome: str = "completed", **more: Any) -> HistoryRow:
    at_ms = NOW_MS - (1000 - k) * 10 * SECOND
    done_ms = at_ms + took_ms if outcome == "completed" else None
    return HistoryRow(
        k, "checkpoint", outcome, at_ms, 1, k, completed_ms=done_ms, state={"totals": UidSize(keys, 100, 1)}, **more
    )


def facts(**what: Any) -> Facts:
    """Of a job that runs, completed checkpoint 3 five seconds ago, and committed it."""
    done = (complete(3, 5 * SECOND),)
    running = {"starts": (start(),), "heard": heartbeat(), "completions": done, "committed": frozenset({3})}
    return Facts("orders", NOW_MS, **{**running, **what})
