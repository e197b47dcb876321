"""State whose columns change: under which names its files have them, now and before.

What is recorded of a
table whose columns may change (``types``: column -> type): those that the query and the state both have go on, others
begin empty or are no longer kept. A column that comes back begins empty, too: rows that were written before it went
have another value of it, so it is ``stored`` under a name that is in no file (``gone`` are those that may be). Where
Spark's own location goes on, ``since`` tells the generation in which a column or a family began there.

A column whose type became wider (``retyped``) keeps its name in files, and readers cast what older ones have. What
migrations make of a state (:mod:`spark_ckpt.protocol.migration`) is recorded in the same words: ``stored`` for another
name, ``older`` for names under which files before a migration have a column (``lenient``: a value that does not fit is
null), ``starts`` for the constants that columns begin with. ``from``: which of a checkpoint's tables it goes on from,
if not from that of its own name.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from spark_ckpt.names import free
from spark_ckpt.protocol._differences import (
    Difference,
    Facts,
    can_change,
    differences,
    empty_line,
    keys_of,
    parts_of,
    types_of,
)
from spark_ckpt.protocol._state_types import fields_gone, matched
from spark_ckpt.protocol.records import FAMILY_OF, Topology
from spark_ckpt.protocol.rewriting import rewrites_done
from spark_ckpt.protocol.source_starts import beginnings

RECAST = "recast"
"""Of a topology that migrations were applied to: columns that get another type. Never recorded."""


@dataclass(frozen=True)
class StateChange:
    """What is new in the operator ``uid``, and begins empty, and what is no longer kept: as ``made_of`` has it."""

    uid: str
    added: tuple[str, ...]
    removed: tuple[str, ...]


def families_of_changed(old: Topology, new: Topology) -> set[str]:
    """Tables of families that came or went with an aggregate or a variable of an operator that goes on."""
    return {
        table
        for one, other in ((old, new), (new, old))
        for table, facts in one.operators.items()
        if table not in other.operators and _goes_on(facts.get(FAMILY_OF), old, new)
    }


def family_questions(old: Topology, new: Topology) -> list[Difference]:
    """A variable of a user's processor that goes, and one that comes that may be the same. An aggregate's family goes
    by the aggregate's own columns."""
    loose = families_of_changed(old, new)
    variables = {t for t in loose if is_variable(t, old, new)}
    gone = [t for t in old.operators if t in variables and t not in new.operators]
    came = [t for t in new.operators if t in variables and t not in old.operators]

    def fits(one: str, other: str) -> bool:
        was, now = old.operators[one], new.operators[other]
        return was.get(FAMILY_OF) == now.get(FAMILY_OF) and not differences(other, was, now)

    return [
        Difference(
            f"{one!r} goes and {other!r} comes: whether it is the same state, under another name, is not known",
            (f"ckpt.moved({one!r}, {other!r})", empty_line(other)),
            other,
        )
        for one, other in matched(gone, came, fits)
    ]


def is_variable(table: str, old: Topology, new: Topology) -> bool:
    """Names of families that are no variables, as timers, begin with an underscore."""
    uid = (new.operators.get(table) or old.operators[table])[FAMILY_OF]
    return not new.operators[uid]["made_of"] and not table[len(uid) + 1 :].startswith("_")


def _goes_on(uid: Any, old: Topology, new: Topology) -> bool:
    return uid in old.operators and uid in new.operators and can_change(old.operators[uid], new.operators[uid])


def changes(old: Topology, new: Topology) -> tuple[StateChange, ...]:
    found = []
    for uid, now in new.operators.items():
        was = old.operators.get(uid)
        if was is None or not can_change(was, now):
            continue
        added = tuple(name for name in _made(now, was) if name not in was.get("starts", {}))
        removed = _made(was, now)
        if added or removed:
            found.append(StateChange(uid, added, removed))
    return tuple(found)


def _made(one: Facts, other: Facts) -> tuple[str, ...]:
    """Aggregates, and columns of which nothing is said, that the other has not."""
    known = {part.name for part in parts_of(other, types_of(other))}
    return tuple(part.name for part in parts_of(one, types_of(one)) if part.name not in known)


def carried_over(old: Topology, new: Topology, generation: int | None) -> Topology:
    """``new``, with what is known of how the state of ``old`` is written. ``generation``: goes on at Spark's location,
    whose own state knows nothing of what begins with it; None: begins at an empty one."""
    carried = {
        uid: {**_carried(uid, facts, old, new, generation), **_waited(old.operators.get(uid, {}), facts)}
        for uid, facts in new.operators.items()
    }
    return replace(new, operators=carried, begins=beginnings(old, new))


def _waited(was: Facts, now: Facts) -> Facts:
    """Groups that waited for the end of their time in output mode append come out at it in mode update, too: no row may
    come to them any more."""
    waited = now.get("mode") == "update" and ("waited" in was or was.get("mode") == "append")
    return {"waited": True} if waited else {}


def _carried(uid: str, now: Facts, old: Topology, new: Topology, generation: int | None) -> Facts:
    was = old.operators.get(uid)
    if was is None:
        begun = generation is not None and _goes_on(now.get(FAMILY_OF), old, new)
        return {**now, "since": generation} if begun else now
    known = "made_of" in was  # else it is of a version that knew no columns
    told = {**(_written(was, now) if known else {}), "since": _since(was, now, generation), "from": was.get("from")}
    return {**now, **rewrites_done(was, now), **{name: value for name, value in told.items() if value}}


def _written(was: Facts, now: Facts) -> dict[str, Any]:
    """Under which names files have the columns, now and before."""
    then, here = [*keys_of(was), *types_of(was)], [*keys_of(now), *types_of(now)]
    before, recast = was.get("stored", {}), was.get(RECAST, ())
    stored = {c: before.get(c, c) for c in then if c in here and c not in recast}
    gone = {*was.get("gone", ()), *(before.get(c, c) for c in then if c not in stored), *_fields_gone(was, now)}
    older = {path: names for path, names in was.get("older", {}).items() if _column(path, here) in stored}
    for column in here:
        if column not in stored:
            others = {c for c in here if c != column}
            stored[column] = free(column, {*gone, *stored.values(), *others})
            if column in recast and column in then:
                older[column] = [before.get(column, column), *was.get("older", {}).get(column, ())]
    starts = {c: value for c, value in was.get("starts", {}).items() if c in here}
    names = {c: s for c, s in stored.items() if s != c}
    retyped = {*was.get("retyped", ()), *_retyped(was, now)} & {c for c in stored if c in here}
    told = {"stored": names, "gone": sorted(gone), "older": older, "retyped": sorted(retyped), "starts": starts}
    return {**told, "lenient": [c for c in was.get("lenient", ()) if c in older]}


def _fields_gone(was: Facts, now: Facts) -> set[str]:
    then, here = types_of(was), types_of(now)
    return set[str]().union(*(fields_gone(then[c], here[c], c) for c in then if c in here))


def _retyped(was: Facts, now: Facts) -> set[str]:
    then = {**keys_of(was), **types_of(was)}
    return {c for c, kind in {**keys_of(now), **types_of(now)}.items() if c in then and then[c] != kind}


def _column(path: str, columns: Collection[str]) -> str:
    """The column that a path of struct fields begins with."""
    return path if path in columns else next((c for c in columns if path.startswith(f"{c}.")), path)


def _since(was: Facts, now: Facts, generation: int | None) -> Any:
    if generation is None:
        return {}
    if FAMILY_OF in now:
        return was.get("since")
    if not can_change(was, now):
        return {}
    then, here = types_of(was), types_of(now)
    kept = {c: g for c, g in was.get("since", {}).items() if c in here and c in then}
    return {**kept, **{c: generation for c in here if c not in then}}
