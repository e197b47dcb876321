"""What a subtask remembers from batch to batch besides the rows of its state, as JSON in Spark's state store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_ckpt.protocol import aligner
from spark_ckpt.protocol import events as ev

OWN = ""
"""The family that has no name: the operator's own state, one row a key."""

Adopted = tuple[int, Mapping[int, ev.GroupManifest]]
"""A completed checkpoint that is replayed, and what it recorded of this subtask's key groups."""


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
    def from_json(cls, value: Mapping[str, Any]) -> SubtaskMeta:
        adopt = _of_families("adopt", value)
        return cls(
            aligner.AlignerState.from_json(value["aligner"]),
            dict(value["watermarks"]),
            value.get("late_us", 0),
            {int(k): dict(v) for k, v in value["later_watermarks"].items()},
            {f: (k, ev.groups_from_json(groups)) for f, (k, groups) in adopt.items()},
            _of_families("restored", value),
            {int(k): v for k, v in value["held"].items()},
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


def _of_families(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    own = {} if value[name] is None else {OWN: value[name]}
    return {**own, **value.get(f"{name}_families", {})}


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
    known[OWN] = parsed["keyed"], data[:end] or None
    for family, value in sizes.items():
        start, end = end, end + value["bytes"]
        known[family] = value["keyed"], data[start:end] or None
    return known
