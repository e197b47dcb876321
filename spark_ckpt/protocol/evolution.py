"""Aggregates that were added to an operator, removed from it or moved within it: what of its state goes on.

A column of an operator's state is found by its name, which tells the aggregate. What is recorded of an operator whose
columns may come and go (``types``: column -> type): those that the query and the state both have go on, others begin
empty or are no longer kept. A column that comes back begins empty, too: rows that were written before it went have
another value of it, so it is ``stored`` under a name that is in no file (``gone`` are those that may be). Where Spark's
own location goes on, ``since`` tells the generation in which a column or a family began there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from spark_ckpt.protocol.records import Topology

Facts = Mapping[str, Any]
FAMILY_OF = "family_of"
"""What a family's entry says: the operator's uid."""


@dataclass(frozen=True)
class StateChange:
    """What is new in the operator ``uid``, and begins empty, and what is no longer kept: as ``made_of`` has it."""

    uid: str
    added: tuple[str, ...]
    removed: tuple[str, ...]


def can_change(was: Facts, now: Facts) -> bool:
    """Whether both say of which columns they are, one by one, and how they are made."""
    return all("types" in facts and "made_of" in facts for facts in (was, now))


def columns_differ(was: Facts, now: Facts) -> str | None:
    """What is in the way of going on with other columns; None: nothing is."""
    then, here = was["types"], now["types"]
    made_then, made_here = was.get("made_of", {}), now.get("made_of", {})
    found = [
        f"column {c!r} of its state was {then[c]}, made by {made_then.get(c)}, and is now {here[c]}, made by "
        f"{made_here.get(c)}"
        for c in then
        if c in here and (then[c], made_then.get(c)) != (here[c], made_here.get(c))
    ]
    found += [
        f"key {c!r} was of {made_then[c]}, and is now of {made_here[c]}"
        for c in sorted(made_then.keys() & made_here.keys() - then.keys() - here.keys())
        if made_then[c] != made_here[c]
    ]
    added, removed = [c for c in here if c not in then], [c for c in then if c not in here]
    renamed = sorted({made_here[c] for c in added} & {made_then[c] for c in removed})
    found += [f"{made} has another name in it: keep its name and use withColumnRenamed behind it" for made in renamed]
    late = {made_here[c] for c in added if c in now.get("from_start", ())} - {made_then[c] for c in then}
    found += [f"{made} cannot begin in keys that are there: a null would look like none; ignore nulls" for made in late]
    if then and here and len(removed) == len(then):
        old, new = ", ".join(f"{c} {t}" for c, t in then.items()), ", ".join(f"{c} {t}" for c, t in here.items())
        found.append(f"nothing of its state would go on: expected some of {old}, found {new}")
    return "; ".join(found) or None


def families_of_changed(old: Topology, new: Topology) -> set[str]:
    """Tables of families that came or went with an aggregate of an operator that goes on."""
    return {
        table
        for one, other in ((old, new), (new, old))
        for table, facts in one.operators.items()
        if table not in other.operators and _goes_on(facts.get(FAMILY_OF), old, new)
    }


def _goes_on(uid: Any, old: Topology, new: Topology) -> bool:
    return uid in old.operators and uid in new.operators and can_change(old.operators[uid], new.operators[uid])


def changes(old: Topology, new: Topology) -> tuple[StateChange, ...]:
    found = []
    for uid, now in new.operators.items():
        was = old.operators.get(uid)
        if was is None or not can_change(was, now):
            continue
        added, removed = _made(now, was), _made(was, now)
        if added or removed:
            found.append(StateChange(uid, added, removed))
    return tuple(found)


def _made(one: Facts, other: Facts) -> tuple[str, ...]:
    """Aggregates that the other has not."""
    known = {other["made_of"][c] for c in other["types"]}
    return tuple(dict.fromkeys(one["made_of"][c] for c in one["types"] if one["made_of"][c] not in known))


def carried_over(old: Topology, new: Topology, generation: int | None) -> Topology:
    """``new``, with what is known of how the state of ``old`` is written. ``generation``: goes on at Spark's location,
    whose own state knows nothing of what begins with it; None: begins at an empty one."""
    carried = {uid: _carried(uid, facts, old, new, generation) for uid, facts in new.operators.items()}
    return replace(new, operators=carried)


def _carried(uid: str, now: Facts, old: Topology, new: Topology, generation: int | None) -> Facts:
    was = old.operators.get(uid)
    if was is None:
        begun = generation is not None and _goes_on(now.get(FAMILY_OF), old, new)
        return {**now, "since": generation} if begun else now
    if not can_change(was, now):
        kept = was.get("since") if generation is not None else None
        return now if kept is None or FAMILY_OF not in now else {**now, "since": kept}
    stored = {c: was.get("stored", {}).get(c, c) for c in was["types"] if c in now["types"]}
    keys = now.get("keys", "").replace(",", " ").split()
    gone = {*was.get("gone", ()), *(was.get("stored", {}).get(c, c) for c in was["types"] if c not in now["types"])}
    for column in now["types"]:
        if column not in stored:
            others = {c for c in now["types"] if c != column}
            stored[column] = _unused(column, {*gone, *stored.values(), *others, *keys})
    since = _since(was, now, generation)
    told = {"stored": {c: s for c, s in stored.items() if s != c}, "gone": sorted(gone), "since": since}
    return {**now, **{name: value for name, value in told.items() if value}}


def _since(was: Facts, now: Facts, generation: int | None) -> dict[str, int]:
    if generation is None:
        return {}
    kept = {c: g for c, g in was.get("since", {}).items() if c in now["types"] and c in was["types"]}
    return {**kept, **{c: generation for c in now["types"] if c not in was["types"]}}


def _unused(name: str, taken: Iterable[str]) -> str:
    low, number, free = {t.lower() for t in taken}, 1, name
    while free.lower() in low:
        number += 1
        free = f"{name}_{number}"
    return free
