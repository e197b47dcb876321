"""A checkpoint that is under way: who has acknowledged it so far. After Flink's PendingCheckpoint."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_ckpt.errors import ProtocolBugError
from spark_ckpt.protocol.events import GroupManifest, OperatorAck, SourceAck
from spark_ckpt.protocol.records import Topology


class AckResult(enum.Enum):
    SUCCESS = "success"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"
    """Nobody of that name takes part."""
    DISCARDED = "discarded"
    """The checkpoint is complete, subsumed or aborted: the acknowledgement comes too late."""


@dataclass(frozen=True)
class PendingCheckpoint:
    """Who has acknowledged checkpoint ``checkpoint`` so far."""

    checkpoint: int
    topology: Topology
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    groups: Mapping[str, Mapping[int, GroupManifest]] = field(default_factory=dict)
    stats: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    subtasks: Mapping[str, Mapping[int, Mapping[str, int]]] = field(default_factory=dict)
    weight: int = 0
    discarded: bool = False

    def acknowledge(self, ack: SourceAck | OperatorAck) -> tuple[PendingCheckpoint, AckResult]:
        """Count one acknowledgement. Raises ``ProtocolBugError`` if two partitions claim one key group."""
        if self.discarded:
            return self, AckResult.DISCARDED
        return self._source(ack) if isinstance(ack, SourceAck) else self._operator(ack)

    def barrier(self, weight: int) -> PendingCheckpoint:
        """Count barrier weight that reached the sink."""
        return replace(self, weight=self.weight + weight)

    def discard(self) -> PendingCheckpoint:
        return replace(self, discarded=True)

    def missing(self, finished_weight: int = 0) -> tuple[str, ...]:
        """Whose acknowledgement is outstanding; empty when the checkpoint is complete.

        ``finished_weight``: what counts as arrived at the sink because its input ended before this checkpoint.
        """
        g, t = self.topology.key_groups, self.topology
        out = [f"source {s}" for s in t.sources if s not in self.sources]
        out += [
            f"operator {u} ({len(self.groups.get(u, {}))} of {g} key groups)"
            for u in t.operators
            if len(self.groups.get(u, {})) < g
        ]
        weight = self.weight + finished_weight
        if weight > t.weight_total:
            raise ProtocolBugError(
                f"checkpoint {self.checkpoint}: expected barriers of weight {t.weight_total} at the sink, "
                f"found {weight}"
            )
        return (*out, f"sink ({weight} of {t.weight_total} weight)") if weight < t.weight_total else tuple(out)

    def _source(self, ack: SourceAck) -> tuple[PendingCheckpoint, AckResult]:
        if ack.source not in self.topology.sources:
            return self, AckResult.UNKNOWN
        if ack.source in self.sources:
            return self, AckResult.DUPLICATE
        return replace(self, sources={**self.sources, ack.source: ack.offset}), AckResult.SUCCESS

    def _operator(self, ack: OperatorAck) -> tuple[PendingCheckpoint, AckResult]:
        if ack.uid not in self.topology.operators or not all(0 <= g < self.topology.key_groups for g in ack.groups):
            return self, AckResult.UNKNOWN
        known = self.groups.get(ack.uid, {})
        again = known.keys() & ack.groups.keys()
        if again and all(known.get(g) == m for g, m in ack.groups.items()):
            return self, AckResult.DUPLICATE
        if again:
            raise ProtocolBugError(
                f"checkpoint {self.checkpoint}: key groups {sorted(again)[:5]} of {ack.uid!r} were acknowledged twice"
            )
        groups = {**self.groups, ack.uid: {**known, **ack.groups}}
        stats = {**self.stats, ack.uid: merge_stats(self.stats.get(ack.uid, {}), ack.stats)}
        subtasks = {**self.subtasks, ack.uid: {**self.subtasks.get(ack.uid, {}), ack.partition: ack.stats}}
        return replace(self, groups=groups, stats=stats, subtasks=subtasks), AckResult.SUCCESS


def merge_stats(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    """Sums; the larger one for names that end in ``_ms`` or begin with ``max_``."""
    out = dict(a)
    for name, value in b.items():
        largest = name.endswith("_ms") or name.startswith("max_")
        out[name] = max(out[name], value) if largest and name in out else value if largest else out.get(name, 0) + value
    return out
