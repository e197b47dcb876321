"""What a subtask remembers from batch to batch besides the rows of its state, as JSON in Spark's state store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.protocol import aligner, codec
from spark_ckpt.protocol import events as ev

OWN = ""
"""The family that has no name: the operator's own state, one row a key."""

STATE_STORE = "what Spark's state store keeps of a subtask"

Adopted = tuple[int, Mapping[int, ev.GroupManifest]]
"""A completed checkpoint that is replayed, and what it recorded of this subtask's key groups."""


@dataclass(frozen=True)
class _Stored:
    """The JSON of :class:`SubtaskMeta`, and of what stands beside it, whose own readers look at the rest of that."""

    aligner: aligner.AlignerState
    watermarks: Mapping[str, int]
    later_watermarks: Mapping[int, Mapping[str, int]]
    held: Mapping[int, codec.Count]
    adopt: Adopted | None
    restored: codec.Count | None
    keyed: Mapping[str, Any]
    late_us: int = codec.later(0)
    adopt_families: Mapping[str, Adopted] = codec.optional(factory=dict)
    restored_families: Mapping[str, codec.Count] = codec.optional(factory=dict)
    generation: codec.Count = codec.later(0)
    held_schema: str | None = codec.optional()
    families: Mapping[str, _Sealed] = codec.optional(factory=dict)


@dataclass(frozen=True)
class _Sealed:
    """Of a family: its keyed state, and how many bytes its memtable has."""

    keyed: Mapping[str, Any]
    bytes: codec.Count


@dataclass
class SubtaskMeta:
    """What a subtask remembers besides its keyed state. ``adopt`` and ``restored`` are by family."""

    aligner: aligner.AlignerState
    watermarks: dict[str, int] = field(default_factory=dict)
    late_us: int = 0
    """Rows up to here are late in the next batch: the watermark of the last one."""
    later_watermarks: dict[int, dict[str, int]] = field(default_factory=dict)
    adopt: dict[str, Adopted] = field(default_factory=dict)
    restored: dict[str, int] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "aligner": self.aligner.to_json(),
            "watermarks": self.watermarks,
            "late_us": self.late_us,
            "later_watermarks": {str(k): v for k, v in self.later_watermarks.items()},
            **_by_family("adopt", {f: [k, ev.groups_to_json(groups)] for f, (k, groups) in self.adopt.items()}),
            **_by_family("restored", self.restored),
            "held": {str(k): v for k, v in self.held.items()},
        }

    @classmethod
    def from_json(cls, value: Any) -> SubtaskMeta:
        """Of what ``SubtaskCall.sealed`` kept. Raises ``CorruptStorageError`` also for what stands beside it."""
        stored = codec.read(_Stored, value, STATE_STORE)
        return cls(
            stored.aligner,
            dict(stored.watermarks),
            stored.late_us,
            {k: dict(v) for k, v in stored.later_watermarks.items()},
            _with_own(stored.adopt, stored.adopt_families),
            _with_own(stored.restored, stored.restored_families),
            dict(stored.held),
        )

    def adopted(self, checkpoint: int) -> dict[str, ev.Groups]:
        """What ``checkpoint`` recorded of each family, if it is replayed. An older one of the same batch leaves it in
        wait."""
        found = {f: groups for f, (k, groups) in self.adopt.items() if k == checkpoint}
        self.adopt = {f: (k, groups) for f, (k, groups) in self.adopt.items() if k > checkpoint}
        return found


def _by_family(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The operator's own under ``name``, null without, and those of families, if there are any."""
    others = {family: value for family, value in values.items() if family != OWN}
    return {name: values.get(OWN), **({f"{name}_families": others} if others else {})}


def _with_own(own: Any, families: Mapping[str, Any]) -> dict[str, Any]:
    return {**({} if own is None else {OWN: own}), **families}


def known_states(
    parsed: Mapping[str, Any] | None, memtable: bytes | None, families: Iterable[str]
) -> dict[str, tuple[Any, bytes | None]]:
    """What ``SubtaskCall.sealed`` kept of each family: its keyed state as it was sealed, and its memtable."""
    known: dict[str, tuple[Any, bytes | None]] = dict.fromkeys(families, (None, None))
    sizes = {} if parsed is None else parsed.get("families", {})
    if parsed is None or not sizes:
        return {**known, OWN: (parsed and parsed["keyed"], memtable)}
    data = memtable or b""
    end = len(data) - sum(value["bytes"] for value in sizes.values())
    if end < 0:
        raise CorruptStorageError(f"{STATE_STORE}: expected memtables of {len(data) - end} bytes, found {len(data)}")
    known[OWN] = parsed["keyed"], data[:end] or None
    for family, value in sizes.items():
        start, end = end, end + value["bytes"]
        known[family] = value["keyed"], data[start:end] or None
    return known
