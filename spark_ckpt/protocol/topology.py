"""Whether a query fits a checkpoint, or the Spark location it ran at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_ckpt.protocol.records import Topology


@dataclass(frozen=True)
class Refuse:
    """Raise ``TopologyError`` (``topology`` is True) or ``ConfigError`` with ``reason``; nothing was changed."""

    reason: str
    topology: bool = False


@dataclass(frozen=True)
class Fit:
    fresh_uids: tuple[str, ...] = field(default=())
    dropped_uids: tuple[str, ...] = field(default=())


def fit_topology(old: Topology, new: Topology, allow_non_restored: bool) -> Fit | Refuse:
    """Whether a query of topology ``new`` can restore a checkpoint of topology ``old``."""
    if old.key_groups != new.key_groups:
        return Refuse(
            f"maxParallelism changed: expected {old.key_groups} as in the checkpoint, found {new.key_groups}", True
        )
    dropped = tuple(u for u in (*old.operators, *old.sources) if u not in new.operators and u not in new.sources)
    if dropped and not allow_non_restored:
        return Refuse(
            f"the checkpoint holds state of {list(dropped)}: expected these uids in the query, found "
            f"{[*new.operators, *new.sources]}; add them, or set spark.ckpt.allowNonRestoredState to drop their state",
            True,
        )
    fresh = tuple(u for u in (*new.operators, *new.sources) if u not in old.operators and u not in old.sources)
    return _schemas_differ(old, new) or Fit(fresh, dropped)


def _schemas_differ(old: Topology, new: Topology) -> Refuse | None:
    for uid, now in new.operators.items():
        was: Mapping[str, object] = old.operators.get(uid, now)
        for part, name in (("keys", "key schema"), ("state", "state schema")):
            if was.get(part) != now.get(part):
                return Refuse(
                    f"operator {uid!r}: the {name} changed: expected {was.get(part)}, found {now.get(part)}; "
                    f"change it back, or give the operator a new uid",
                    True,
                )
    return None


def same_topology(old: Topology, new: Topology) -> Refuse | None:
    """A running location keeps its plan: Spark's own state belongs to it."""
    advice = "stop with a savepoint, or restore the newest checkpoint by starting at an empty location"
    for name, a, b in (
        ("sources", sorted(old.sources), sorted(new.sources)),
        ("operators (uids)", sorted(old.operators), sorted(new.operators)),
        ("sinks", sorted(old.sinks), sorted(new.sinks)),
        ("maxParallelism", old.key_groups, new.key_groups),
        ("streams at the sink", old.weight_total, new.weight_total),
    ):
        if a != b:
            return Refuse(f"the query at this location changed: expected {name} {a}, found {b}; {advice}", True)
    return _schemas_differ(old, new)
