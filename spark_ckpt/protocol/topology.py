"""Whether a query fits a checkpoint, or the Spark location it ran at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_ckpt.errors import CkptError, ConfigError, CorruptStorageError, TopologyError
from spark_ckpt.protocol.evolution import can_change, columns_differ, families_of_changed
from spark_ckpt.protocol.records import Topology


@dataclass(frozen=True)
class Refuse:
    """Raise :meth:`error`; nothing was changed. ``topology``: the query is at fault; ``damaged``: the job's files."""

    reason: str
    topology: bool = False
    damaged: bool = False

    def error(self) -> CkptError:
        kind = CorruptStorageError if self.damaged else TopologyError if self.topology else ConfigError
        return kind(self.reason)


@dataclass(frozen=True)
class Fit:
    """``uncompared``: operators whose state the checkpoint does not say the origin of; see :func:`uncompared`."""

    fresh_uids: tuple[str, ...] = field(default=())
    dropped_uids: tuple[str, ...] = field(default=())
    uncompared: tuple[str, ...] = field(default=())


def fit_topology(old: Topology, new: Topology, allow_non_restored: bool) -> Fit | Refuse:
    """Whether a query of topology ``new`` can restore a checkpoint of topology ``old``."""
    if old.key_groups != new.key_groups:
        return Refuse(
            f"maxParallelism changed: expected {old.key_groups} as in the checkpoint, found {new.key_groups}; "
            f"{_keep_key_groups(old)}",
            True,
        )
    moved = _derived_moved(old, new)
    if moved is not None:
        return moved
    dropped = tuple(u for u in (*old.operators, *old.sources) if u not in new.operators and u not in new.sources)
    missing = [u for u in dropped if u not in families_of_changed(old, new)]
    if missing and not allow_non_restored:
        return Refuse(
            f"the checkpoint holds state of {missing}: expected these uids in the query, found "
            f"{[*new.operators, *new.sources]}; add them, or set spark.ckpt.allowNonRestoredState to drop their state"
            f"{_were_derived(old, missing)}",
            True,
        )
    fresh = tuple(u for u in (*new.operators, *new.sources) if u not in old.operators and u not in old.sources)
    return _state_differs(old, new) or Fit(fresh, dropped, uncompared(old, new))


def _derived_moved(old: Topology, new: Topology) -> Refuse | None:
    """A derived uid is a place in the query. If operators came, went or moved, the one at a place may be another."""
    now = _derived(new)
    then = {uid: sources for uid, sources in _derived(old).items() if uid in now or uid not in new.operators}
    if not then or not now or then == now:
        return None
    return Refuse(
        f"the uids derived from keyed operators' kinds and places in the query changed: expected {_places(then)}, "
        f"found {_places(now)}, so which state is whose is not known; give each operator whose state is to go on the "
        f"uid that it had, such as uid({next(iter(then))!r}), and start at an empty Spark location",
        True,
    )


def _derived(topology: Topology) -> dict[str, list[str]]:
    """The derived uids, and the sources whose rows reach their operators."""
    return {uid: facts["derived"] for uid, facts in topology.operators.items() if "derived" in facts}


def _places(derived: Mapping[str, list[str]]) -> str:
    return ", ".join(f"{uid!r} behind {' and '.join(sources)}" for uid, sources in derived.items())


def _were_derived(old: Topology, gone: Iterable[str]) -> str:
    derived = [uid for uid in gone if uid in _derived(old)]
    if not derived:
        return ""
    return (
        f"; {derived} were derived from operators' kinds and places in the query: an operator that is still there gets "
        f"its state back with uid({derived[0]!r})"
    )


def _keep_key_groups(old: Topology) -> str:
    return (
        f"set spark.ckpt.maxParallelism={old.key_groups}: state is cut into so many key groups for good (another "
        "number begins without state, with restore=none at an empty Spark location)"
    )


def uncompared(old: Topology, new: Topology) -> tuple[str, ...]:
    """Operators of both whose state was written by a version that did not record what it is made of."""
    return tuple(uid for uid in new.operators if uid in old.operators and "made_of" not in old.operators[uid])


def _state_differs(old: Topology, new: Topology) -> Refuse | None:
    for uid, now in new.operators.items():
        was = old.operators.get(uid, now)
        found = _part_differs(was, now)
        if found is None:
            found = columns_differ(was, now) if can_change(was, now) else _origin_differs(was, now)
        if found is not None:
            advice = (
                "change it back; or let it begin empty: give the operator a new uid and start at an empty Spark "
                "location with spark.ckpt.allowNonRestoredState=true"
            )
            return Refuse(f"operator {uid!r}: {found}; {advice}", True)
    return None


def _part_differs(was: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    for part, name in (("keys", "key schema"), ("state", "state schema"), ("timeout", "kind of time-out")):
        if part == "state" and can_change(was, now):
            continue
        if part in was and was[part] != now.get(part, was[part]):
            only_named = _renamed(was, now) if part == "state" else ""
            return f"the {name} changed: expected {was[part]}, found {now[part]}{only_named}"
    return None


def _renamed(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What to do where the same aggregates only have other names, which are the names of the state's columns."""
    old, new = (sorted(o.get("made_of", {}).values()) for o in (was, now))
    if not old or old != new:
        return ""
    return " (the aggregates are the same: keep their names here and use withColumnRenamed behind aggregate)"


def _origin_differs(was: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Same columns and types, but values that mean something else. What a user's function makes is not compared."""
    then, here = was.get("made_of", {}), now.get("made_of", {})
    for column in then:
        if column in here and then[column] != here[column]:
            return (
                f"column {column!r} of its state was made by {then[column]}, and the query makes it by {here[column]}"
            )
    return None


def same_topology(old: Topology, new: Topology) -> Refuse | None:
    """A running location keeps its plan: Spark's own state belongs to it."""
    moved = _derived_moved(old, new)
    if moved is not None:
        return moved
    loose = families_of_changed(old, new)
    move = "stop with a savepoint, or restore the newest checkpoint by starting at an empty location"
    for name, a, b, advice in (
        ("sources", sorted(old.sources), sorted(new.sources), move),
        ("operators (uids)", sorted(set(old.operators) - loose), sorted(set(new.operators) - loose), move),
        ("sinks", sorted(old.sinks), sorted(new.sinks), move),
        ("maxParallelism", old.key_groups, new.key_groups, _keep_key_groups(old)),
        ("streams at the sink", old.weight_total, new.weight_total, move),
    ):
        if a != b:
            return Refuse(f"the query at this location changed: expected {name} {a}, found {b}; {advice}", True)
    return _state_differs(old, new)
